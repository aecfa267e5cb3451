"""`raftlog pipeline table`: values by raftlog's own registry in Delta and Iceberg tables, each record once."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.kit import waits
from tests.pipeline.processes import crash, finished, given, started, wait_for
from tests.pipeline.test_jobs import forget_last_batch
from tests.pipeline.test_standalone import master  # noqa: F401 - a fixture
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def registered(java: None) -> Iterator[AdminCluster]:
    """A node with a schema registry."""
    pytest.importorskip("deltalake", reason="pip install raftlog[table]")
    with AdminCluster(1, settings={"auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture
def values(registered: AdminCluster, topic: str) -> Values:
    return Values(registered, topic)


class Values:
    """A topic with two partitions, and values by the schemas of the registry."""

    def __init__(self, cluster: AdminCluster, topic: str) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self.topic, self.topics = topic, Topics(cluster.bootstrap_servers)
        self.url = cluster.schema_registry_url()
        self.client = SchemaRegistryClient({"url": self.url})
        self.topics.make(topic, 2, replicas=1)

    def avro(self, value: Any, **fields: Any) -> bytes:
        """Return a value as confluent-kafka's serializer writes it, which registers the schema."""
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        self.client.set_compatibility(f"{self.topic}-value", "NONE")
        named = [{"name": name, "type": type_} for name, type_ in fields.items()]
        schema = json.dumps({"type": "record", "name": "Order", "fields": named})
        found: bytes = AvroSerializer(self.client, schema)(
            value, SerializationContext(self.topic, MessageField.VALUE)
        )
        return found

    def options(self, folder: Path, **more: Any) -> dict[str, Any]:
        to = str(folder / "lake")
        return given(self.topics, self.topic, folder, to=to, registry=self.url, **more)


def read_delta(where: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    return DeltaTable(where).to_pyarrow_table().to_pylist()


def read_iceberg(where: Path) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("raftlog", type="sql", uri=f"sqlite:///{where.parent / 'catalog.db'}")
    return catalog.load_table(f"raftlog.{where.name}").scan().to_arrow().to_pylist()


def run(spark: Any, asked: dict[str, Any]) -> Any:
    from raftlog.pipeline.jobs.lake import TableOptions, table
    from raftlog.pipeline.jobs.settings import build

    return table(spark, build(TableOptions, asked))


READ: dict[str, Callable[[Path], list[dict[str, Any]]]] = {"delta": read_delta, "iceberg": read_iceberg}


@pytest.mark.parametrize("format_", READ)
def test_values_become_columns_each_by_the_schema_it_was_written_with(
    spark: Any, values: Values, tmp_path: Path, format_: str
):
    """Two schemas in one topic, a tombstone, and what does not fit. A replayed batch adds no row, a third schema its
    field.
    """
    place, topic = tmp_path / "lake" / values.topic, values.topic
    first = [values.avro({"id": number}, id="int") for number in range(3)]
    second = [values.avro({"id": 10, "who": "Ada"}, id="long", who=["null", "string"])]
    other = values.avro({"id": "text"}, id="string")
    values.topics.fill(topic, [*first, b"no id", None, *second], key=b"k", headers=[("h", b"x")])
    values.topics.fill(topic, [b"\0\0\0\0\xff" + b"unknown", other, first[0] + b"more"], partition=1)
    asked = values.options(tmp_path, format=format_)
    done = run(spark, asked)
    assert (done.rows, done.dead_letters) == (5, 4)

    def rows() -> list[tuple[int, int, Any]]:
        found = READ[format_](place)
        return sorted((row["partition"], row["offset"], row["value"]) for row in found)

    expected = [
        *((0, number, {"id": number, "who": None}) for number in range(3)),
        (0, 4, None),
        (0, 5, {"id": 10, "who": "Ada"}),
    ]
    assert rows() == expected
    row = next(each for each in READ[format_](place) if each["offset"] == 4)
    assert (row["key"], row["headers"], row["topic"]) == (b"k", [{"key": "h", "value": b"x"}], topic)
    letters = READ[format_](place.with_name(f"{topic}__dlq"))
    reasons = {(each["partition"], each["offset"]): each["reason"] for each in letters}
    assert reasons.pop((0, 3)) == "its value does not begin with the id of a schema"
    assert reasons.pop((1, 0)) == "the registry has no schema 255"
    assert "value.id is string, and int64 in the table" in reasons.pop((1, 1))
    assert reasons == {(1, 2): "4 bytes follow its value"}
    assert {each["value"] for each in letters} == {
        b"no id",
        b"\0\0\0\0\xffunknown",
        other,
        first[0] + b"more",
    }
    forget_last_batch(tmp_path / "checkpoint")
    assert run(spark, asked).rows == 0
    assert rows() == expected
    assert len(READ[format_](place.with_name(f"{topic}__dlq"))) == 4
    values.topics.fill(topic, [values.avro({"id": 7, "paid": True}, id="int", paid="boolean"), other])
    done = run(spark, asked)
    assert (done.rows, done.dead_letters) == (1, 1)
    assert rows()[5] == (0, 6, {"id": 7, "who": None, "paid": True})


def test_a_query_of_its_own_writes_what_it_computes_once(spark: Any, values: Values, tmp_path: Path):
    """As in the documentation. A batch that is replayed after the table was made again is refused."""
    from raftlog.pipeline.decoding import Decoder
    from raftlog.pipeline.table_sink import TableSink
    from raftlog.tables.formats import Format, Place

    def run_query() -> None:
        decoder, sink = (
            Decoder(values.url),
            TableSink(Place(Format.DELTA, str(tmp_path)), "orders", tidy_every=2),
        )

        def write(frame: Any, batch: int) -> None:
            orders = decoder.decode(frame).where("reason IS NULL")
            sink(orders.selectExpr("offset", "value.id", "value.price * 2 AS double"), batch)

        reader = spark.readStream.format("raftlog").option("kafka.bootstrap.servers", values.topics.servers)
        rows = reader.options(
            subscribe=values.topic, startingOffsets="earliest", maxOffsetsPerTrigger="2"
        ).load()
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "query"))
        writer.trigger(availableNow=True).start().awaitTermination()

    orders = [
        values.avro({"id": number, "price": number / 2}, id="int", price="double") for number in range(5)
    ]
    values.topics.fill(values.topic, [*orders, b"no id"])
    run_query()
    forget_last_batch(tmp_path)
    run_query()
    found = sorted(tuple(row.values()) for row in read_delta(tmp_path / "orders"))
    assert found == [(number, number, float(number)) for number in range(5)]
    shutil.rmtree(tmp_path / "orders")
    values.topics.fill(values.topic, orders[:1])
    with pytest.raises(Exception, match="its next batch is 0, and this is batch 3"):
        run_query()


