"""Registries on three nodes over one replicated log with moving leaders: no id is given to two schemas.

The log is a model. A leader's unreplicated tail is lost with its leadership. A deposed leader may take itself for the
leader for a while, and append in vain.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from raftlog.admin.schema_registry.store import NotLeading, SchemaStore
from raftlog.base.errors import CorruptMessage, KafkaStorageError, NotEnoughReplicas, NotLeaderOrFollower
from raftlog.base.schema_log import SchemaLogBounds
from raftlog.base.turns import TurnQueue
from raftlog.base.types import NO_EPOCH
from raftlog.records.batch import build_batch, new_record
from raftlog.schemas import replay
from raftlog.schemas.decisions import Change, Registration, decide_registration, decide_subject_deletion
from raftlog.schemas.errors import STORE_FAILED, STORE_TIMED_OUT, SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten, decode, encode
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.schema import Schema
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.loop import START_S

KeyValue = tuple[bytes, bytes | None]
NODES = range(3)
TOPIC_ID = UUID(int=5)
SUBJECTS, TEXTS = ("a", "b", "c"), 12


class Replica:
    """One node's replica; the port of its registry. `epoch`: that in which it takes itself for the leader."""

    def __init__(self, *, checks: bool = True) -> None:
        self.log: list[tuple[int, KeyValue]] = []
        """(leader epoch, record)."""
        self.high_watermark = 0
        self.epoch = NO_EPOCH
        self.topic_id: UUID | None = TOPIC_ID
        self.error: Exception | None = None
        self._checks = checks
        self._moved = asyncio.Event()

    def exists(self) -> bool:
        return True

    async def create(self) -> None:
        raise AssertionError("it exists")

    def bounds(self) -> SchemaLogBounds:
        return SchemaLogBounds(self.topic_id, 0, self.high_watermark, len(self.log), self.epoch)

    async def read(self, offset: int) -> bytes:
        batches = [
            build_batch([new_record(*record, timestamp=0)], base_offset=at, leader_epoch=epoch)
            for at, (epoch, record) in enumerate(self.log[: self.high_watermark])
        ]
        return b"".join(batches[offset:])

    def append(self, records: tuple[KeyValue, ...], *, at: int, leader_epoch: int, now_ms: int) -> int:
        if self.error is not None:
            raise self.error
        if self._checks and (leader_epoch != self.epoch or at != len(self.log)):
            raise NotLeaderOrFollower
        self.log += [(leader_epoch, each) for each in records]
        return len(self.log)

    async def changed(self) -> None:
        await self._moved.wait()
        self._moved.clear()

    def move(self, **to: Any) -> None:
        for name, value in to.items():
            setattr(self, name, value)
        self._moved.set()

    def close(self) -> None:
        pass


class World:
    """The partition: its leader, its ISR, and deposed leaders."""

    def __init__(self, chance: random.Random, *, checks: bool) -> None:
        self.chance = chance
        self.replicas = [Replica(checks=checks) for _ in NODES]
        self.epoch, self.leader = 0, 0
        self.isr = set(NODES)
        self.replicas[0].move(epoch=0)

    def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.9:
            self.replicate(self.chance.choice(sorted(self.isr)))
        elif kind < 0.94:
            self.elect(self.chance.choice(sorted(self.isr)))
        elif kind < 0.97:
            self.tell(self.chance.choice(NODES))
        else:
            self.write_as_another()

    def write_as_another(self) -> None:
        """Let another registry, on a Kafka client, write to the topic."""
        log = self.replicas[self.leader].log
        ids = [found.id for _, record in log if isinstance(found := decode(*record), SchemaWritten)]
        written = SchemaWritten(
            "theirs", len(log) + 1, max(ids, default=0) + 1, Schema("AVRO", f'"{len(log)}"')
        )
        log.append((self.epoch, encode(written)))

    def replicate(self, node: int) -> None:
        """Copy the leader's log to a follower; the high watermark is the shortest log in sync."""
        leader, follower = self.replicas[self.leader], self.replicas[node]
        if node != self.leader:
            self.tell(node)
            follower.log = list(leader.log)
        tail = min(_common(leader.log, self.replicas[each].log) for each in self.isr)
        leader.move(high_watermark=max(leader.high_watermark, tail))
        if node != self.leader:
            follower.move(high_watermark=leader.high_watermark)

    def elect(self, node: int) -> None:
        """Let another member of the ISR lead; the former leader may not know yet."""
        former, self.leader, self.epoch = self.leader, node, self.epoch + 1
        self.isr = {node, *self.chance.sample(NODES, 2)} if self.chance.random() < 0.5 else set(NODES)
        for each in self.isr - {node}:
            if each != former or self.chance.random() < 0.5:
                self.replicate(each)
        self.isr = {
            each
            for each in self.isr
            if _common(self.replicas[node].log, self.replicas[each].log) >= self.replicas[node].high_watermark
        } | {node}
        self.replicas[node].move(epoch=self.epoch)

    def tell(self, node: int) -> None:
        """Let a deposed leader know that it leads no more."""
        if node != self.leader:
            self.replicas[node].move(epoch=NO_EPOCH)


