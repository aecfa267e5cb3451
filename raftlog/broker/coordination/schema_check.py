"""Checks produced records by the schemas of the registry: Confluent's topic configs `confluent.*.schema.validation`.

A record refers to its schema by an id before the data, or by a guid in a header. The registry's log is read on only for
an unknown id or subject. A record is refused for good only if that succeeds, and the schema is still unknown. Without
the topic `_schemas` there are no schemas, so all records are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from raftlog.base.errors import InvalidRecord, LeaderNotAvailable, NotEnoughReplicas
from raftlog.base.turns import each_part
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.broker.coordination.schema_reader import SchemaReader
from raftlog.broker.long_work.walked_records import Client
from raftlog.records.validation import schema_fields
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.produced import (
    MAX_SCHEMA_CHARS,
    MAX_SCHEMAS,
    AvroText,
    ParsedSchemas,
    PayloadCheck,
    ProducedBatch,
    SchemaFaults,
    SchemaUse,
    Uses,
    find_uses,
    record_errors,
)
from raftlog.schemas.registry_state import Identified
from raftlog.schemas.schema import Schema
from raftlog.schemas.subjects import names_of

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig
    from raftlog.base.memory import Account
    from raftlog.broker.local_broker import LocalBroker

Result = TypeVar("Result")

PARSED_BYTES: Final = 50
"""Bytes of memory that a parsed schema takes for each of its characters."""
SCHEMAS_AT_ONCE: Final = 10
"""Schemas that are looked up between two turns: an id may be registered under very many subjects."""
TOPIC_NAME: Final = "TopicNameStrategy"


class ThisBroker:
    """The sender of batches that the broker writes itself (`Client`)."""

    is_open = True

    def record_thread_time(self, seconds: float) -> None:
        """Count nothing."""


class Work(NamedTuple):
    """A batch to check, its topic with its config, its sender, and the account of the memory that it takes."""

    topic: str
    config: TopicConfig
    batch: ProducedBatch
    client: Client
    memory: Account


THIS_BROKER: Final = ThisBroker()


class SchemaCheck:
    """A broker's check of the batches that were sent to it."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._reader = SchemaReader(broker)
        self._slicing = asyncio.Lock()
        """One slice runs at a time, and batches take turns: each connection has one batch in work."""
        self._naming = asyncio.Lock()
        """So it is with names of records: a large Protobuf schema takes seconds, in one slice."""
        self._parsed = ParsedSchemas()
        self._names: dict[bytes, frozenset[str] | str] = {}
        """The names of records by the identities of their schemas, or why they are not known."""

    async def check(
        self,
        topic: str,
        config: TopicConfig,
        records: memoryview,
        plain_bytes: int,
        *,
        memory: Account,
        client: Client | None = None,
    ) -> None:
        """Raise InvalidRecord, with the index of each wrong record, unless a batch fits the topic's configs.

        The batch was validated. `plain_bytes`: its decompressed bytes, 0 if it is not compressed; `memory` counts them.
        Raise LeaderNotAvailable if the schemas cannot be read, NotEnoughReplicas without memory, which clients retry,
        and ConnectionAbortedError if the client has gone.
        """
        batch = ProducedBatch(records, schema_fields(config), plain_bytes or len(records))
        work = Work(topic, config, batch, client or THIS_BROKER, memory)
        uses = await self._pass(work, find_uses(batch))
        has_read = bool(uses.schemas) and await self._reader.keep_up()
        may_be_stale, errors = await self._judge(work, uses)
        if may_be_stale and not has_read:
            await self._reader.read_on()  # a schema, or its subject, may be new
            _, errors = await self._judge(work, uses)
        if errors:
            error = InvalidRecord(f"record {errors[0][0]} of the batch: {errors[0][1]}")
            error.record_errors = tuple(errors)
            raise error

    async def _judge(self, work: Work, uses: Uses) -> tuple[bool, list[tuple[int, str]]]:
        """Return the errors of a batch, and whether other schemas might make it right."""
        faults = await self._faults(work, uses.schemas)
        if faults or uses.is_plain:
            return bool(faults), await self._pass(work, record_errors(work.batch, SchemaFaults(faults)))
        if not work.config.schema_payload_validation:
            return False, []
        texts = await self._texts(uses.schemas)
        chars = sum(each.chars for each in set(texts.values()))
        _demand_few(chars)
        check = PayloadCheck(texts, self._parsed)
        errors = await self._pass(work, record_errors(work.batch, check), parsed_chars=chars)
        return bool(errors), errors

    async def _pass(
        self, work: Work, steps: Generator[None, None, Result], *, parsed_chars: int = 0
    ) -> Result:
        """Run a pass over a batch in a thread, slice by slice. It takes memory meanwhile."""
        if work.memory.is_full:
            raise NotEnoughReplicas("the memory for batches that wait to be appended is used up")
        size = work.batch.plain_bytes + PARSED_BYTES * parsed_chars
        work.memory.acquire(size)
        try:
            return await self._run(work.client, steps, self._slicing)
        finally:
            work.memory.release(size)

    async def _run(self, client: Client, steps: Generator[None, None, Result], turns: asyncio.Lock) -> Result:
        clock = asyncio.get_running_loop().time
        while client.is_open:
            async with turns:
                began_at = clock()
                is_done, result = await self._broker.env.offload(partial(_advance, steps))
            client.record_thread_time(clock() - began_at)
            if is_done:
                found: Result = result
                return found
        raise ConnectionAbortedError("the sender of the batch has gone")

    def _find(self, use: SchemaUse) -> tuple[int, Identified] | None:
        state = self._reader.state
        schema_id = state.by_identity.get(use.schema) if isinstance(use.schema, bytes) else use.schema
        found = None if schema_id is None else state.ids.get(schema_id)
        return None if schema_id is None or found is None else (schema_id, found)

    async def _faults(self, work: Work, uses: tuple[SchemaUse, ...]) -> dict[SchemaUse, str]:
        """Return the schemas that records of the topic may not refer to, each with the reason."""
        topic = work.topic
        strategies = {field: _strategy(work.config, field) for field in work.batch.fields}
        await self._note_names(work.client, [each for each in uses if strategies[each.field] != TOPIC_NAME])

        def reason(use: SchemaUse) -> str:
            found = self._find(use)
            if found is None:
                return f"has the schema id {_shown(use)}, which {self._registry()} does not have"
            of_record = self._names.get(found[1].identity, frozenset())
            if isinstance(of_record, str):
                return f"cannot be checked: {of_record}"
            wanted = _subjects(strategies[use.field], topic, use.field, of_record)
            if any(subject in wanted for subject, _ in self._reader.state.places.get(found[0], ())):
                return ""
            under = " or ".join(sorted(wanted)[:3]) or "a name of its own"
            return f"has the schema id {_shown(use)}, which is not registered under {under}"

        reasons = await each_part(self._broker.env, uses, reason, at_once=SCHEMAS_AT_ONCE)
        return {use: found for use, found in zip(uses, reasons, strict=True) if found}

    async def _note_names(self, client: Client, uses: list[SchemaUse]) -> None:
        """Add the names of the records of schemas, where they are not known."""
        known = self._reader.state.by_identity
        if len(self._names) > 2 * len(known) + MAX_SCHEMAS:
            self._names = {each: names for each, names in self._names.items() if each in known}
        missing = {
            found[1].identity: found[1].schema
            for use in uses
            if (found := self._find(use)) is not None and found[1].identity not in self._names
        }
        if missing:
            _demand_few(sum(len(each.text) for each in missing.values()))
            await self._run(client, _add_names(self._names, missing), self._naming)

    def _registry(self) -> str:
        if SCHEMAS_TOPIC in self._broker.image().topics:
            return "the registry"
        return f"a cluster without a schema registry (there is no topic {SCHEMAS_TOPIC})"

    async def _texts(self, uses: tuple[SchemaUse, ...]) -> dict[SchemaUse, AvroText]:
        """Return the Avro schemas among those of a batch."""

        def text_of(use: SchemaUse) -> AvroText | None:
            found = self._find(use)
            if found is None:
                raise LeaderNotAvailable(f"the schema {_shown(use)} was deleted a moment ago")
            schema = found[1].schema
            if schema.kind != "AVRO":
                return None
            try:
                return AvroText(schema.text, self._reader.state.named(schema.references))
            except SchemaError as error:
                raise InvalidRecord(f"the schema {_shown(use)} cannot be read: {error}") from None

        texts = await each_part(self._broker.env, uses, text_of, at_once=SCHEMAS_AT_ONCE)
        return {use: text for use, text in zip(uses, texts, strict=True) if text is not None}


