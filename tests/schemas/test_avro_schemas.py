"""Avro: which texts are the same schema, what is no schema, and which schemas read which records."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from raftlog.schemas import avro_schemas
from raftlog.schemas.errors import INVALID_SCHEMA, SCHEMA_TOO_LARGE, SchemaError
from raftlog.schemas.schema import MAX_DEPTH, MAX_PARTS, TEXT_MAX_CHARS, Named

INT, STRING, OPTIONAL = "int", "string", ["null", "string"]


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "R", **more: Any) -> str:
    """The text of a record schema; a field is (name, type) or (name, type, default)."""
    rows = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": rows, **more})


def code_of(text: str) -> int:
    with pytest.raises(SchemaError) as caught:
        avro_schemas.parse(text, ())
    return caught.value.code


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"string"', ' { "type" : "string" } '),
        (record(("a", INT), namespace="x.y"), record(("a", INT), name="x.y.R")),
        ('{"name":"E","symbols":["A"],"type":"enum"}', '{"type": "enum", "symbols": ["A"], "name": "E"}'),
        (
            record(("a", {"type": "fixed", "name": "F", "size": 2}), ("b", "F"), namespace="n"),
            record(("a", {"type": "fixed", "name": "n.F", "size": 2}), ("b", "n.F"), namespace="n"),
        ),
        (record(("a", {"type": INT})), record(("a", INT))),
    ],
)
def test_the_same_schema_has_one_canonical_text_in_every_layout(one: str, other: str) -> None:
    """It has one id: white space, the order of attributes and the form of names do not count."""
    assert avro_schemas.canonical(one) == avro_schemas.canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(("a", INT)), record(("a", INT), doc="what it is")),
        (record(("a", INT, 1)), record(("a", INT, 2))),
        (record(("a", INT), namespace="x"), record(("a", INT))),
        (record(("a", INT), ("b", INT)), record(("b", INT), ("a", INT))),
        ('"int"', '{"type":"int","logicalType":"date"}'),
    ],
)
def test_another_schema_has_another_canonical_text(one: str, other: str) -> None:
    """Documentation, defaults, properties and the order of fields count, as in Confluent's registry."""
    assert avro_schemas.canonical(one) != avro_schemas.canonical(other)


def test_the_stored_text_has_every_token_as_it_was_sent() -> None:
    """A number keeps its digits."""
    assert avro_schemas.stored_text('{"type": "record",\n "name" : "R", "x": 1e3 }') == (
        '{"type":"record","name":"R","x":1e3}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "5",
        "string",
        '"nothing"',
        "[1, 2]",
        '["int", "int"]',
        '[["int"]]',
        '{"type":"record"}',
        '{"type":"record","name":"R","fields":{"a":1}}',
        '{"type":"enum","name":"E","symbols":5}',
        '{"type":["x"]}',
        '{"type":["null","string"],"doc":"x"}',
        record(doc="\ud800"),
        record(("a", INT), ("a", STRING)),
        record(("a-b", INT)),
        record(("a", "Unknown")),
        record(("a", INT, "no number")),
        record(("a", INT, 2**31)),
        record(("a", INT, True)),
        record(("a", {"type": "array", "items": INT}, ["x"])),
        record(("a", {"type": "enum", "name": "E", "symbols": ["A"]}, "B")),
        record(("a", {"type": "fixed", "name": "F", "size": 2}, "abc")),
        record(("a", json.loads(record(("b", INT), name="B")), {})),
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":NaN}]}',
    ],
)
def test_what_is_no_schema(text: str) -> None:
    """42201, whatever the package that parses it would raise."""
    assert code_of(text) == INVALID_SCHEMA