def _common(one: list[Any], other: list[Any]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and mine != theirs:
            break
        count += 1
    return count


class Here:
    turns = TurnQueue()


def store_of(replica: Replica) -> SchemaStore:
    async def offload(call: Callable[[], Any]) -> Any:
        return call()

    return SchemaStore(replica, Here(), offload=offload, now_ms=lambda: 0.0)  # type: ignore[arg-type]


async def register(store: SchemaStore, subject: str, text: str, *, takes_s: float = 0.0) -> Any:
    schema = Schema("AVRO", text)
    wanted = Registration(subject, schema, identity(schema))

    async def decide(state: RegistryState) -> Change:
        await asyncio.sleep(takes_s)  # as if a thread compared it with other versions
        return decide_registration(state, wanted)

    return await store.change(decide)


async def delete(store: SchemaStore, subject: str, *, permanent: bool) -> Any:
    async def decide(state: RegistryState) -> Change:
        return decide_subject_deletion(state, subject, permanent=permanent)

    return await store.change(decide)


def run(seed: int, *, checks: bool = True) -> tuple[int, int]:
    """Return how many registrations were answered, and how many leaders there were."""
    chance = random.Random(seed)
    answered: list[tuple[str, str, int]] = []

    async def work(stores: list[SchemaStore]) -> None:
        for _ in range(20):
            store, subject = chance.choice(stores), chance.choice(SUBJECTS)
            text = f'{{"type":"fixed","name":"F","size":{chance.randrange(1, TEXTS)}}}'
            try:
                if chance.random() < 0.1:
                    await delete(store, subject, permanent=chance.random() < 0.5)
                else:
                    found = await register(store, subject, text, takes_s=chance.random() / 50)
                    answered.append((subject, text, found.id))
            except (NotLeading, SchemaError):
                pass
            await asyncio.sleep(chance.random() / 100)

    async def program(loop: SimLoop) -> World:
        world = World(chance, checks=checks)
        stores = [store_of(each) for each in world.replicas]
        following = [loop.create_task(each.follow()) for each in stores]
        workers = [loop.create_task(work(stores)) for _ in range(4)]
        while not all(each.done() for each in workers):
            world.step()
            await asyncio.sleep(chance.random() / 500)
        for each in (*workers, *following):
            each.cancel()
        for worker in workers:
            assert worker.cancelled() or worker.exception() is None, worker.exception()
        return world

    world = simulate(program, seed=seed).result
    check(world, answered)
    return len(answered), world.epoch + 1


def is_lost_or_double(error: AssertionError) -> bool:
    """Whether `check` noticed something, and not another assertion."""
    return "one id for two schemas" in str(error) or "was answered" in str(error)


def check(world: World, answered: list[tuple[str, str, int]]) -> None:
    """One id is one schema, in the log and in all answers; what was answered is in the log."""
    leader = world.replicas[world.leader]
    schemas: dict[int, str] = {}
    written = set()
    for _, (key, value) in leader.log[: leader.high_watermark]:
        record = decode(key, value)
        if isinstance(record, SchemaWritten):
            written.add((record.subject, record.schema.text, record.id))
            assert schemas.setdefault(record.id, record.schema.text) == record.schema.text, (
                "one id for two schemas"
            )
    for each in answered:
        assert schemas.get(each[2]) == each[1], f"{each} was answered, and the log has {schemas.get(each[2])}"
        assert each in written


@pytest.mark.parametrize("seed", range(30))
def test_no_id_is_ever_given_to_two_schemas(seed: int) -> None:
    """Leaders change, lose what they had not replicated, and come back."""
    answered, leaders = run(seed)
    assert answered > 0
    assert leaders > 3


def test_the_model_finds_an_append_that_does_not_look() -> None:
    """A planted bug: a leader that appends wherever its log ends, in whatever epoch."""
    with pytest.raises(AssertionError, check=is_lost_or_double):
        for seed in range(30):
            run(seed, checks=False)


def alone(scenario: Callable[[Replica, SchemaStore], Any]) -> None:
    """Play a scenario of one node that leads."""

    async def program(loop: SimLoop) -> None:
        replica = Replica()
        replica.move(epoch=1)
        store = store_of(replica)
        following = loop.create_task(store.follow())
        await scenario(replica, store)
        following.cancel()

    simulate(program)


async def settled() -> None:
    await asyncio.sleep(0.01)


def test_an_answer_waits_for_the_commit() -> None:
    """A registration that a later leader may not have is neither answered nor read."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        waiting = asyncio.ensure_future(register(store, "a", '"int"'))
        await settled()
        assert not waiting.done()
        assert len(replica.log) == 1
        assert not store.state.subjects
        replica.move(high_watermark=1)
        assert (await waiting).id == 1

    alone(scenario)


def test_a_new_leader_answers_only_with_its_whole_log() -> None:
    """Its high watermark may lie below what its predecessor has answered."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        waiting = asyncio.ensure_future(register(store, "a", '"int"'))
        await settled()
        replica.move(epoch=2)
        with pytest.raises(NotLeading, check=lambda error: error.is_uncertain):
            await waiting
        asking = asyncio.ensure_future(store.current())
        await settled()
        assert not asking.done()
        replica.move(high_watermark=1)
        assert "a" in (await asking).subjects

    alone(scenario)


def test_another_writers_record_has_the_decision_made_again() -> None:
    """A client, or another registry, wrote to the topic: its schema has the id that was about to be given."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        foreign = (
            b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
            b'{"subject":"b","version":1,"id":1,"schema":"\\"long\\"","deleted":false}',
        )
        waiting = asyncio.ensure_future(register(store, "a", '"int"'))
        await asyncio.sleep(0)
        replica.log.append((1, foreign))
        replica.move(high_watermark=1)
        await settled()
        replica.move(high_watermark=2)
        assert (await waiting).id == 2

    alone(scenario)


def test_a_change_does_not_wait_for_records_that_the_log_lost() -> None:
    """Another writer's record was lost with the lead, which this node has again in a later epoch."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        waiting = asyncio.ensure_future(register(store, "a", '"int"'))
        await asyncio.sleep(0)
        replica.log.append((1, schema_record('"lost"')))
        await settled()
        assert not waiting.done()
        replica.move(epoch=3, log=[])
        await settled()
        replica.move(high_watermark=1)
        assert (await waiting).id == 1
        assert asyncio.get_running_loop().time() < START_S + 1.0

    alone(scenario)


def test_a_store_that_makes_no_progress_says_so() -> None:
    """50002 after ten seconds, and 50001 at once if too few replicas are in sync."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        replica.error = NotEnoughReplicas()
        with pytest.raises(SchemaError, check=lambda error: error.code == STORE_FAILED):
            await register(store, "a", '"int"')
        replica.error = None
        with pytest.raises(SchemaError, check=lambda error: error.code == STORE_TIMED_OUT):
            await register(store, "a", '"int"')
        replica.move(high_watermark=1)
        assert (await register(store, "a", '"int"')).id == 1

    alone(scenario)


def test_a_log_that_was_truncated_and_has_grown_again_is_read_anew() -> None:
    """After an unclean election; the store looks when the log is as long as before."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        replica.move(log=[(1, schema_record('"int"')), (1, schema_record('"lost"', 2))], high_watermark=2)
        await settled()
        assert sorted(store.state.ids) == [1, 2]
        replica.move(log=[replica.log[0], (2, schema_record('"long"', 3))])
        await settled()
        assert sorted(store.state.ids) == [1, 3]

    alone(scenario)


def test_a_topic_that_was_made_anew_is_read_anew() -> None:
    """It was deleted, and what it had with it."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        waiting = asyncio.ensure_future(register(store, "a", '"int"'))
        await settled()
        replica.move(high_watermark=1)
        await waiting
        replica.move(topic_id=UUID(int=6), log=[], high_watermark=0, epoch=1)
        assert (await store.current()).subjects == {}

    alone(scenario)


def schema_record(text: str, version: int = 1) -> KeyValue:
    """A record of another registry."""
    return encode(SchemaWritten("theirs", version, version, Schema("AVRO", text)))


def test_a_record_that_cannot_be_read_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails over it, the records after it are applied, on every node."""

    def identify(schema: Schema) -> bytes:
        assert schema.text != "odd"
        return identity(schema)

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        replica.log += [(1, schema_record("odd")), (1, schema_record('"int"', 2))]
        replica.move(high_watermark=2)
        assert list((await store.current()).subjects["theirs"]) == [2]

    monkeypatch.setattr(replay, "identity", identify)
    alone(scenario)


@pytest.mark.parametrize(
    "text", ['{"type":["null","string"],"doc":"x"}', '{"type":"string","doc":"\\ud800"}']
)
def test_odd_schemas_of_others_are_kept_as_they_are(text: str) -> None:
    """A list as a type, and half of a surrogate pair: another registry took them."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        replica.log.append((1, schema_record(text)))
        replica.move(high_watermark=1)
        assert (await store.current()).ids[1].schema.text == text

    alone(scenario)


@pytest.mark.parametrize(
    ("failure", "level"),
    [
        (ValueError("once"), "error"),
        (OSError("once"), "error"),
        (KafkaStorageError(), "error"),
        (CorruptMessage(), "error"),
        (NotLeaderOrFollower(), "warning"),
    ],
)
def test_the_store_is_followed_again_after_a_failure(failure: Exception, level: str) -> None:
    """No failure ends the registry of a node silently. A failure that passes after a start is a warning."""

    async def scenario(replica: Replica, store: SchemaStore) -> None:
        failures = [failure]
        read = replica.read

        async def read_later(offset: int) -> bytes:
            if failures:
                raise failures.pop()
            return await read(offset)

        replica.read = read_later  # type: ignore[method-assign]
        replica.log.append((1, schema_record('"int"')))
        replica.move(high_watermark=1)
        assert list((await store.current()).ids) == [1]
        assert not failures

    with capture_logs() as logs:
        alone(scenario)
    assert [each["log_level"] for each in logs] == [level]
