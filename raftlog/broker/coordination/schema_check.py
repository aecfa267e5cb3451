"""Checks produced records by the schemas of the registry: Confluent's topic configs `confluent.*.schema.validation`.

A record refers to its schema by an id before the data, or by a guid in a header. The check knows the schemas that it
has read. It reads on in `_schemas` only when it meets an unknown id or subject. It reads this broker's replica if it
leads, otherwise the leader's. So a schema that was registered before the record was sent is known.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.errors import InvalidRecord, KafkaError, LeaderNotAvailable, from_code
from raftlog.base.types import NO_BROKER, NO_EPOCH, SCHEMAS_TOPIC
from raftlog.broker.coordination.schema_log import INDEX, READ_BYTES, SchemaLog
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import VERSIONS
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import Record, iter_records
from raftlog.schemas.avro_payload import NotOfSchema, check_payload
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import demand_package, format_of
from raftlog.schemas.registry_state import Identified, RegistryState
from raftlog.schemas.replay import decoded
from raftlog.schemas.subjects import names_of

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig
    from raftlog.broker.local_broker import LocalBroker

MAGIC: Final = b"\0"
ID_BYTES: Final = 5
GUID_MAGIC: Final = b"\x01"
GUID_BYTES: Final = 17
FETCH_S: Final = 5.0
REFRESH_EACH_S: Final = 0.1
"""Pause between two readings of what is new: unknown ids of a producer are not a load for the leader."""
MOST_ERRORS: Final = 20
PARSED_SCHEMAS: Final = 100


class Datum(NamedTuple):
    """A key or a value of a record, and the reference to its schema: an id, or a guid of 16 bytes."""

    record: int
    """The record's index in its batch."""
    field: str
    schema: int | bytes
    payload: bytes


class SchemaCheck:
    """The schemas as this broker has read them so far."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._log = SchemaLog(broker)
        self._state = RegistryState()
        self._topic_id: Any = None
        self._offset = 0
        self._reading = asyncio.Lock()
        self._read_at = -REFRESH_EACH_S
        self._parsed: OrderedDict[bytes, Any] = OrderedDict()

    async def check(self, topic: str, config: TopicConfig, records: memoryview) -> None:
        """Raise InvalidRecord, with the index of each wrong record, unless the batch fits the topic's configs."""
        data, errors = await self._broker.env.offload(partial(_data_of, bytes(records), config))
        if any(self._fault(topic, config, each) for each in data):
            await self._read_on()  # the schema, or its subject, may be new
        for each in data:
            reason = self._fault(topic, config, each)
            if reason:
                errors.append((each.record, f"the {each.field} {reason}"))
        if not errors and config.schema_payload_validation:
            errors = await self._payload_errors(data)
        if errors:
            errors = sorted(errors)[:MOST_ERRORS]
            error = InvalidRecord(f"record {errors[0][0]} of the batch: {errors[0][1]}")
            error.record_errors = tuple(errors)
            raise error

    def _find(self, schema: int | bytes) -> Identified | None:
        schema_id = self._state.by_identity.get(schema) if isinstance(schema, bytes) else schema
        return None if schema_id is None else self._state.ids.get(schema_id)

    def _fault(self, topic: str, config: TopicConfig, datum: Datum) -> str:
        """Return why a datum is refused, "" if it is not."""
        found = self._find(datum.schema)
        about = datum.schema.hex() if isinstance(datum.schema, bytes) else str(datum.schema)
        if found is None:
            return f"has the schema id {about}, which the registry does not have"
        strategy = (
            config.confluent_key_subject_name_strategy
            if datum.field == "key"
            else config.confluent_value_subject_name_strategy
        )
        wanted = _subjects(strategy, topic, datum.field, found)
        schema_id = self._state.by_identity.get(found.identity, datum.schema)
        places = self._state.places.get(schema_id, ()) if isinstance(schema_id, int) else ()
        if not any(subject in wanted for subject, _ in places):
            return (
                f"has the schema id {about}, which is not registered under {' or '.join(sorted(wanted)[:3])}"
            )
        return ""

    async def _payload_errors(self, data: Iterable[Datum]) -> list[tuple[int, str]]:
        """Return the records whose Avro data their schemas cannot read."""
        avro = [
            (each, found)
            for each in data
            if (found := self._find(each.schema)) is not None and found.schema.kind == "AVRO"
        ]
        named = {found.identity: self._state.named(found.schema.references) for _, found in avro}
        errors: list[tuple[int, str]] = await self._broker.env.offload(
            lambda: list(_unreadable(avro, named, self._parsed))
        )
        return errors

    # -- reading -------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """Read what is new in `_schemas`. Raises LeaderNotAvailable, which clients retry."""
        asked_at = asyncio.get_running_loop().time()
        async with self._reading:
            if self._read_at > asked_at:
                return  # another batch has read after this one came
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._read_at + REFRESH_EACH_S - loop.time())
            self._read_at = loop.time()
            try:
                await self._read_all()
            except (KafkaError, OSError) as error:
                raise LeaderNotAvailable(f"the schemas of the registry cannot be read: {error}") from None

    async def _read_all(self) -> None:
        topic = self._broker.image().topics.get(SCHEMAS_TOPIC)
        if topic is None:
            self._forget(None)
            return
        if topic.topic_id != self._topic_id:
            self._forget(topic.topic_id)
        while True:
            batches = await self._read(topic.partitions[INDEX].leader)
            if not batches:
                return
            records, end_offset = await self._broker.env.offload(partial(decoded, batches, self._offset))
            for each in records:
                self._state.apply(*each)
            self._offset = end_offset

    def _forget(self, topic_id: Any) -> None:
        self._state, self._offset, self._topic_id = RegistryState(), 0, topic_id

    async def _read(self, leader: int) -> bytes:
        """Return committed batches from the offset on; none at the end."""
        bounds = self._log.bounds()
        if bounds.leader_epoch != NO_EPOCH:
            self._offset = max(self._offset, bounds.log_start_offset)
            return await self._log.read(self._offset) if self._offset < bounds.high_watermark else b""
        if leader in (NO_BROKER, self._broker.config.node_id):
            raise LeaderNotAvailable(f"no broker leads {SCHEMAS_TOPIC}")
        version = VERSIONS[ApiKey.FETCH]
        answer = await self._broker.links.ask(
            leader, ApiKey.FETCH, version, _fetch(version, self._offset), timeout_s=FETCH_S
        )
        (found,) = answer.responses[0].partitions
        if found.error_code:
            raise from_code(found.error_code)
        return bytes(found.records or b"")