def test_defaults_of_every_type() -> None:
    """As Avro writes them in JSON."""
    avro_schemas.parse(
        record(
            ("a", "null", None),
            ("b", "boolean", False),
            ("c", "long", 2**62),
            ("d", "double", 1),
            ("e", "bytes", "\u00ff"),
            ("f", {"type": "map", "values": INT}, {"x": 1}),
            ("g", {"type": "array", "items": OPTIONAL}, [None, "x"]),
            ("h", OPTIONAL, None),
            ("i", json.loads(record(("b", INT), ("c", INT, 5), name="B")), {"b": 1}),
            ("j", {"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
            ("k", {"type": "fixed", "name": "F", "size": 2}, "ab"),
        ),
        (),
    )


def nested(depth: int) -> str:
    text = '"int"'
    for level in range(depth):
        text = f'{{"type":"record","name":"R{level}","fields":[{{"name":"f","type":{text}}}]}}'
    return text


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"type":' * 5_000 + '"int"' + "}" * 5_000,
        nested(MAX_DEPTH + 1),
        json.dumps({"type": "enum", "name": "E", "symbols": [f"S{each}" for each in range(MAX_PARTS)]}),
        json.dumps({"type": "string", "doc": "x" * TEXT_MAX_CHARS}),
    ],
)
def test_a_schema_beyond_a_limit(text: str) -> None:
    """42209, soon: it is refused before it is parsed."""
    assert code_of(text) == SCHEMA_TOO_LARGE


def test_a_comparison_has_an_end() -> None:
    """Two unions of n records each are n² pairs, and a chain of names is as deep as it is long."""
    names = [f"N{number}" for number in range(200)]
    unions = [
        json.dumps([{"type": "record", "name": f"{kind}{each}", "fields": []} for each in names])
        for kind in "AB"
    ]
    chain = [json.loads(record(name="R0"))]
    chain += [json.loads(record(("f", f"R{number - 1}"), name=f"R{number}")) for number in range(1, 1_000)]
    chained = record(("u", chain), ("last", "R999"), name="Top")
    for one, other in ((unions[0], unions[1]), (chained, chained)):
        with pytest.raises(SchemaError) as caught:
            avro_schemas.incompatibilities(avro_schemas.parse(one, ()), avro_schemas.parse(other, ()))
        assert caught.value.code == SCHEMA_TOO_LARGE


def test_the_check_of_a_default_has_an_end() -> None:
    """Unions of records that contain each other have 2^depth paths through a default: each pair is looked at once."""
    other = {"type": "record", "name": "B", "fields": [{"name": "f", "type": ["A", "B"]}]}
    union = [{"type": "record", "name": "A", "fields": [{"name": "f", "type": ["A", other]}]}, "B"]
    value: Any = 5
    for _ in range(100):
        value = {"f": value}
    assert code_of(record(("x", union, value))) == INVALID_SCHEMA


def test_a_default_of_many_records_of_many_fields_is_refused() -> None:
    """Each of them is looked at for each field."""
    wide = json.loads(record(*((f"f{number}", INT, 0) for number in range(2_000)), name="B"))
    text = record(("a", {"type": "array", "items": wide}, [{} for _ in range(2_000)]))
    assert code_of(text) == SCHEMA_TOO_LARGE


def test_a_comparison_looks_at_a_limited_number_of_fields() -> None:
    """A record of many fields against each record of a wide union is the product of both."""
    wide = record(*((f"f{number}", INT, 0) for number in range(2_000)))
    union = json.dumps([{"type": "record", "name": f"R{each}", "fields": []} for each in range(2_000)])
    with pytest.raises(SchemaError) as caught:
        avro_schemas.incompatibilities(avro_schemas.parse(wide, ()), avro_schemas.parse(union, ()))
    assert caught.value.code == SCHEMA_TOO_LARGE


def test_a_message_names_a_few_fields() -> None:
    """Not all thousands that differ."""
    wide = record(*((f"f{number}", INT) for number in range(50)))
    messages = avro_schemas.incompatibilities(avro_schemas.parse(wide, ()), avro_schemas.parse(A, ()))
    assert len(set(messages)) == avro_schemas.MOST_MESSAGES


def test_the_full_name_of_a_type_has_a_limit() -> None:
    """The canonical text has it wherever the type is used: one long namespace would become gigabytes."""
    text = record(("a", ["null", "R"], None), namespace="n" * avro_schemas.NAME_MAX_CHARS)
    assert code_of(text) == SCHEMA_TOO_LARGE
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_TOO_LARGE):
        avro_schemas.stored_text(text)