def test_one_command_makes_a_table(values: Values, tmp_path: Path):
    """As in the documentation, and a second place for a checkpoint is refused the table of the first."""
    values.topics.fill(values.topic, [values.avro({"id": 1}, id="int")])
    asked = values.options(tmp_path, master="local[1]")
    output = finished(started("table", asked))
    assert output.startswith("table: 1 records appended, 0 dead letters")
    assert [row["value"] for row in read_delta(tmp_path / "lake" / values.topic)] == [{"id": 1}]
    process = started("table", {**asked, "checkpoint": str(tmp_path / "other")})
    _output, errors = waits.finished(process)
    assert process.returncode == 1 and "the table has the records of topic id" in errors


def test_a_malformed_value_ends_the_job_with_its_place(spark: Any, values: Values, tmp_path: Path):
    """With `--malformed fail`. No row of its batch is written."""
    from raftlog.pipeline.jobs.control import JobError

    values.topics.fill(values.topic, [values.avro({"id": 1}, id="int"), b"no id"])
    with pytest.raises(JobError, match=rf"malformed record {values.topic}/0/1: its value does not begin"):
        run(spark, values.options(tmp_path, malformed="fail"))
    assert not (tmp_path / "lake" / values.topic).exists()


def test_a_registry_that_is_silent_ends_the_job_with_its_address(
    spark: Any, values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It takes connections and never answers. No record becomes a dead letter for it."""
    from raftlog.pipeline.jobs.control import JobError
    from raftlog.tables import registry

    monkeypatch.setattr(registry, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(registry, "ATTEMPTS", 2)
    values.topics.fill(values.topic, [values.avro({"id": 1}, id="int")])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://user:hidden-word@127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(JobError, match=r"no answer at http://127.0.0.1:\d+ \(timed out\)") as caught:
            run(spark, {**values.options(tmp_path), "registry": url})
    assert "hidden-word" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("format_", READ)
def test_on_a_standalone_master_each_record_is_in_the_table_once_after_a_kill(
    master: str,  # noqa: F811
    values: Values,
    tmp_path: Path,
    format_: str,
):
    """Two workers decode. The driver is killed with all that it started, amid the batches."""
    encoded = [values.avro({"id": number}, id="int") for number in range(500)]
    for partition in range(2):
        values.topics.fill(values.topic, encoded, partition=partition)
    where = tmp_path / "lake" / values.topic
    asked = values.options(tmp_path, format=format_, master=master, max_records=100)
    asked |= {"conf": ["spark.executor.memory=512m", "spark.executor.cores=1"]}
    process = started("table", asked)
    wait_for(lambda: where.exists() and len(READ[format_](where)) >= 200, process)
    crash(process)
    assert len(READ[format_](where)) < 1_000
    finished(started("table", asked))
    found = sorted((row["partition"], row["offset"], row["value"]["id"]) for row in READ[format_](where))
    assert found == [(partition, number, number) for partition in range(2) for number in range(500)]


def test_values_of_protobuf_become_columns(spark: Any, values: Values, tmp_path: Path):
    """As confluent-kafka's serializer writes them, beside values of Avro in the same topic."""
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    described.message_type.add(name="Order").field.add(name="id", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    serializer = ProtobufSerializer(order, values.client)
    context = SerializationContext(f"{values.topic}-proto", MessageField.VALUE)
    first = values.avro({"who": "Ada"}, who="string")
    values.topics.fill(values.topic, [first, serializer(order(id="x"), context)])
    assert run(spark, values.options(tmp_path)).rows == 2
    found = [row["value"] for row in read_delta(tmp_path / "lake" / values.topic)]
    assert sorted(found, key=str) == [{"who": "Ada", "id": None}, {"who": None, "id": "x"}]


@pytest.mark.parametrize("format_", READ)
def test_a_crash_behind_dead_letters_leaves_each_record_in_one_table(
    spark: Any, values: Values, tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
):
    """The registry learns a schema in between, which makes a dead letter fit, and then loses all of them."""
    from raftlog.pipeline.jobs.control import JobError
    from raftlog.pipeline.table_sink import TableSink
    from tests.tables.registry_server import FakeRegistry, framed

    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    known, late = (framed(number, order, {"id": number}) for number in (1, 2))
    values.topics.fill(values.topic, [known, late, b"no id"])
    append = TableSink._append

    def die_at_rows(self: Any, *given: Any) -> int:
        if not self._may_skip:
            raise ConnectionError(f"{values.topic}: gone")
        return append(self, *given)

    with FakeRegistry() as registry:
        registry.add(1, order)
        asked = values.options(tmp_path, format=format_) | {"registry": registry.url}
        with monkeypatch.context() as patched:
            patched.setattr(TableSink, "_append", die_at_rows)
            with pytest.raises(JobError, match=f"{values.topic}: gone"):
                run(spark, asked)
        registry.schemas.clear()
        with pytest.raises(JobError, match=f"record {values.topic}/0/0 fitted before"):
            run(spark, asked)
        registry.add(1, order)
        registry.add(2, order)
        assert run(spark, asked).rows == 1
        values.topics.fill(values.topic, [late])
        assert run(spark, asked).rows == 1
    place = tmp_path / "lake" / values.topic
    assert sorted(row["offset"] for row in READ[format_](place)) == [0, 3]
    assert sorted(row["offset"] for row in READ[format_](place.with_name(f"{values.topic}__dlq"))) == [1, 2]


def test_every_id_of_a_batch_is_asked_for(spark: Any, monkeypatch: pytest.MonkeyPatch):
    """Bytes of another program are ids of none, each more frequent than the only value. Past the limit is an error."""
    from raftlog.pipeline import decoding
    from tests.tables.registry_server import FakeRegistry, framed

    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    none = [b"\0" + number.to_bytes(4, "big") for number in range(1_000, 2_001)] * 2
    frame = spark.createDataFrame([(each,) for each in [*none, framed(7, order, {"id": 5})]], "value binary")
    with FakeRegistry() as registry:
        registry.add(7, order)
        decoder = decoding.Decoder(registry.url)
        (row,) = decoder.decode(frame).where("reason IS NULL").collect()
        assert row.value.id == 5
        assert len(registry.asked) == 1_002
        monkeypatch.setattr(decoding, "MOST_IDS", 1_001)
        with pytest.raises(decoding.TooManyIds, match="more than 1,001 schemas"):
            decoder.decode(frame)


def test_the_index_of_a_message_may_take_several_bytes(spark: Any):
    """A file of Protobuf may have more than 64 messages, and messages in messages."""
    from raftlog.pipeline import decoding

    heads = [b"\0", b"\2\x08", b"\2\x8c\1", b"\4\2\x8c\1", b"\6\x80\x80\1\2\4"]
    values = [(b"\0\0\0\0\1" + head + b"\x08\5",) for head in heads]
    found = (
        spark.createDataFrame(values, "value binary").selectExpr(f"{decoding._INDEXES} AS indexes").collect()
    )
    assert [bytes(row.indexes) for row in found] == heads
