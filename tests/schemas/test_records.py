"""The records of `_schemas`: Confluent's format, so that one registry can take another's topic over."""

from __future__ import annotations

import pytest

from raftlog.schemas.records import (
    ConfigWritten,
    IdsKept,
    ModeWritten,
    SchemaRemoved,
    SchemaWritten,
    StoreRecord,
    SubjectCleared,
    SubjectDeleted,
    decode,
    encode,
)
from raftlog.schemas.schema import Reference, Schema

AVRO = Schema("AVRO", '"string"')
JSON = Schema(
    "JSON", "{}", (Reference("a.json", "a", 2),), {"properties": {"owner": "me"}}, {"domainRules": []}
)

RECORDS: list[tuple[StoreRecord, bytes, bytes | None]] = [
    (
        SchemaWritten("orders-value", 3, 7, AVRO),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}',
        b'{"subject":"orders-value","version":3,"id":7,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        SchemaWritten("s", 1, 8, JSON, deleted=True),
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"subject":"s","version":1,"id":8,"schemaType":"JSON",'
        b'"references":[{"name":"a.json","subject":"a","version":2}],'
        b'"metadata":{"properties":{"owner":"me"}},"ruleSet":{"domainRules":[]},"schema":"{}","deleted":true}',
    ),
    (SchemaRemoved("s", 1), b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
    (
        SubjectDeleted("s", 4),
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":4}',
    ),
    (SubjectCleared("s"), b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', b'{"subject":"s"}'),
    (
        ConfigWritten(None, {"compatibilityLevel": "FULL"}),
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    ),
    (ConfigWritten("s", {}), b'{"keytype":"CONFIG","subject":"s","magic":0}', None),
    (
        ModeWritten("s", "READONLY"),
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"mode":"READONLY"}',
    ),
    (ModeWritten(None, ""), b'{"keytype":"MODE","subject":null,"magic":0}', None),
    (IdsKept(12), b'{"keytype":"NOOP","magic":0}', b'{"highestId":12}'),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_a_record_has_confluents_bytes(record: StoreRecord, key: bytes, value: bytes | None) -> None:
    """The order of a key's fields counts: compaction compares the bytes."""
    assert encode(record) == (key, value)
    assert decode(key, value) == record


def test_a_record_of_another_registry_is_read() -> None:
    """Fields that this registry does not know, fields in another order, and `schemaType` of Avro."""
    key = b'{"magic":1,"version":2,"subject":"s","keytype":"SCHEMA","tenant":"x"}'
    value = (
        b'{"subject":"s","version":2,"id":5,"md5":"Zm9v","schema":"\\"int\\"","schemaType":"AVRO","deleted":false,'
        b'"schemaTags":null,"offset":7,"ts":1}'
    )
    assert decode(key, value) == SchemaWritten("s", 2, 5, Schema("AVRO", '"int"'))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"no json", b"{}"),
        (b"[" * 100_000, b"{}"),
        (b"\xff", b"{}"),
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONTEXT","context":"c","magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":0,"magic":1}', b'{"id":1,"schema":"1"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":-1,"schema":"1"}'),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"id":1,"schema":"1","schemaType":"XML"}',
        ),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"no json"),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', None),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b"{}"),
    ],
)
def test_what_is_no_record_of_a_registry_is_skipped(key: bytes | None, value: bytes | None) -> None:
    """Anyone with the right may write to the topic: one bad record must not end the registry."""
    assert decode(key, value) is None
