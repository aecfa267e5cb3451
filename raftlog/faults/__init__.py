"""Real disks with the faults of simulated disks: faults while a node runs, and lost writes after a power cut.

| module | duty |
|---|---|
| `troubled_disk` | the disk port with a slow, full or failing device behind it |
| `node_links` | a node's connections with other nodes, which can be cut |
| `forgetful_disk` | the disk port on real files that writes down what is not durable yet |
| `unsynced` | what is written down: changes of contents and of names, and a journal of them that survives kill -9 |
| `power_cut` | takes back what was not durable, or a part of it, once the process is gone |
| `harm` | damage done to a node's folder from outside: one flipped bit, all data wiped |

A node's disk is troubled(forgetful(real)). None of them knows nodes, processes or the source of a fault.
"""