def _demand_few(chars: int) -> None:
    if chars > MAX_SCHEMA_CHARS:
        raise InvalidRecord(
            f"the schemas of the batch have {chars} characters, and at most {MAX_SCHEMA_CHARS} are parsed for it: "
            "send batches of fewer schemas"
        )


def _advance(steps: Generator[None, None, Any]) -> tuple[bool, Any]:
    """Run the next slice; return whether it was the last, and then the result."""
    try:
        next(steps)
    except StopIteration as end:
        return True, end.value
    return False, None


def _add_names(
    names: dict[bytes, frozenset[str] | str], schemas: dict[bytes, Schema]
) -> Generator[None, None, None]:
    """Add the names of each schema's records by its identity, or why they are not known."""
    for identity, schema in schemas.items():
        if identity not in names:  # another batch may have added it
            try:
                names[identity] = names_of(schema)
            except SchemaError as error:
                names[identity] = str(error)
            yield


def _strategy(config: TopicConfig, field: str) -> str:
    name = (
        config.confluent_key_subject_name_strategy
        if field == "key"
        else config.confluent_value_subject_name_strategy
    )
    return name.rpartition(".")[2]


def _subjects(strategy: str, topic: str, field: str, names: frozenset[str]) -> frozenset[str]:
    """Return the subjects under one of which a schema must be registered, by the topic's strategy."""
    if strategy == TOPIC_NAME:
        return frozenset({f"{topic}-{field}"})
    return frozenset(f"{topic}-{each}" for each in names) if strategy == "TopicRecordNameStrategy" else names


def _shown(use: SchemaUse) -> str:
    return use.schema.hex() if isinstance(use.schema, bytes) else str(use.schema)
