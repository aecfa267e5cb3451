"""Values by the schemas of a registry: columns of every type, evolution, and dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.records.batch import Record
from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.kit.waits import PATIENCE_S
from tests.tables.conftest import Backend
from tests.tables.in_memory import SOURCE, MemoryStore, MemoryTable, no_wait
from tests.tables.topics import as_log_record, read_log

pytestmark = pytest.mark.tables

SEND_AGAIN = Path(__file__).parents[2] / "deploy" / "examples" / "tables" / "send_again.py"


def record_of(**fields: Any) -> dict[str, Any]:
    """Return the schema of a record named Order."""
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
    }


FIRST = record_of(id="int", who=["null", "string"])
SECOND = record_of(
    id="long",
    who=["null", "string"],
    price=["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
    at=["null", {"type": "long", "logicalType": "timestamp-millis"}],
)
OTHER = record_of(id="string")
"""Its id is no number: it does not fit beside the others."""


@pytest.fixture
def registry() -> Iterator[Any]:
    from tests.tables.registry_server import FakeRegistry

    with FakeRegistry() as found:
        yield found


def _values(registry: Any) -> Any:
    from raftlog.tables.registry import Registry
    from raftlog.tables.values import Values

    return Values(Registry(registry.url, no_wait))


EVERY_TYPE = record_of(
    flag="boolean",
    small="int",
    big="long",
    single="float",
    double="double",
    raw="bytes",
    text="string",
    fixed={"type": "fixed", "name": "Four", "size": 4},
    color={"type": "enum", "name": "Color", "symbols": ["RED"]},
    day={"type": "int", "logicalType": "date"},
    at={"type": "long", "logicalType": "timestamp-micros"},
    clock={"type": "int", "logicalType": "time-millis"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    tags={"type": "array", "items": "string"},
    counts={"type": "map", "values": "int"},
    either=["null", "int", "string"],
    nested={"type": "record", "name": "Inner", "fields": [{"name": "deep", "type": ["null", "Four"]}]},
    tree={
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Tree"]}],
    },
)
EVERY_VALUE = {
    "flag": True,
    "small": -1,
    "big": 2**63 - 1,
    "single": 0.5,
    "double": 0.25,
    "raw": b"\xff\0",
    "text": "\N{SNOWMAN}",
    "fixed": b"four",
    "color": "RED",
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "clock": time(12, 0, 1),
    "price": Decimal("123.45"),
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "either": "x",
    "nested": {"deep": b"deep"},
    "tree": {"value": 1, "next": {"value": 2, "next": None}},
}


def test_a_header_name_that_is_not_utf_8_ends_no_table(registry: Any) -> None:
    """A table's names are text: the row, and a dead letter, has what Java clients read. The value keeps its bytes."""
    from raftlog.tables.columns import Rows
    from raftlog.tables.values import Values

    name = b"\xff\xfe".decode(errors="surrogateescape")
    record = Record(0, 1, b"k", b"\xff", ((name, b"\xff"),))
    shown = [{"key": "\ufffd\ufffd", "value": b"\xff"}]
    rows, by_schema = Rows(None), Rows(Values(registry))
    rows.add(0, [(0, record)])
    by_schema.add(0, [(0, record)])
    assert rows.take().column("headers").to_pylist() == [shown]
    (dead,) = by_schema.take_dead().to_pylist()
    assert (dead["headers"], dead["value"]) == (shown, b"\xff")


def test_every_type_of_avro_has_a_column(registry: Any) -> None:
    """Time of day, and what has several types or holds itself, is text."""
    import pyarrow as pa

    from tests.tables.registry_server import framed

    registry.add(1, EVERY_TYPE)
    values = _values(registry)
    found = values.read(framed(1, EVERY_TYPE, EVERY_VALUE))
    (row,) = pa.array([found], values.type).to_pylist()
    assert row == {
        **EVERY_VALUE,
        "clock": "12:00:01",
        "counts": [("a", 1)],
        "either": '"x"',
        "tree": {"value": 1, "next": '{"value": 2, "next": null}'},
    }


