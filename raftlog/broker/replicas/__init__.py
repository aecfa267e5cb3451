"""This broker's replicas: their log directories, flushing, fetching from leaders, cleaning and ISR changes.

Kafka calls this the ReplicaManager. Nothing here knows a client's connection or request.
"""
