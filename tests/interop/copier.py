"""A program: consume, transform, produce, `copier.py LIBRARY MODE BOOTSTRAP TOPIC GROUP ASSIGNOR`.

Each value goes to the topic GROUP, exactly once, by way of a transaction that commits the group's offsets as well. It
prints a Member's lines (`read` once the transaction is committed), and ends when its input does. MODE is `commits`, or
`holds`: then it prints `holds` instead of its first commit, and stops there.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from typing import Any
from uuid import uuid4

sys.path.append(".")

from tests.clients.member import HEARTBEAT_MS, POLL_S, SESSION_MS, Share, ended, tell

TRANSACTION_MS = 5_000


def kafka_python(mode: str, bootstrap: str, topic: str, group: str, assignor: str) -> None:
    """KIP-447: an id of its own; the group's metadata fences a producer that lost its partitions."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    assert assignor == "roundrobin"
    name = f"copier-{uuid4()}"

    def new_producer() -> Any:
        made = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_MS,
        )
        made.init_transactions()
        return made

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",  # else it does not wait for offsets that pend
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )
    producer, share = new_producer(), Share()

    def copy(found: dict[Any, list[Any]]) -> None:
        producer.begin_transaction()
        for each in (record for records in found.values() for record in records):
            producer.send(group, each.value, partition=each.partition)
        read_to = {tp: OffsetAndMetadata(its[-1].offset + 1, "", -1) for tp, its in found.items()}
        producer.send_offsets_to_transaction(read_to, consumer.group_metadata())
        if mode == "holds":
            producer.flush()
            tell("holds")
            ended.wait()
        producer.commit_transaction()

    while not ended.is_set():
        found = consumer.poll(int(POLL_S * 1000))
        share.is_now(tp.partition for tp in consumer.assignment())
        if not found:
            continue
        try:
            copy(found)
        except KafkaError as error:
            tell("undone", repr(error))
            producer.close(0)
            producer = new_producer()  # of the same id: what the other one left open is aborted
            for tp in consumer.assignment():
                consumer.seek(TopicPartition(*tp), consumer.committed(tp) or 0)
        else:
            for each in (record for records in found.values() for record in records):
                tell("read", each.value.decode())


class Aiokafka:
    """It cannot name its generation: an id for each partition fences the previous owner."""

    def __init__(self, mode: str, bootstrap: str, topic: str, group: str, assignor: str) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        assert assignor == "roundrobin"
        self.mode, self.group = mode, group
        self.reached: dict[Any, tuple[Any, int]] = {}
        """By partition, its producer and the offset that its transactions have reached."""
        self.new_producer = partial(
            AIOKafkaProducer, bootstrap_servers=bootstrap, transaction_timeout_ms=TRANSACTION_MS
        )
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
        )

    async def run(self) -> None:
        from aiokafka.errors import KafkaError

        share, lost = Share(), set()
        await self.consumer.start()
        while not ended.is_set():
            found = await self.consumer.getmany(timeout_ms=int(POLL_S * 1000))
            for tp, records in found.items():
                try:
                    if not await self.goes_on(tp, records):
                        lost.add(tp)
                except KafkaError as error:
                    tell("undone", repr(error))
                    lost.add(tp)
            lost &= self.consumer.assignment()
            for tp in tuple(lost):
                try:
                    await self.begin(tp)
                    lost.discard(tp)
                except KafkaError as error:
                    tell("not begun", repr(error))
            share.is_now(tp.partition for tp in self.consumer.assignment())
        await self.consumer.stop()

    async def goes_on(self, tp: Any, records: list[Any]) -> bool:
        """Copy records that come next; returns False for others."""
        producer, reached = self.reached.get(tp, (None, -1))
        if records[0].offset != reached:
            return False
        await self.copy(producer, tp, records)
        return True

    async def begin(self, tp: Any) -> None:
        """The former holder of the partition is fenced and its transaction ended: from now on it is known what is
        committed.
        """
        former, _ = self.reached.pop(tp, (None, -1))
        if former is not None:
            await former.stop()
        producer = self.new_producer(transactional_id=f"{self.group}-{tp.partition}")
        await producer.start()
        reached = await self.consumer.committed(tp) or 0
        self.consumer.seek(tp, reached)
        self.reached[tp] = producer, reached

    async def copy(self, producer: Any, tp: Any, records: list[Any]) -> None:
        await producer.begin_transaction()
        for each in records:
            await producer.send(self.group, each.value, partition=each.partition)
        read_to = records[-1].offset + 1
        await producer.send_offsets_to_transaction({tp: read_to}, self.group)
        if self.mode == "holds":
            await producer.flush()
            tell("holds")
            await asyncio.Event().wait()
        await producer.commit_transaction()
        self.reached[tp] = producer, read_to
        for each in records:
            tell("read", each.value.decode())


def end_with_input() -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    library, *words = sys.argv[1:]
    threading.Thread(target=end_with_input, daemon=True).start()
    if library == "aiokafka":

        async def run() -> None:
            await Aiokafka(*words).run()

        asyncio.run(run())
    else:
        kafka_python(*words)


if __name__ == "__main__":
    main()