def _fetch(version: int, offset: int) -> Any:
    make = request_builders(ApiKey.FETCH, version)
    partition = make.FetchPartition(
        partition=INDEX,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=READ_BYTES,
    )
    return make.FetchRequest(
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=READ_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(make.FetchTopic(topic=SCHEMAS_TOPIC, partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )


def _data_of(batch: bytes, config: TopicConfig) -> tuple[list[Datum], list[tuple[int, str]]]:
    """Return the keys and values to check, and the records that name no schema."""
    data: list[Datum] = []
    errors: list[tuple[int, str]] = []
    fields = [
        name
        for name, is_checked in (
            ("key", config.confluent_key_schema_validation),
            ("value", config.confluent_value_schema_validation),
        )
        if is_checked
    ]
    for index, record in enumerate(iter_records(batch)):
        for field in fields:
            content = record.key if field == "key" else record.value
            if content is None:  # a tombstone, or a record without a key
                continue
            found = _schema_of(record, field, content)
            if found is None:
                errors.append((index, f"the {field} has no schema id"))
            else:
                data.append(Datum(index, field, *found))
    return data, errors


def _schema_of(record: Record, field: str, content: bytes) -> tuple[int | bytes, bytes] | None:
    """Return the reference to a schema, and the data behind it; None without a reference."""
    for name, value in record.headers:
        if name == f"__{field}_schema_id" and value is not None:
            if value[:1] == GUID_MAGIC and len(value) == GUID_BYTES:
                return value[1:], content
            if value[:1] == MAGIC and len(value) == ID_BYTES:
                return int.from_bytes(value[1:], "big"), content
            return None
    if content[:1] == MAGIC and len(content) >= ID_BYTES:
        return int.from_bytes(content[1:ID_BYTES], "big"), content[ID_BYTES:]
    if content[:1] == GUID_MAGIC and len(content) >= GUID_BYTES:
        return content[1:GUID_BYTES], content[GUID_BYTES:]
    return None


def _subjects(strategy: str, topic: str, field: str, found: Identified) -> set[str]:
    """Return the subjects under one of which a schema must be registered, by the topic's strategy."""
    name = strategy.rpartition(".")[2]
    if name == "TopicNameStrategy":
        return {f"{topic}-{field}"}
    names = names_of(found.schema)
    return {f"{topic}-{each}" for each in names} if name == "TopicRecordNameStrategy" else set(names)


def _unreadable(
    data: Iterable[tuple[Datum, Identified]], named: dict[bytes, Any], cache: OrderedDict[bytes, Any]
) -> Iterator[tuple[int, str]]:
    """Yield each record whose data its schema cannot read. It runs in a thread, one at a time."""
    for datum, found in data:
        try:
            parsed = cache.get(found.identity)
            if parsed is None:
                demand_package("AVRO")
                parsed = format_of("AVRO").parse(found.schema.text, named[found.identity])
                cache[found.identity] = parsed
                if len(cache) > PARSED_SCHEMAS:
                    cache.popitem(last=False)
            check_payload(parsed, datum.payload)
        except (NotOfSchema, SchemaError, RecursionError) as error:
            yield datum.record, f"the {datum.field} is no data of its schema: {error}"
