"""Checks produced records by the schemas of the registry: Confluent's topic configs `confluent.*.schema.validation`.

A record refers to its schema by an id before the data, or by a guid in a header. The registry's log is read on only for
an unknown id or subject. A record is refused for good only if that succeeds, and the schema is still unknown. Without
the topic `_schemas` there are no schemas, so all records are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raftlog.base.errors import InvalidRecord
from raftlog.base.turns import each_part
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.broker.coordination.schema_reader import SchemaReader
from raftlog.records.validation import schema_fields
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.produced import (
    AvroText,
    Check,
    ParsedSchemas,
    PayloadCheck,
    ProducedBatch,
    SchemaFaults,
    SchemaUse,
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

MAX_NAMED_CHARS: Final = 1024 * 1024
"""Characters of a batch's schemas that are parsed for the names of their records. Protobuf takes 25 µs for each."""
SCHEMAS_AT_ONCE: Final = 10
"""Schemas that are looked up between two turns: an id may be registered under very many subjects."""
TOPIC_NAME: Final = "TopicNameStrategy"


class SchemaCheck:
    """A broker's check of the batches that were sent to it."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._reader = SchemaReader(broker)
        self._passing = asyncio.Lock()
        """One batch is in memory, uncompressed. Nothing waits for another broker meanwhile."""
        self._parsed = ParsedSchemas()

    async def check(
        self, topic: str, config: TopicConfig, records: memoryview, plain_bytes: int, memory: Account
    ) -> None:
        """Raise InvalidRecord, with the index of each wrong record, unless a batch fits the topic's configs.

        The batch was validated. `plain_bytes`: its decompressed bytes, 0 if it is not compressed; `memory` counts them.
        Raise LeaderNotAvailable if the schemas cannot be read.
        """
        batch = ProducedBatch(records, schema_fields(config), plain_bytes or len(records))
        uses = await self._pass(find_uses(batch), memory, batch.plain_bytes)
        faults = await self._faults(topic, config, uses.schemas)
        if faults:
            await self._reader.read_on()  # a schema, or its subject, may be new
            faults = await self._faults(topic, config, uses.schemas)
        check: Check = SchemaFaults(faults)
        if not faults and not uses.is_plain:
            if not config.schema_payload_validation:
                return
            check = await self._payload_check(uses.schemas)
        errors = await self._pass(record_errors(batch, check), memory, batch.plain_bytes)
        if errors:
            error = InvalidRecord(f"record {errors[0][0]} of the batch: {errors[0][1]}")
            error.record_errors = tuple(errors)
            raise error

    async def _pass(self, steps: Generator[None, None, Result], memory: Account, size: int) -> Result:
        """Run a pass over a batch in a thread, slice by slice. It takes `size` bytes of memory meanwhile."""
        async with self._passing:
            memory.acquire(size)
            try:
                return await self._run(steps)
            finally:
                memory.release(size)

    async def _run(self, steps: Generator[None, None, Result]) -> Result:
        while True:
            is_done, result = await self._broker.env.offload(partial(_advance, steps))
            if is_done:
                found: Result = result
                return found

    def _find(self, use: SchemaUse) -> tuple[int, Identified] | None:
        state = self._reader.state
        schema_id = state.by_identity.get(use.schema) if isinstance(use.schema, bytes) else use.schema
        found = None if schema_id is None else state.ids.get(schema_id)
        return None if schema_id is None or found is None else (schema_id, found)

    async def _faults(
        self, topic: str, config: TopicConfig, uses: tuple[SchemaUse, ...]
    ) -> dict[SchemaUse, str]:
        """Return the schemas that records of the topic may not refer to, each with the reason."""
        strategies = {field: _strategy(config, field) for field in schema_fields(config)}
        named = {
            found[1].identity: found[1].schema
            for use in uses
            if strategies[use.field] != TOPIC_NAME and (found := self._find(use)) is not None
        }
        if sum(len(each.text) for each in named.values()) > MAX_NAMED_CHARS:
            raise InvalidRecord(f"the schemas of the batch have more than {MAX_NAMED_CHARS} characters")
        names = await self._run(_names(named)) if named else {}

        def reason(use: SchemaUse) -> str:
            found = self._find(use)
            if found is None:
                return f"has the schema id {_shown(use)}, which {self._registry()} does not have"
            of_record = names.get(found[1].identity, frozenset())
            if isinstance(of_record, str):
                return f"cannot be checked: {of_record}"
            wanted = _subjects(strategies[use.field], topic, use.field, of_record)
            if any(subject in wanted for subject, _ in self._reader.state.places.get(found[0], ())):
                return ""
            under = " or ".join(sorted(wanted)[:3]) or "a name of its own"
            return f"has the schema id {_shown(use)}, which is not registered under {under}"

        reasons = await each_part(self._broker.env, uses, reason, at_once=SCHEMAS_AT_ONCE)
        return {use: found for use, found in zip(uses, reasons, strict=True) if found}

    def _registry(self) -> str:
        if SCHEMAS_TOPIC in self._broker.image().topics:
            return "the registry"
        return f"a cluster without a schema registry (there is no topic {SCHEMAS_TOPIC})"

    async def _payload_check(self, uses: tuple[SchemaUse, ...]) -> PayloadCheck:
        """Return the check of a batch's Avro data."""

        def text_of(use: SchemaUse) -> AvroText | None:
            found = self._find(use)
            if found is None or found[1].schema.kind != "AVRO":
                return None
            schema = found[1].schema
            try:
                return AvroText(schema.text, self._reader.state.named(schema.references))
            except SchemaError as error:
                raise InvalidRecord(f"the schema {_shown(use)} cannot be read: {error}") from None

        texts = await each_part(self._broker.env, uses, text_of, at_once=SCHEMAS_AT_ONCE)
        found = {use: text for use, text in zip(uses, texts, strict=True) if text is not None}
        return PayloadCheck(found, self._parsed)


def _advance(steps: Generator[None, None, Any]) -> tuple[bool, Any]:
    """Run the next slice; return whether it was the last, and then the result."""
    try:
        next(steps)
    except StopIteration as end:
        return True, end.value
    return False, None


def _names(schemas: dict[bytes, Schema]) -> Generator[None, None, dict[bytes, frozenset[str] | str]]:
    """Return the names of each schema's records by its identity, or why they are not known."""
    found: dict[bytes, frozenset[str] | str] = {}
    for identity, schema in schemas.items():
        try:
            found[identity] = names_of(schema)
        except SchemaError as error:
            found[identity] = str(error)
        yield
    return found


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
