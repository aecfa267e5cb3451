"""One broker: connections, a handler per API, its replicas and their followers' fetching.

It makes no decisions about the cluster.
"""
