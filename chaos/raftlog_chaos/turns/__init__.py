"""The longest turn of a node's event loop for every API and HTTP route, with the largest input that is allowed.

While one callback runs, no other request is answered and no heartbeat leaves. `python -m raftlog_chaos.turns` sends to
each API, and to each array of its request, as many elements as a request may have, and to each route the largest body
and query. A callback that computes for longer than `broker.network.long_turns.LONG_TURN_S` fails.
"""
