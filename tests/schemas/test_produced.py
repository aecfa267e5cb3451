"""Passes over produced batches: references to schemas, and bounds on what a client may cause."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from raftlog.base.errors import InvalidRecord
from raftlog.records.batch import build_batch, new_record
from raftlog.records.compression import ZSTD
from raftlog.schemas import produced
from raftlog.schemas.produced import (
    AvroText,
    ParsedSchemas,
    PayloadCheck,
    ProducedBatch,
    SchemaFaults,
    SchemaUse,
    find_uses,
    record_errors,
)

GUID = bytes(range(16))
NULLS = AvroText('{"type":"array","items":"null"}', ())


def framed(schema_id: int, payload: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def batch_of(*records: Any, fields: tuple[str, ...] = ("key", "value"), codec: int = 0) -> ProducedBatch:
    return ProducedBatch(memoryview(build_batch(list(records), codec=codec)), fields, 1 << 20)


def values(*contents: bytes | None, codec: int = 0) -> ProducedBatch:
    records = [new_record(b"k", each, timestamp=0) for each in contents]
    return batch_of(*records, fields=("value",), codec=codec)


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result of a pass, and its slices."""
    slices = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, slices
        slices += 1


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_references_are_found_before_the_data_and_in_headers(codec: int) -> None:
    """Null fields need none. Of several headers the last counts, as for Confluent's deserializers."""
    headers = (("__key_schema_id", framed(8)), ("__key_schema_id", b"\x01" + GUID), ("other", framed(9)))
    records = [
        new_record(framed(1), framed(2), timestamp=0),
        new_record(None, None, timestamp=0),
        new_record(b"data", b"\x01" + GUID + b"data", timestamp=0, headers=headers),
    ]
    uses = run(find_uses(batch_of(*records, codec=codec)))[0]
    assert uses.schemas == (
        SchemaUse("key", 1),
        SchemaUse("value", 2),
        SchemaUse("key", GUID),
        SchemaUse("value", GUID),
    )
    assert not uses.is_plain


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\0\0\0", b"\x01" + GUID[:-1], b"\x02" + GUID, b"{}"])
def test_content_without_a_reference_is_plain(content: bytes) -> None:
    """It is the record's fault, and no schema makes it right."""
    batch = values(framed(1), content)
    assert run(find_uses(batch))[0] == ((SchemaUse("value", 1),), True)
    assert run(record_errors(batch, SchemaFaults({})))[0] == [(1, "the value has no schema id")]


def test_a_header_that_is_no_reference_is_refused() -> None:
    """Although the value begins like one."""
    record = new_record(b"k", framed(1), timestamp=0, headers=(("__value_schema_id", framed(1) + b"!"),))
    assert run(find_uses(batch_of(record, fields=("value",))))[0].is_plain


def test_a_batch_refers_to_a_limited_number_of_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked up, and may be parsed."""
    monkeypatch.setattr(produced, "MAX_SCHEMAS", 3)
    run(find_uses(values(*(framed(each % 3) for each in range(9)))))
    with pytest.raises(InvalidRecord, match="more than 3 schemas"):
        run(find_uses(values(*(framed(each) for each in range(4)))))


def test_a_header_name_that_is_no_text_is_another_header() -> None:
    """Only two names are looked for."""
    batch = build_batch([new_record(b"k", framed(1), timestamp=0, headers=(("name", b""),))])
    broken = memoryview(batch.replace(b"name", b"\xff\xff\xff\xff"))
    uses = run(find_uses(ProducedBatch(broken, ("value",), 1_000)))[0]
    assert uses.schemas == (SchemaUse("value", 1),)


def test_headers_count_as_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header takes two bytes, so a small batch may have millions of them."""
    monkeypatch.setattr(produced, "STEPS_PER_SLICE", 1_000)
    record = new_record(b"k", framed(1), timestamp=0, headers=(("", None),) * 1_000)
    batch = batch_of(*[record] * 20)
    assert run(find_uses(batch))[1] >= 10
    assert run(record_errors(batch, SchemaFaults({})))[1] >= 10
    record = record._replace(headers=(("", None),) * (produced.MAX_HEADERS + 1))
    with pytest.raises(InvalidRecord, match="10001 headers"):
        run(find_uses(batch_of(record)))


def test_bytes_count_as_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records are copied."""
    monkeypatch.setattr(produced, "STEPS_PER_SLICE", 1_000)
    batch = values(*[framed(1, bytes(100_000))] * 40)._replace(plain_bytes=1 << 23)
    assert run(find_uses(batch))[1] >= 4


def payload_check(text: AvroText = NULLS) -> PayloadCheck:
    return PayloadCheck({SchemaUse("value", 1): text}, ParsedSchemas())


def test_the_data_of_a_batch_takes_a_limited_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed batch of a few bytes may have very many values. The reason says what helps."""
    monkeypatch.setattr(produced, "MAX_BATCH_STEPS", 5_000)
    check = payload_check(AvroText('{"type":"array","items":"long"}', ()))
    errors, _ = run(record_errors(values(*[framed(1, b"\xd0\x0f" + bytes(1_001))] * 100), check))
    assert [index for index, _ in errors] == list(range(4, 4 + produced.MOST_ERRORS))
    assert "more than 5000 values" in errors[0][1]
    assert errors[0][1].endswith("send smaller batches")
    assert check.steps == 5_000


def test_wrong_data_counts_as_steps() -> None:
    """Each of a batch's errors may take as many as right data."""
    check = payload_check(AvroText('{"type":"array","items":"long"}', ()))
    errors, _ = run(record_errors(values(framed(1, b"\xd0\x0f" + bytes(990))), check))
    assert errors[0][1].endswith("the data is cut off")
    assert check.steps > 990


def test_the_schemas_of_a_batch_stay_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records in turn of more schemas than are kept between batches: each is parsed, and counted, once."""
    monkeypatch.setattr(produced, "MAX_PARSED", 10)
    texts = {
        SchemaUse("value", each): AvroText(f'{{"type":"fixed","name":"F","size":{each}}}', ())
        for each in range(1, 102)
    }
    check = PayloadCheck(texts, ParsedSchemas())
    contents = [framed(each, b"1" * each) for each in range(1, 102)] * 5
    assert run(record_errors(values(*contents), check))[0] == []
    assert check.steps == sum(each.chars for each in texts.values()) + len(contents)


def test_a_pass_yields_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it ends soon after its client has gone."""
    monkeypatch.setattr(produced, "STEPS_PER_SLICE", 10)
    batch = values(*[framed(1, b"\0")] * 40)
    assert run(find_uses(batch))[1] == 5
    errors, slices = run(record_errors(batch, payload_check()))
    assert not errors
    assert slices >= 8


def test_parsed_schemas_are_kept_up_to_a_size() -> None:
    """By their characters: a parsed schema takes far more memory than its text."""
    parsed = ParsedSchemas()
    texts = [
        AvroText(f'{{"type":"fixed","name":"F","size":{each},"doc":"{"x" * 60_000}"}}', ())
        for each in range(1, 21)
    ]
    for each in texts:
        parsed.add(each)
    kept = [each for each in texts if parsed.get(each) is not None]
    assert kept == texts[-len(kept) :]
    assert sum(each.chars for each in kept) <= produced.MAX_PARSED_CHARS


def test_a_schema_that_cannot_be_parsed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another registry may have registered it."""
    check = payload_check(AvroText('{"type":"record"}', ()))
    ((_, reason),) = run(record_errors(values(framed(1)), check))[0]
    assert reason.startswith("the value cannot be checked: the schema is invalid")