def test_references_are_read_before_the_schema(registry: Any) -> None:
    """The deepest first."""
    from tests.tables.registry_server import framed

    inner = {"type": "record", "name": "Inner", "fields": [{"name": "deep", "type": "int"}]}
    registry.versions["inner", 3] = {"schema": json.dumps(inner)}
    registry.add(
        1, record_of(inner="Inner"), references=[{"name": "Inner", "subject": "inner", "version": 3}]
    )
    whole = record_of(inner=inner)
    assert _values(registry).read(framed(1, whole, {"inner": {"deep": 7}})) == {"inner": {"deep": 7}}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "does not begin with the id"),
        (b"text", "does not begin with the id"),
        (b"\x01\0\0\0\x01", "does not begin with the id"),
        (b"\0\0\0\0\x09", "no schema 9"),
        (b"\0\0\0\0\x01", "EOFError"),
        (b"\0\0\0\0\x01\x02\x02\x7f", "not of its schema"),
        (b"\0\0\0\0\x01\x02\0\0", "1 bytes follow"),
        (b"\0\0\0\0\x02\x02a", r"schema 2: value\.id is string, and int64"),
        (b"\0\0\0\0\x03{}", "schema 3: it is of kind THRIFT"),
        (b"\0\0\0\0\x04\0", "schema 4: its schema cannot be used"),
        (b"\0\0\0\0\x05\0\0", r"value\.ID differs from value\.id in case"),
    ],
)
def test_a_value_that_does_not_fit_says_why(registry: Any, value: bytes, said: str) -> None:
    """Bytes of another program, cut values, schemas that are none or do not fit beside the columns of others."""
    from raftlog.tables.misfits import Misfit
    from tests.tables.registry_server import framed

    registry.add(1, FIRST)
    registry.add(2, OTHER)
    registry.add(3, {}, schemaType="THRIFT")
    registry.add(4, {"type": "no-such-type", "name": "Order"})
    registry.add(5, record_of(ID="int"))
    values = _values(registry)
    values.read(framed(1, FIRST, {"id": 1, "who": None}))
    with pytest.raises(Misfit, match=said):
        values.read(value)


def test_a_registry_that_fails_for_a_while_is_asked_again_and_never_for_the_same_id(registry: Any) -> None:
    """It is no fault of a record; an id that is unknown may be known later."""
    from raftlog.tables.misfits import Misfit
    from raftlog.tables.registry import RegistryFailed
    from tests.tables.registry_server import framed

    registry.add(1, FIRST)
    values = _values(registry)
    registry.failures = 3
    value = framed(1, FIRST, {"id": 1, "who": None})
    assert [values.read(value) for _ in range(3)] == [{"id": 1, "who": None}] * 3
    assert len(registry.asked) == 4
    unknown = b"\0\0\0\0\x02" + value[5:]
    for _ in range(2):
        with pytest.raises(Misfit):
            values.read(unknown)
    assert len(registry.asked) == 5
    registry.add(2, FIRST)
    values.look_again()
    assert values.read(unknown) == {"id": 1, "who": None}
    registry.failures = 100
    with pytest.raises(RegistryFailed, match="503"):
        values.read(b"\0\0\0\0\x03")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error_code": 404, "message": "there is nothing at /schemas"}, "there is nothing at /schemas"),
        ({"error_code": 40401, "message": "subject not found"}, "subject not found"),
        ({"detail": "Not Found"}, "no schema registry's answer to /schemas/ids/"),
        (None, "no schema registry's answer to /schemas/ids/"),
        (["any"], "no schema registry's answer to /schemas/ids/"),
    ],
)
def test_only_the_registrys_own_code_means_that_it_has_no_schema(registry: Any, body: Any, said: str) -> None:
    """Any server returns 404 for a path that it does not know: no record becomes a dead letter for it."""
    from raftlog.tables.registry import RegistryFailed

    values = _values(registry)
    values.check_registry()
    registry.unknown = body
    with pytest.raises(RegistryFailed, match=said):
        values.check_registry()
    with pytest.raises(RegistryFailed, match=said):
        values.read(b"\0\0\0\0\x01")
    assert len(registry.asked) == 3


