"""A program: one consumer of a group, `member.py KIND BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]`.

ASSIGNOR is roundrobin, cooperative-sticky, or consumer: the protocol of KIP-848. INSTANCE makes it static. It ends when
its input does. It prints lines: `has 0 2` when its partitions change, `gave 2` for revoked partitions, and `read VALUE`
for each record before that is committed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

POLL_S = 0.1
SESSION_MS, HEARTBEAT_MS = 6_000, 500
STATIC_SESSION_MS = 20_000
"""Within it a static member must be back, however busy the machine is."""

KIP_848 = "consumer"

ended = threading.Event()


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Share:
    """Prints its partitions when they change."""

    def __init__(self) -> None:
        self._told: list[int] | None = None

    def is_now(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._told:
            self._told = now
            tell("has", *now)

    def loses(self, topic_partitions: Iterable[Any]) -> None:
        """Print the revoked partitions."""
        lost = sorted(each.partition for each in topic_partitions)
        tell("gave", *lost)
        self.is_now(each for each in self._told or () if each not in lost)


def session_ms(instance_id: str | None) -> int:
    return STATIC_SESSION_MS if instance_id else SESSION_MS


def confluent_settings(assignor: str, instance_id: str | None) -> dict[str, Any]:
    """The broker says how long sessions are in KIP-848, and how partitions are assigned."""
    if assignor == KIP_848:
        return {"group.protocol": KIP_848}
    return {
        "session.timeout.ms": session_ms(instance_id),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": assignor,
    }


def confluent(bootstrap: str, topic: str, group: str, assignor: str, instance_id: str | None = None) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **confluent_settings(assignor, instance_id),
            **({"group.instance.id": instance_id} if instance_id else {}),
        }
    )
    share = Share()
    consumer.subscribe(
        [topic],
        on_revoke=lambda _, topic_partitions: share.loses(topic_partitions),
        on_lost=lambda _, topic_partitions: share.loses(topic_partitions),
    )
    while not ended.is_set():
        records = [each for each in consumer.consume(100, POLL_S) if each.error() is None]
        for each in records:
            tell("read", each.value().decode())
        share.is_now(each.partition for each in consumer.assignment())
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                continue  # the next owner reads it again
    consumer.close()


def kafka_python(
    bootstrap: str, topic: str, group: str, assignor: str, instance_id: str | None = None
) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    share = Share()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            share.loses(revoked)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pass

    assignors = {
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        group_instance_id=instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms(instance_id),
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=1_000,
        partition_assignment_strategy=[assignors[assignor]],
    )
    consumer.subscribe([topic], listener=Listener())
    while not consumer.partitions_for_topic(topic):
        time.sleep(
            POLL_S
        )  # once joined, it may forget to rejoin for what it learns then (kafka-python 3.0.12)
    while not ended.is_set():
        found = consumer.poll(int(POLL_S * 1000))
        for each in (record for records in found.values() for record in records):
            tell("read", each.value.decode())
        share.is_now(tp.partition for tp in consumer.assignment())
        if found:
            try:
                consumer.commit()
            except KafkaError:
                continue
    consumer.close()


async def aio(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    assert assignor == "roundrobin", f"aiokafka has no {assignor}"
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )
    await consumer.start()
    share = Share()
    while not ended.is_set():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        for each in (record for records in found.values() for record in records):
            tell("read", each.value.decode())
        share.is_now(tp.partition for tp in consumer.assignment())
        if found:
            try:
                await consumer.commit()
            except KafkaError:
                continue
    await consumer.stop()


def main() -> None:
    kind, *where = sys.argv[1:]
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    if kind == "aiokafka":
        asyncio.run(aio(*where))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[kind](*where)


if __name__ == "__main__":
    main()
