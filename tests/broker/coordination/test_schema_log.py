"""This broker's replica of `_schemas`: appends only where the reader is, in the epoch of the decision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import NotLeaderOrFollower, PolicyViolation
from raftlog.base.schema_log import NO_REPLICA, NoSchemaLog
from raftlog.base.types import NO_EPOCH, SCHEMAS_TOPIC
from raftlog.broker.auto_create import schemas_topic
from raftlog.broker.coordination.schema_log import SchemaLog
from raftlog.records.batch import iter_headers, iter_records
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import GroupBroker

COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


class SchemaBroker(GroupBroker):
    """One broker with `_schemas`."""

    topic = SCHEMAS_TOPIC
    config = COMPACTED

    def _open(self, index: int) -> Any:
        partition = super()._open(index)
        partition.configure(self.config)
        return partition


def play(scenario: Callable[[SchemaBroker, SchemaLog], Awaitable[None]], **options: Any) -> None:
    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = SchemaBroker(
                host, schema_registry_listener=("127.0.0.1", 8081), default_replication_factor=1, **options
            )
            await node.pass_time(0.1)
            await scenario(node, SchemaLog(node.broker))

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def append(log: SchemaLog, name: bytes, **where: int) -> int:
    return log.append(((name, b"{}"),), **{"now_ms": 1, **where})


async def committed(log: SchemaLog, end_offset: int) -> None:
    while log.bounds().high_watermark < end_offset:
        await log.changed()


def test_records_get_the_offset_they_were_decided_at() -> None:
    """The reader has everything before them, and `changed` returns when they are committed."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        bounds = log.bounds()
        assert (bounds.high_watermark, bounds.log_end_offset, bounds.leader_epoch) == (0, 0, 0)
        assert append(log, b"a", at=0, leader_epoch=0) == 1
        await committed(log, 1)
        assert append(log, b"b", at=1, leader_epoch=0) == 2
        await committed(log, 2)
        read = memoryview(await log.read(0))
        keys = [
            each.key
            for position, header in iter_headers(read)
            for each in iter_records(read[position : position + header.length])
        ]
        assert keys == [b"a", b"b"]
        log.close()

    play(scenario)


def test_another_writers_record_in_between_refuses_the_append() -> None:
    """A client with the right may write to the topic, too: what was decided before its record is decided anew."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        append(log, b"a", at=0, leader_epoch=0)
        with pytest.raises(NotLeaderOrFollower):
            append(log, b"b", at=0, leader_epoch=0)
        assert log.bounds().log_end_offset == 1

    play(scenario)


def test_an_epoch_that_is_over_refuses_the_append() -> None:
    """This broker leads again: the decision was made on a log that may have been cut since."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        node.publish(leader=1)
        assert log.bounds().leader_epoch == 1
        with pytest.raises(NotLeaderOrFollower):
            append(log, b"a", at=0, leader_epoch=0)
        node.publish(leader=2)
        assert log.bounds().leader_epoch == NO_EPOCH
        with pytest.raises(NotLeaderOrFollower):
            append(log, b"a", at=0, leader_epoch=NO_EPOCH)

    play(scenario)


def test_a_change_of_role_wakes_the_reader() -> None:
    """A request that waits for its commit learns at once that it waits in vain."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        await log.changed()
        waiting = asyncio.ensure_future(log.changed())
        await node.pass_time(1)
        assert not waiting.done()
        node.publish(leader=2)
        for listener in node.replicas.role_listeners:
            listener()
        await waiting

    play(scenario)


def test_a_topic_that_is_not_compacted_takes_no_schemas() -> None:
    """Retention would delete schemas that records still need."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        node.replicas.partitions[0].configure(TopicConfig())
        with pytest.raises(PolicyViolation, match=r"cleanup\.policy=compact"):
            append(log, b"a", at=0, leader_epoch=0)

    play(scenario)


def test_the_topic_is_made_at_its_first_use() -> None:
    """One partition, compacted, and never led by a replica that lacks committed records."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        assert not log.exists()
        assert log.bounds() == NO_REPLICA
        await log.create()
        (created,) = node.submitted[0].topics
        assert created == schemas_topic(node.broker)
        assert (created.name, created.num_partitions) == (SCHEMAS_TOPIC, 1)
        assert created.configs["cleanup.policy"] == "compact"
        assert created.configs["unclean.leader.election.enable"] == "false"
        assert log.exists()

    play(scenario, with_topic=False)


def test_a_node_without_the_broker_role_writes_nothing() -> None:
    """It forwards what it is asked."""
    assert NoSchemaLog().bounds() == NO_REPLICA
    with pytest.raises(NotLeaderOrFollower):
        NoSchemaLog().append((), at=0, leader_epoch=0, now_ms=0)