def test_types_of_referred_schemas_are_known() -> None:
    """A reference brings its named types, and its own references theirs."""
    money = Named("Money", record(("amount", "long"), name="shop.Money"))
    item = Named("Item", record(("price", "shop.Money"), name="shop.Item"))
    order = record(("items", {"type": "array", "items": "shop.Item"}), name="shop.Order")
    assert code_of(order) == INVALID_SCHEMA
    assert avro_schemas.parse(order, (money, item)).fullname == "shop.Order"


A, AB, AB_DEFAULT = (
    record(("a", INT)),
    record(("a", INT), ("b", STRING)),
    record(("a", INT), ("b", STRING, "")),
)


@pytest.mark.parametrize(
    ("reader", "writer", "reads"),
    [
        (A, A, True),
        (A, AB, True),
        (AB, A, False),
        (AB_DEFAULT, A, True),
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('"string"', '"bytes"', True),
        ('["null","int"]', '"int"', True),
        ('"int"', '["null","int"]', False),
        (record(("a", STRING)), A, False),
        (
            '{"type":"enum","name":"E","symbols":["A"]}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            False,
        ),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            True,
        ),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', False),
        (record(("a", INT), name="S"), A, False),
        (record(("a", INT), name="S", aliases=["R"]), A, True),
        (record(("next", ["null", "R"], None)), record(("next", ["null", "R"], None)), True),
    ],
)
def test_which_schemas_read_which_records(reader: str, writer: str, reads: bool) -> None:
    """Avro's rules of schema resolution."""
    found = avro_schemas.incompatibilities(avro_schemas.parse(reader, ()), avro_schemas.parse(writer, ()))
    assert (found == []) is reads


def test_a_message_names_the_kind_the_place_and_the_field() -> None:
    """In the form of Confluent's registry."""
    (message,) = avro_schemas.incompatibilities(avro_schemas.parse(AB, ()), avro_schemas.parse(A, ()))
    kind = "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert message == f"{{errorType:'{kind}', description:'at /fields/1 (field b)', additionalInfo:'b'}}"


def test_each_fault_has_a_message_of_its_own() -> None:
    """With the field in the field; a union lacks two types; a name, a size and symbols differ."""
    reader, writer = (
        record(
            ("a", STRING if is_reader else INT),
            (
                "in",
                json.loads(
                    record(("deep", {"type": "array", "items": INT if is_reader else STRING}), name="In")
                ),
            ),
            ("union", ["null"] if is_reader else ["null", INT, STRING]),
            ("one", {"type": "fixed", "name": "F" if is_reader else "G", "size": 2 if is_reader else 3}),
            ("symbols", {"type": "enum", "name": "E", "symbols": ["A"] if is_reader else ["A", "C", "B"]}),
        )
        for is_reader in (True, False)
    )
    found = avro_schemas.incompatibilities(avro_schemas.parse(reader, ()), avro_schemas.parse(writer, ()))
    rows = [
        re.findall(r"errorType:'(.*)', description:'at (.*)', additionalInfo:'(.*)'}$", each)[0]
        for each in found
    ]
    types = "reader type: {} not compatible with writer type: {}"
    assert rows == [
        ("TYPE_MISMATCH", "/fields/0/type (field a)", types.format("string", "int")),
        (
            "TYPE_MISMATCH",
            "/fields/1/type/fields/0/type/items (field in.deep)",
            types.format("int", "string"),
        ),
        ("MISSING_UNION_BRANCH", "/fields/2/type (field union)", "reader union lacking writer type: INT"),
        ("MISSING_UNION_BRANCH", "/fields/2/type (field union)", "reader union lacking writer type: STRING"),
        ("NAME_MISMATCH", "/fields/3/type/name (field one)", "expected: G"),
        ("FIXED_SIZE_MISMATCH", "/fields/3/type/size (field one)", "expected: 3, found: 2"),
        ("MISSING_ENUM_SYMBOLS", "/fields/4/type/symbols (field symbols)", "B, C"),
    ]
