"""Claims about payloads on a node without a replica of `_schemas`. The leader of the partition is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace as Answer
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from raftlog.admin.caller import NOBODY
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.limits import Limits
from raftlog.admin.route import Call
from raftlog.admin.schema_registry import schema_copy
from raftlog.admin.schema_registry.payloads import PayloadReader
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.schema_copy import REFRESH_EACH_S, WAIT_S, SchemaCopy
from raftlog.admin.schema_registry.store import SchemaStore
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.schema_log import NoSchemaLog
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.records.batch import build_batch, new_record
from raftlog.schemas import json_payloads
from raftlog.schemas.payloads import Undecodable, UsedSchema
from raftlog.schemas.records import SchemaRemoved, SchemaWritten, StoreRecord, encode
from raftlog.schemas.schema import Schema
from raftlog_chaos.simulator import SimLoop, simulate

EARLIEST = -2
TOPIC_ID = UUID(int=5)
TICKS_S = 0.001
"""Simulated time of some turns of the loop."""
STRING = Schema("AVRO", '"string"')
FORTY_TWO = b"\x54"


class Leader:
    """Node 2, which has the only replica of `_schemas`. `is_silent`: it answers nothing, and breaks no connection."""

    def __init__(self) -> None:
        self.log: list[StoreRecord] = []
        self.start_offset = 0
        self.is_silent = False
        self.takes_s = 0.0
        self.error: Exception | None = None
        self.asked: list[int] = []

    def register(self, schema_id: int, subject: str = "t-value") -> None:
        self.log.append(SchemaWritten(subject, schema_id, schema_id, Schema("AVRO", '"int"')))

    async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
        """Answer as a broker would, a record at a time."""
        assert broker_id == 2
        self.asked.append(api_key)
        await asyncio.sleep(self.takes_s)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if api_key == ApiKey.LIST_OFFSETS:
            is_first = message.topics[0].partitions[0].timestamp == EARLIEST
            offset = self.start_offset if is_first else len(self.log)
            found = Answer(partition_index=0, error_code=0, offset=offset)
            return Answer(topics=[Answer(name=SCHEMAS_TOPIC, partitions=[found])])
        assert api_key == ApiKey.FETCH
        offset = message.topics[0].partitions[0].fetch_offset
        records = [new_record(*encode(each), timestamp=0) for each in self.log[offset : offset + 1]]
        batch = build_batch(records, base_offset=offset)
        found = Answer(partition_index=0, error_code=0, records=batch)
        return Answer(error_code=0, responses=[Answer(partitions=[found])])


class Node(NamedTuple):
    """Node 1, whose image has `_schemas` on node 2."""

    leader: Leader
    images: list[MetadataImage]
    call: Call
    registry: Registry

    async def read(self, schema_id: int) -> Any:
        """Return what a request makes of a payload: its value, or why there is none."""
        reader = PayloadReader(self.call, self.registry, ("t-value",))
        try:
            value, _ = await reader.read(b"\0" + schema_id.to_bytes(4, "big") + FORTY_TWO)
        except Undecodable as error:
            return str(error)
        return value


def image_of(leader_epoch: int) -> MetadataImage:
    state = PartitionState((2,), (2,), 2, leader_epoch)
    topic = TopicState(SCHEMAS_TOPIC, TOPIC_ID, (state,))
    return MetadataImage(offset=9, cluster_id="x", topics={SCHEMAS_TOPIC: topic})


def on_node(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in simulated time; a thread's work is done at once."""

    async def offload(work: Callable[[], Any]) -> Any:
        return work()

    async def program(loop: SimLoop) -> None:
        images, leader, nothing = [image_of(3)], Leader(), Any
        view = NodeView(NodeConfig(node_id=1), lambda: images[-1], list, lambda: 0.0, offload=offload)
        asker: Any = leader
        unused: Any = nothing
        call = Call(view, asker, "http://h", {}, None, None, unused, "id", Limits(), NOBODY)
        store = SchemaStore(NoSchemaLog(), view, offload=offload, now_ms=lambda: 0.0)
        copy = SchemaCopy(view)
        await scenario(Node(leader, images, call, Registry(store, offload, forwarder=unused, copy=copy)))
        copy.close()

    simulate(program)


def test_payloads_are_decoded_by_the_schemas_of_the_leader() -> None:
    """Known ids ask no other node again; a new id is read then."""

    async def scenario(node: Node) -> None:
        node.leader.register(1)
        node.leader.register(2)
        assert [await node.read(each) for each in (1, 2)] == [42, 42]
        asked = len(node.leader.asked)
        assert (await node.read(1), len(node.leader.asked)) == (42, asked)
        node.leader.register(3)
        assert await node.read(3) == 42
        assert "copy of the registry has no schema with id 4" in await node.read(4)

    on_node(scenario)


