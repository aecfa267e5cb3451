"""Stock members read a topic by a pattern while it is deleted."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.testing.cluster import Cluster

PATIENCE_S = 60.0
FOR_LONG_MS = 300_000
"""A member that hangs is not put out while the test runs."""


async def assigned(members: list[AIOKafkaConsumer], topics: set[str]) -> None:
    """Read until the members have partitions of just these topics, and both have some."""
    while any({tp.topic for tp in each.assignment()} != topics for each in members):
        await asyncio.gather(*(each.getmany(timeout_ms=100) for each in members))


def test_members_give_up_a_deleted_topic_at_once(cluster: Cluster) -> None:
    """They commit what they read of it before they join again, and repeated that until their session was over.

    Apache Kafka answers such a commit with an error that aiokafka, kafka-python and Java's classic consumer take for a
    transient error (KAFKA-20959).
    """
    servers = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(f"deleted-topics-{each}", 4, 3) for each in "ab"])
    for each in made.values():
        each.result(PATIENCE_S)

    async def scenario() -> None:
        members = [
            AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id="of-deleted-topics",
                metadata_max_age_ms=500,
                session_timeout_ms=FOR_LONG_MS,
                rebalance_timeout_ms=FOR_LONG_MS,
                max_poll_interval_ms=FOR_LONG_MS,
            )
            for _ in range(2)
        ]
        for each in members:
            each.subscribe(pattern="^deleted-topics-.*")
            await each.start()
        try:
            await asyncio.wait_for(assigned(members, {"deleted-topics-a", "deleted-topics-b"}), PATIENCE_S)
            for gone, left in (("b", {"deleted-topics-a"}), ("a", set())):
                name = f"deleted-topics-{gone}"
                await asyncio.to_thread(admin.delete_topics([name])[name].result, PATIENCE_S)
                await asyncio.wait_for(assigned(members, left), PATIENCE_S)
        finally:
            for each in members:
                await asyncio.wait_for(each.stop(), PATIENCE_S)

    asyncio.run(scenario())