def test_a_schema_whose_reference_is_gone_is_unusable_and_a_wrong_answer_is_not(registry: Any) -> None:
    """The registry's own codes for subjects and versions are others than that for ids."""
    from raftlog.tables.misfits import Misfit
    from raftlog.tables.registry import RegistryFailed

    reference = {"name": "Inner", "subject": "inner", "version": 3}
    registry.add(1, record_of(inner="Inner"), references=[reference])
    with pytest.raises(RegistryFailed, match="answer to /subjects/inner/versions/3"):
        _values(registry).read(b"\0\0\0\0\x01\0")
    registry.unknown = {"error_code": 40402}
    with pytest.raises(Misfit, match="schema 1: its schema cannot be used"):
        _values(registry).read(b"\0\0\0\0\x01\0")


def test_the_address_of_another_service_ends_the_command_before_any_record(
    cluster: Cluster, registry: Any, topic: str, tmp_path: Path
) -> None:
    """No record is a dead letter for it, so the right address reads all. After a mistake another place does."""
    from tests.tables.conftest import BACKENDS
    from tests.tables.registry_server import framed

    raftlog = CommandLine(cluster.bootstrap_servers)
    assert raftlog("topic", "create", topic, "-p", "1").returncode == 0
    value = framed(1, FIRST, {"id": 1, "who": None})
    ran = raftlog("produce", "-t", topic, "-D", "|", stdin=value)
    assert ran.returncode == 0, ran.stderr

    def run(to: Path) -> Any:
        where = ("--to", str(to), "--until-end", "--registry", registry.url)
        return raftlog("table", "run", topic, *where)

    known, registry.unknown = registry.unknown, {"error_code": 404, "message": "there is nothing here"}
    first = tmp_path / "first"
    ran = run(first)
    assert (ran.returncode, ran.stdout) == (exits.FAILED, "") and not first.exists()
    assert "there is nothing here; is --registry the address of a schema registry?" in ran.stderr
    registry.unknown = known
    ran = run(first)
    assert ran.returncode == 0 and "1 dead letter" in ran.stdout  # as by another registry
    registry.add(1, FIRST)
    assert "up to date" in run(first).stderr
    assert run(tmp_path / "second").returncode == 0
    script = SEND_AGAIN.read_text()
    names = {"localhost:9092": raftlog.bootstrap, "lake/orders": f"{first}/{topic}", '"orders"': repr(topic)}
    for name, own in names.items():
        assert name in script
        script = script.replace(name, own)
    exec(script, {})
    assert run(first).returncode == 0
    for to in ("first", "second"):
        (row,) = BACKENDS["delta"].read(str(tmp_path / to / topic))
        assert row["value"] == {"id": 1, "who": None}