def test_request_finds_what_was_registered_before_it() -> None:
    """A reading that has asked for the log's end is not all that it waits for."""

    async def scenario(node: Node) -> None:
        node.leader.register(1)
        node.leader.takes_s = 0.05
        first = asyncio.create_task(node.read(1))
        while node.leader.asked != [ApiKey.LIST_OFFSETS, ApiKey.LIST_OFFSETS, ApiKey.FETCH]:
            await asyncio.sleep(TICKS_S)
        node.leader.register(2)
        assert (await node.read(2), await first) == (42, 42)

    on_node(scenario)


def test_silent_leader_holds_no_page() -> None:
    """The first request waits a bounded time, the next not at all, and known ids are decoded. Then it recovers."""

    async def scenario(node: Node) -> None:
        clock = asyncio.get_running_loop().time
        node.leader.register(1)
        assert await node.read(1) == 42
        node.leader.is_silent = True
        for wait_s in (WAIT_S, 0):
            began_at = clock()
            assert "that takes longer than 2 s (offset 1 of 1 so far)" in await node.read(2)
            assert clock() - began_at == pytest.approx(wait_s, abs=TICKS_S)
        await asyncio.sleep(schema_copy.READ_S)
        began_at = clock()
        assert "more than 10 s to read. Retry, or ask one of the nodes [2]" in await node.read(2)
        assert await node.read(1) == 42
        assert clock() - began_at < TICKS_S
        node.leader.is_silent = False
        node.leader.register(2)
        await asyncio.sleep(schema_copy.READ_S + REFRESH_EACH_S)
        await node.read(2)
        await asyncio.sleep(REFRESH_EACH_S)
        assert await node.read(2) == 42

    on_node(scenario)


def test_unreachable_leader_is_named() -> None:
    """With what the connection said."""

    async def scenario(node: Node) -> None:
        node.leader.error = BrokerUnreachable("broker 2 at h:1: refused")
        node.leader.register(1)
        assert "has not read its leader's: " in await node.read(1)

    on_node(scenario)


def test_new_leader_is_read_from_its_first_record() -> None:
    """It may lack what the last one had. What is known stays until that is done."""

    async def scenario(node: Node) -> None:
        node.leader.register(1)
        node.leader.register(2)
        assert await node.read(1) == 42
        node.leader.log = [SchemaWritten("t-value", each, 6 + each, STRING) for each in (1, 2, 3)]
        node.images.append(image_of(4))
        assert await node.read(7) == "it is not of its schema 7 (t-value version 1): " + (
            "42 bytes are expected at byte 1 of 1"
        )
        assert "no schema with id 1" in await node.read(1)

    on_node(scenario)


def test_old_copy_is_read_on_behind_a_request() -> None:
    """A schema may come to have another subject, or none."""

    async def scenario(node: Node) -> None:
        node.leader.register(1)
        assert await node.read(1) == 42
        node.leader.log.append(SchemaRemoved("t-value", 1))
        await asyncio.sleep(schema_copy.KEEPS_UP_EACH_S)
        assert await node.read(1) == 42
        await asyncio.sleep(REFRESH_EACH_S)
        assert "no schema with id 1" in await node.read(1)

    on_node(scenario)


def test_log_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of a node without a replica has a bound."""
    monkeypatch.setattr(schema_copy, "MAX_BYTES", 200)

    async def scenario(node: Node) -> None:
        for each in range(1, 9):
            node.leader.register(each)
        assert "MiB that are read from afar" in await node.read(8)
        refused_at = len(node.leader.asked)
        assert refused_at < 8
        await node.read(8)
        await asyncio.sleep(2 * REFRESH_EACH_S)
        assert node.leader.asked[refused_at:] == 2 * [ApiKey.LIST_OFFSETS]

    on_node(scenario)


def test_compacted_log_is_read_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read and then removed does not count."""
    monkeypatch.setattr(schema_copy, "MAX_BYTES", 1_000)

    async def scenario(node: Node) -> None:
        for each in range(1, 40):
            node.leader.register(each)
            node.leader.start_offset = max(0, each - 3)
            assert await node.read(each) == 42
            assert await node.read(max(1, each - 2)) == 42

    on_node(scenario)


def test_checks_of_a_page_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next page begins anew."""
    monkeypatch.setattr(json_payloads, "MAX_REQUEST_STEPS", 1)

    async def scenario(node: Node) -> None:
        node.leader.log.append(SchemaWritten("t-value", 1, 1, Schema("JSON", '{"type":"integer"}')))
        for _ in range(2):
            reader = PayloadReader(node.call, node.registry, ("t-value",))
            _, schema = await reader.read(b"\0\0\0\0\x011")
            found = [await reader.checked(schema, b'"x"') for _ in range(2)]
            assert found[0].mismatch == '"x" is not of type integer'
            assert found[1] == UsedSchema(1, "JSON", "t-value", 1, unchecked=found[1].unchecked)
            assert "the checks of values before it took 1 steps" in found[1].unchecked

    on_node(scenario)
