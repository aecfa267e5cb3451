"""The records of `_schemas`, in the format of Confluent's registry: a key and a value of JSON each.

Other registries can take the topic over, and this one theirs. So fields have their order, unknown fields are ignored,
and unknown records are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from raftlog.schemas.schema import KINDS, Kind, Reference, Schema

KeyValue = tuple[bytes, bytes | None]
MAGIC_OF_SCHEMAS: Final = 1
MAGIC: Final = 0


class SchemaWritten(NamedTuple):
    """A version of a subject, written or soft deleted."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False


class SchemaRemoved(NamedTuple):
    """A version that was deleted permanently."""

    subject: str
    version: int


class SubjectDeleted(NamedTuple):
    """A subject that was soft deleted, up to `version`."""

    subject: str
    version: int


class SubjectCleared(NamedTuple):
    """A subject that was removed with all its versions."""

    subject: str


class ConfigWritten(NamedTuple):
    """The config of a subject, or of all (None); an empty config was removed."""

    subject: str | None
    config: Mapping[str, Any]


class ModeWritten(NamedTuple):
    """The mode of a subject, or of all (None); "" was removed."""

    subject: str | None
    mode: str


class IdsKept(NamedTuple):
    """The highest id ever given. Without this the id of a permanently deleted schema would be given again.

    It is stored as the value of a NOOP record. Confluent's registry ignores the value of such a record.
    """

    highest_id: int


StoreRecord = (
    SchemaWritten | SchemaRemoved | SubjectDeleted | SubjectCleared | ConfigWritten | ModeWritten | IdsKept
)


class _Key(msgspec.Struct):
    keytype: Literal["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP"]
    subject: str | None = None
    version: int = 0


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _SchemaValue(msgspec.Struct, omit_defaults=True):
    id: int
    schema: str
    subject: str = ""
    version: int = 0
    schemaType: str | None = None
    references: list[_Reference] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None
    deleted: bool = False


class _Versioned(msgspec.Struct):
    version: int


class _IdsValue(msgspec.Struct):
    highestId: int = 0


class _ModeValue(msgspec.Struct):
    mode: str


def encode(record: StoreRecord) -> KeyValue:
    """Return the key and the value of a record."""
    match record:
        case SchemaWritten(subject, version):
            return _key("SCHEMA", subject=subject, version=version), _json(_schema_value(record))
        case SchemaRemoved(subject, version):
            return _key("SCHEMA", subject=subject, version=version), None
        case SubjectDeleted(subject, version):
            value = _json({"subject": subject, "version": version})
            return _key("DELETE_SUBJECT", subject=subject), value
        case SubjectCleared(subject):
            return _key("CLEAR_SUBJECT", subject=subject), _json({"subject": subject})
        case ConfigWritten(subject, config):
            return _key("CONFIG", subject=subject), _json(config) if config else None
        case ModeWritten(subject, mode):
            return _key("MODE", subject=subject), _json({"mode": mode}) if mode else None
        case IdsKept(highest_id):
            return _json({"keytype": "NOOP", "magic": MAGIC}), _json({"highestId": highest_id})


def _key(keytype: str, *, subject: str | None, version: int | None = None) -> bytes:
    fields: dict[str, Any] = {"keytype": keytype, "subject": subject}
    if version is not None:
        fields["version"] = version
    return _json({**fields, "magic": MAGIC if version is None else MAGIC_OF_SCHEMAS})


def _schema_value(record: SchemaWritten) -> dict[str, Any]:
    schema = record.schema
    value: dict[str, Any] = {"subject": record.subject, "version": record.version, "id": record.id}
    if schema.kind != "AVRO":
        value["schemaType"] = schema.kind
    if schema.references:
        value["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        value["metadata"] = schema.metadata
    if schema.rule_set is not None:
        value["ruleSet"] = schema.rule_set
    return {**value, "schema": schema.text, "deleted": record.deleted}


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def decode(key: bytes | None, value: bytes | None) -> StoreRecord | None:
    """Return a record; None for records that no registry of this kind writes or needs."""
    try:
        found = msgspec.json.decode(key or b"", type=_Key)
        return _of_key(found, value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _of_key(key: _Key, value: bytes | None) -> StoreRecord | None:
    subject = key.subject
    if key.keytype == "NOOP":
        kept = msgspec.json.decode(value, type=_IdsValue).highestId if value else 0
        return IdsKept(kept) if kept > 0 else None
    if key.keytype == "CONFIG":
        return ConfigWritten(subject, msgspec.json.decode(value, type=dict[str, Any]) if value else {})
    if key.keytype == "MODE":
        return ModeWritten(subject, msgspec.json.decode(value, type=_ModeValue).mode if value else "")
    if subject is None:
        return None
    if key.keytype == "SCHEMA":
        return SchemaRemoved(subject, key.version) if value is None else _of_schema(key, value)
    if value is None:
        return None
    if key.keytype == "DELETE_SUBJECT":
        return SubjectDeleted(subject, msgspec.json.decode(value, type=_Versioned).version)
    return SubjectCleared(subject)


def _of_schema(key: _Key, value: bytes) -> SchemaWritten | None:
    found = msgspec.json.decode(value, type=_SchemaValue)
    kind: Kind | None = next((each for each in KINDS if each == (found.schemaType or "AVRO")), None)
    if kind is None or key.subject is None or key.version < 1 or found.id < 0:
        return None
    references = tuple(Reference(each.name, each.subject, each.version) for each in found.references or ())
    schema = Schema(kind, found.schema, references, found.metadata, found.ruleSet)
    return SchemaWritten(key.subject, key.version, found.id, schema, found.deleted)
