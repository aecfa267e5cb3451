"""This broker's replicas: their log directories, flushing, fetching from leaders, cleaning and ISR changes.

Kafka calls this the ReplicaManager. Nothing in this package knows about client connections or requests.
"""
