"""Share groups (KIP-932): which member of a group has which records of a partition, and what of that is written down.

Pure: the time is handed in, and writes are values that the owner hands to the share coordinator. Offsets are held in
ranges. `share_partition` is the leader's machine, `state_batches` the state that outlives the leader.
"""
