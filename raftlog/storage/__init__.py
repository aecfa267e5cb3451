"""One partition's log on one disk, in Apache Kafka's formats: segments, indexes, producer state, leader epochs,
recovery and retention. Leaders, followers and clients are unknown here.
"""