def test_a_decimal_that_is_too_long_for_its_column_is_a_dead_letter_alone(registry: Any) -> None:
    """Rows beside it are appended."""
    from raftlog.tables.columns import Rows
    from tests.tables.registry_server import framed

    long, short = (
        record_of(price={"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2})
        for precision in (9, 5)
    )
    registry.add(1, short)
    rows = Rows(_values(registry))
    records = [framed(1, schema, {"price": Decimal("1.00")}) for schema in (short, short)]
    records.insert(1, framed(1, long, {"price": Decimal("1234567.00")}))
    rows.add(0, [(1, Record(offset, 0, None, value)) for offset, value in enumerate(records)])
    assert rows.take().column("offset").to_pylist() == [0, 2]
    assert rows.take_dead().column("offset").to_pylist() == [1]


def test_dead_letters_that_are_there_already_are_not_appended_again(registry: Any) -> None:
    """A crash came between them and the rows. An older writer is fenced by the epoch of the topic's table.

    Dead letters stay what they are, although the registry knows their schema by then.
    """
    import pyarrow as pa

    from raftlog.tables.columns import Rows
    from raftlog.tables.dead_letters import DeadLetters
    from raftlog.tables.progress import Fenced, Head, TableError
    from tests.tables.registry_server import framed

    store = MemoryStore()

    class Table(MemoryTable):
        def append(self, head: Any, attempt: Any, rows: Any) -> None:
            super().append(head, attempt, rows.column("offset").to_pylist())

        def read(self, columns: Any, offset: int) -> Any:
            found = [each for each in self.store.rows if each >= offset]  # type: ignore[operator]
            return pa.table({"partition": [0] * len(found), "offset": found})

    late, text = framed(1, FIRST, {"id": 1, "who": None}), b"text"

    def append(epoch: int, values: list[bytes]) -> list[int]:
        """Append the dead letters of a run, and return the rows that it would append."""
        letters, main = DeadLetters(Table(store), SOURCE, no_wait, print), Head("1", SOURCE, epoch, {0: 0})
        rows = Rows(_values(registry))
        rows.decided = letters.begin(main)
        rows.add(0, [(1, Record(offset, 0, None, value)) for offset, value in enumerate(values)])
        letters.append(rows, main, {0: len(values)})
        return rows.take().column("offset").to_pylist()

    registry.add(2, FIRST)
    fits = framed(2, FIRST, {"id": 1, "who": None})
    assert append(1, [text, late, fits]) == [2]
    registry.add(1, FIRST)
    assert append(2, [text, late, fits, text, late]) == [2, 4]
    with pytest.raises(Fenced, match="epoch 2"):
        append(1, [text] * 9)
    assert store.rows == [0, 1, 3]
    del registry.schemas[2]
    with pytest.raises(TableError, match="record 0/2 fitted before a crash"):
        append(3, [text, late, fits])


def test_values_become_columns_and_misfits_dead_letters(
    cluster: Cluster, registry: Any, topic: str, backend: Backend, tmp_path: Path
) -> None:
    """Two schemas, a tombstone, and five records that fit nowhere, over two runs."""
    from confluent_kafka import Producer

    from tests.tables.registry_server import framed

    for number, schema in enumerate((FIRST, SECOND, OTHER), 1):
        registry.add(number, schema)
    raftlog = CommandLine(cluster.bootstrap_servers)
    assert raftlog("topic", "create", topic, "-p", "1").returncode == 0
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    second = {"id": 2**40, "who": None, "price": Decimal("12.50"), "at": at}
    chunks = (
        [framed(1, FIRST, {"id": 1, "who": "a"}), None, b"text", framed(1, FIRST, {"id": 2, "who": None})],
        [
            framed(2, SECOND, second),
            framed(3, OTHER, {"id": "x"}),
            framed(1, FIRST, {"id": 3, "who": "c"}),
            b"",
        ],
    )
    run = ("table", "run", topic, "--to", str(tmp_path), "--format", backend.name, "--until-end", "-J")
    dead = 0
    for chunk in chunks:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in chunk:
            producer.produce(topic, value, b"k", headers=[("h", b"1")])
        assert producer.flush(PATIENCE_S) == 0
        ran = raftlog(*run, "--registry", registry.url)
        assert ran.returncode == 0, ran.stderr
        done = json.loads(ran.stdout)
        dead += done["dead_letters"]
        assert done["dead_letter_reason"] and done["dead_letters_table"].endswith(f"{topic}__dlq")
    rows = {each["offset"]: each["value"] for each in backend.read(str(tmp_path / topic))}
    nothing = {"price": None, "at": None}
    assert rows == {
        0: {"id": 1, "who": "a", **nothing},
        1: None,
        3: {"id": 2, "who": None, **nothing},
        4: second,
        6: {"id": 3, "who": "c", **nothing},
    }
    letters = backend.read(str(tmp_path / f"{topic}__dlq"))
    log = read_log(cluster.bootstrap_servers, topic)
    assert sorted(map(as_log_record, letters)) == [each for each in log if each.offset in (2, 5, 7)]
    assert all(each["reason"] for each in letters) and dead == 3
    ran = raftlog(*run, "--registry", registry.url)
    assert (ran.returncode, ran.stdout) == (0, "") and f"{topic}: up to date" in ran.stderr
    ran = raftlog(*run)
    assert ran.returncode == exits.FAILED and "values by schemas; name the registry" in ran.stderr
