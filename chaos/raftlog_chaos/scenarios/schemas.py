"""Clients register schemas at all nodes while leaders of `_schemas` crash, hang and lose their power.

An id is never given to two schemas, neither in an answer nor in the log. At the end the log has every
answered registration. A node that wrongly believes that it leads returns only ids that later leaders know.

Any node accepts a record whose schema was registered before it was sent, and refuses a batch with an unknown id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from raftlog.admin.schema_registry.store import NotLeading, SchemaStore
from raftlog.base.config import TopicConfig
from raftlog.base.errors import InvalidRecord, KafkaError
from raftlog.base.memory import Account
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.broker.coordination.schema_check import SchemaCheck
from raftlog.records.batch import build_batch, iter_headers, iter_records, new_record
from raftlog.replication.partition import Partition
from raftlog.schemas.decisions import (
    Change,
    Registration,
    decide_registration,
    decide_subject_deletion,
)
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten, decode, encode
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.schema import Schema
from raftlog_chaos.checkers.records import read_batches
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.eligible_leaders import Leaving
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop

SETTINGS: Final = {"raftlog.schema.registry.listener": "127.0.0.1:8081"}
SUBJECTS: Final = ("orders-value", "users-value", "users-key")
CHECKED: Final = "checked"
"""A topic with schema validation, whose subjects are never deleted."""
BOTH: Final = TopicConfig(confluent_key_schema_validation=True, confluent_value_schema_validation=True)
NOWHERE: Final = 1_000_000
"""An id that no schema gets."""
TEXTS: Final = 40
CLIENTS: Final = 4
CHECKS: Final = 0.3
"""Probability that a client sends a batch to the checked topic, for the first time after a registration."""
FOREIGN: Final = 0.1
"""Probability that a client writes to the topic itself, as another registry does."""
ANSWER_S: Final = 5.0
"""A client gives a request up after this, virtual seconds."""


class Schemas(Leaving):
    """The stage: a registry on each node, and clients that ask any of them."""

    def __init__(self, loop: SimLoop, *, nodes: int = 3) -> None:
        super().__init__(loop, nodes=nodes, settings=SETTINGS)
        self.stores: dict[Any, SchemaStore] = {}
        """By the node's life."""
        self.answered: list[tuple[str, str, int]] = []
        self.checks: dict[Any, SchemaCheck] = {}
        self.registered: dict[str, int] = {}
        """The last ids that were answered for the subjects of the checked topic."""
        self.deleted = self.unknown = self.foreign = self.accepted = self.refused = 0
        self.stopping = False

    async def begin(self) -> None:
        await super().begin()
        self.pace([2.0] * len(self.producers))
        self.clients = [self.loop.main.start(self._ask_on()) for _ in range(CLIENTS)]
        await self.cluster.until(lambda: len(self.answered) > 3, SERVED_S, "schemas are registered")

    # -- clients -------------------------------------------------------------------------------------------

    async def _ask_on(self) -> None:
        while not self.stopping:
            running = [each for each in self.cluster.running() if each.node and each.node.broker]
            if running:
                await self._ask(self.chance.choice(running))
            await asyncio.sleep(self.a_while(0.0, 0.02, 0.1))

    async def _ask(self, chosen: Any) -> None:
        """Register a schema at a node, or delete a subject; the answer may never come."""
        store = self._store_at(chosen)
        if self.chance.random() < FOREIGN:
            await self._answered(chosen, self._write_as_another(chosen))
            return
        if self.chance.random() < CHECKS:
            await self._check(chosen)
            return
        subject = self.chance.choice(SUBJECTS)
        if self.chance.random() < 0.1:
            permanent = self.chance.random() < 0.5
            self.deleted += (
                await self._answered(chosen, delete(store, subject, permanent=permanent)) is not None
            )
            return
        text = self.some_text("F")
        found = await self._answered(chosen, register(store, subject, text, self.a_while(0.0, 0.01, 0.2)))
        if found is not None:
            self.answered.append((subject, text, found.id))

    async def _check(self, chosen: Any) -> None:
        """Register schemas for keys or values, and send batches with them to a node that may not know them yet."""
        field = self.chance.choice(("key", "value"))
        text = self.some_text("C")
        store = self._store_at(chosen)
        found = await self._answered(chosen, register(store, f"{CHECKED}-{field}", text, 0.0))
        if found is not None:
            self.registered[field] = found.id
        if len(self.registered) < 2:
            return
        ids = dict(self.registered)
        running = [each for each in self.cluster.running() if each.node and each.node.broker]
        if not running:
            return
        receiver = self.chance.choice(running)
        check = self._check_at(receiver)
        wrong = {**ids, self.chance.choice(("key", "value")): NOWHERE}
        for batch, is_known in (((ids, ids), True), ((ids, wrong), False)):
            outcome = await self._answered(receiver, _checked(check, batch))
            if outcome is not None and outcome is not is_known:
                self.history.blame(f"a batch with {batch} was {'accepted' if outcome else 'refused'}")
            self.accepted += outcome is True
            self.refused += outcome is False

    async def _write_as_another(self, chosen: Any) -> None:
        """Write a schema with the next id to the topic, as another registry on a Kafka client does."""
        partition = chosen.node.broker.context.replicas.get(SCHEMAS_TOPIC, 0)
        ids = [each.id for each in _schemas_in(partition, partition.log_end_offset)]
        number = len(ids) + 1
        schema = Schema("AVRO", fixed_text("Theirs", number))
        key, value = encode(SchemaWritten("theirs", number, max(ids, default=0) + 1, schema))
        batch = memoryview(build_batch([new_record(key, value, timestamp=0)]))
        partition.append_produced(batch, acks=-1, now_ms=0, max_timestamp=0)
        self.foreign += 1

    def some_text(self, name: str) -> str:
        """Return one of the texts that clients register."""
        return fixed_text(name, self.chance.randrange(1, TEXTS))

    def _store_at(self, chosen: Any) -> SchemaStore:
        broker = chosen.node.broker
        store = self.stores.get(broker)
        if store is None:
            context = broker.context
            store = self.stores[broker] = SchemaStore(
                context.schema_log(),
                context.env,
                offload=context.env.offload,
                now_ms=context.env.wall_clock_ms,
            )
            chosen.host.start(store.follow())
        return store

    def _check_at(self, chosen: Any) -> SchemaCheck:
        broker = chosen.node.broker
        if broker not in self.checks:
            self.checks[broker] = SchemaCheck(broker.context)
        return self.checks[broker]

    async def _answered(self, chosen: Any, request: Any) -> Any:
        """Return an answer; None if the node refuses, does not lead, or does not answer."""
        asking = chosen.host.start(request)
        await asyncio.wait([asking], timeout=ANSWER_S)
        if not asking.done():
            self.unknown += 1
            asking.cancel()
            return None
        if asking.cancelled() or isinstance(asking.exception(), NotLeading | SchemaError | KafkaError):
            return None
        return asking.result()

    # -- trouble -------------------------------------------------------------------------------------------

    async def round(self) -> None:
        """Crash or hang the leader, or let it go on, and wait until the registry serves again."""
        before = len(self.answered)
        state = self.cluster.state(SCHEMAS_TOPIC, 0)
        if state is not None and state.leader >= 0:
            leader = state.leader
            if self.chance.random() < 0.5:
                self.cluster.crash(leader, power_loss=self.power())
                await asyncio.sleep(self.a_while(0.0, 0.5, 3.0))
                self.cluster.start(leader)
            else:
                self.cluster.pause(leader)
                await asyncio.sleep(self.a_while(0.3, 1.5, 4.0))
                self.cluster.resume(leader)
        await self.cluster.until(lambda: len(self.answered) > before, SERVED_S, "the registry answers again")
        await asyncio.sleep(self.a_while(0.0, 0.2, 1.0))

    # -- the end -------------------------------------------------------------------------------------------

    async def storm(self, seconds: float) -> None:
        """Repeat rounds for some virtual seconds, end the clients, and wait until the cluster is whole."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await self.round()
        self.stopping = True
        await asyncio.wait(self.clients)
        await self.whole()

    def check(self) -> None:
        """Report an id with two schemas, and an answer that is not in the log."""
        found = self.cluster.leader_replica(SCHEMAS_TOPIC, 0)
        assert found is not None, "all is whole"
        texts: dict[int, str] = {}
        written = set()
        for record in _schemas_in(found[1], found[1].high_watermark):
            written.add((record.subject, record.schema.text, record.id))
            if texts.setdefault(record.id, record.schema.text) != record.schema.text:
                self.history.blame(f"id {record.id} is of two schemas")
        for answer in self.answered:
            if answer not in written:
                self.history.blame(f"{answer} was answered, and is not in the log")


def fixed_text(name: str, size: int) -> str:
    """Return the text of a small Avro schema."""
    return f'{{"type":"fixed","name":"{name}","size":{size}}}'


def _schemas_in(partition: Partition, end_offset: int) -> Iterator[SchemaWritten]:
    """Yield the schemas that were written to a replica, in their order."""
    view = memoryview(read_batches(partition.log, end_offset))
    for position, header in iter_headers(view):
        for each in iter_records(view[position : position + header.length]):
            record = decode(each.key, each.value)
            if isinstance(record, SchemaWritten):
                yield record


async def _checked(check: SchemaCheck, records: tuple[dict[str, int], ...]) -> bool:
    """Return whether a batch with these schemas is accepted. Raises KafkaError if that is not known."""
    framed = [{field: b"\0" + each[field].to_bytes(4, "big") for field in each} for each in records]
    batch = memoryview(build_batch([new_record(each["key"], each["value"], timestamp=0) for each in framed]))
    try:
        await check.check(CHECKED, BOTH, batch, 0, memory=Account("batches", 1 << 20))
    except InvalidRecord:
        return False
    return True


async def register(store: SchemaStore, subject: str, text: str, takes_s: float) -> Any:
    """Register a schema; `takes_s`: how long a thread compares it."""
    schema = Schema("AVRO", text)
    wanted = Registration(subject, schema, identity(schema))

    async def decide(state: RegistryState) -> Change:
        await asyncio.sleep(takes_s)
        return decide_registration(state, wanted)

    await store.begin()
    return await store.change(decide)


async def delete(store: SchemaStore, subject: str, *, permanent: bool) -> Any:
    """Delete a subject."""

    async def decide(state: RegistryState) -> Change:
        return decide_subject_deletion(state, subject, permanent=permanent)

    return await store.change(decide)


async def schemas(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Register schemas for some virtual seconds of trouble. Raises AssertionError."""
    scene = Schemas(loop)
    await scene.begin()
    await scene.storm(seconds)
    scene.check()
    report = await scene.end()
    seen = {"registration": len(scene.answered), "deletion": scene.deleted, "unknown outcome": scene.unknown}
    seen |= {"record of another registry": scene.foreign}
    seen |= {"accepted batch": scene.accepted, "refused batch": scene.refused}
    return replace(report, faults={**report.faults, **seen})
