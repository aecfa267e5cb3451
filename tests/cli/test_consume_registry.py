"""`raftlog consume -s registry`: keys and values by their schemas, and what cannot be decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.kcat.format import Record
from raftlog.cli.registry_decoder import MAX_SCHEMAS, RegistryDecoder, decoder_of
from raftlog.cli.target import Target
from raftlog.client.producer import ALL, Producer
from raftlog.records.batch import new_record
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import CommandLine
from tests.cli.test_dev import free_port

pytestmark = pytest.mark.slow

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "long", "default": 0}],
    }
)


@pytest.fixture(scope="module")
def served() -> Iterator[AdminCluster]:
    """A node with a schema registry."""
    with AdminCluster(1) as running:
        yield running


@pytest.fixture
def raftlog(served: AdminCluster) -> CommandLine:
    return CommandLine(served.bootstrap_servers)


@pytest.fixture
def registry(served: AdminCluster) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": served.schema_registry_url(1)})


@pytest.fixture
def name(raftlog: CommandLine, request: pytest.FixtureRequest) -> str:
    """A topic with one partition."""
    name = str(request.node.name).replace("[", "-").rstrip("]")
    assert raftlog("topic", "create", name, "-p", "1").returncode == 0
    return name


Payload = tuple[bytes | None, bytes | None, dict[str, bytes]]


def write(raftlog: CommandLine, name: str, *records: Payload) -> None:
    """Write keys, values and headers as they are."""
    target = Target(raftlog.bootstrap)
    producer = Producer(target.cluster, name, acks=ALL, codec=0, idempotent=True)
    for key, value, headers in records:
        producer.send(new_record(key, value, timestamp=1, headers=tuple(headers.items())), 0)
    producer.flush()
    producer.close()
    target.close()


def avro(registry: SchemaRegistryClient, name: str, value: dict[str, Any]) -> bytes:
    found = AvroSerializer(registry, USER)(value, SerializationContext(name, MessageField.VALUE))
    assert found is not None
    return found


def framed_json(registry: SchemaRegistryClient, subject: str, text: bytes) -> bytes:
    schema_id = registry.register_schema(subject, Schema('{"type": "object"}', "JSON"))
    return b"\0" + schema_id.to_bytes(4, "big") + text


def test_all_three_types_are_decoded_in_keys_and_values(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """The registry is found by the brokers. JSON is one line and keeps its digits; null stays null."""
    message = ProtobufSerializer(timestamp_pb2.Timestamp, registry)(
        timestamp_pb2.Timestamp(seconds=5), SerializationContext(name, MessageField.KEY)
    )
    of_avro = avro(registry, name, {"name": "Ada", "age": 2**40})
    of_json = framed_json(registry, f"{name}-json", b'{\n "n": 12345678901234567890 }')
    write(raftlog, name, (message, of_avro, {}), (of_json, None, {}))
    ran = raftlog("consume", "-t", name, "-e", "-s", "registry", "-f", "%k %s %S\\n")
    text = '{"name":"Ada","age":1099511627776}'
    assert (ran.returncode, ran.stderr) == (0, "")
    first, second, end = ran.stdout.split("\n")
    assert first == f'{{"seconds":5}} {text} {len(text)}'
    assert (second, end) == ('{"n":12345678901234567890}  -1', "")


def test_the_envelope_has_the_json_and_the_id_of_its_schema(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """As kcat's with -s avro, which is understood, too; the key was not asked for."""
    value = avro(registry, name, {"name": "Ada", "age": 1})
    write(raftlog, name, (b"plain", value, {}))
    for how in ("value=registry", "value=avro"):
        ran = raftlog("consume", "-t", name, "-e", "--decode", how, "-J")
        assert (ran.returncode, ran.stderr) == (0, "")
        found = json.loads(ran.stdout)
        assert (found["key"], found["payload"]) == ("plain", {"name": "Ada", "age": 1})
        assert found["value_schema_id"] == int.from_bytes(value[1:5], "big")
        assert "key_schema_id" not in found


def test_a_schema_may_be_named_by_its_guid_in_a_header(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """confluent-kafka's serializers can write it there, and the bare value."""
    headers: dict[str, Any] = {}
    serializer = AvroSerializer(registry, USER, conf={"schema.id.serializer": header_schema_id_serializer})
    value = serializer({"name": "Ada", "age": 2}, SerializationContext(name, MessageField.VALUE, headers))
    write(raftlog, name, (None, value, headers))
    ran = raftlog("consume", "-t", name, "-e", "-s", "value=registry", "-J")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.out.decode("latin-1"))["payload"] == {"name": "Ada", "age": 2}


def test_what_is_not_decoded_keeps_its_bytes_and_says_why(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """An unknown id, a cut payload, plain text, and broken JSON: a line each, and the exit code is 1."""
    whole = avro(registry, name, {"name": "Ada", "age": 2})
    no_json = framed_json(registry, f"{name}-json", b"{")
    values = (whole[:-1], b"\0\x7f\xff\xff\xff\xff", b"plain", no_json, b"", whole)
    write(raftlog, name, *((None, each, {}) for each in values))
    ran = raftlog(
        "consume", "-t", name, "-e", "-s", "value=registry", "-D", "|", "-r", registry_url(registry)
    )
    assert ran.returncode == exits.FAILED
    assert ran.out == b"|".join((*values[:-1], b'{"name":"Ada","age":2}', b""))
    cut, unknown, plain, broken, empty, end = ran.stderr.split("\n")
    at = f"raftlog: {name} 0 at offset"
    assert cut.startswith(f"{at} 0: the value is printed as it is: it is not of its schema id ")
    assert unknown == f"{at} 1: the value is printed as it is: the registry has no schema with id 2147483647"
    assert plain == f"{at} 2: the value is printed as it is: it does not begin with the id of a schema"
    assert broken.startswith(f"{at} 3: ") and "it is not JSON" in broken
    assert empty.startswith(f"{at} 4: ") and end == ""


def registry_url(registry: SchemaRegistryClient) -> str:
    return str(registry._rest_client.base_urls[0])


def test_a_registry_that_is_away_costs_a_line_and_no_record(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """The records are printed as they are, all after one line."""
    value = avro(registry, name, {"name": "Ada", "age": 2})
    write(raftlog, name, (None, value, {}), (None, value, {}))
    url = f"http://127.0.0.1:{free_port()}"
    ran = raftlog("consume", "-t", name, "-e", "-s", "registry", "--registry", url, "-D", "|")
    assert (ran.returncode, ran.out) == (exits.FAILED, value + b"|" + value + b"|")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"raftlog: no answer at {url} (Connection refused)")
    assert line.endswith("keys and values without a known schema are printed as they are meanwhile")


def test_an_address_that_is_no_registry_says_so(
    raftlog: CommandLine,
    served: AdminCluster,
    registry: SchemaRegistryClient,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another HTTP service returns 404, too: no id is said to be unknown for that."""
    write(raftlog, name, (None, avro(registry, name, {"name": "Ada"}), {}))
    ran = raftlog("consume", "-t", name, "-e", "-s", "registry", "-r", served.admin_url(1))
    assert (ran.returncode, len(ran.stderr.splitlines())) == (exits.FAILED, 1)
    assert "the HTTP API answers there, not the schema registry" in ran.stderr
    ran = raftlog("consume", "-t", name, "-e", "-s", "registry", "-r", "here")
    assert (ran.returncode, ran.stdout) == (exits.USAGE, "")
    assert "--registry here: expected http://HOST:PORT" in ran.stderr
    decoder = decoder_of(Target(raftlog.bootstrap), served.schema_registry_url(1), ("value",))
    for body in ({"detail": "Not Found"}, {"error_code": 404}, [], None):
        monkeypatch.setattr(HttpApi, "ask", lambda *_, body=body, **_accepted: body)
        with pytest.raises(Failure, match="returns no schemas: it has no schema registry's answer"):
            decoder._ask("/schemas/ids/1", 1.0)


def test_a_share_group_decodes_and_acknowledges(
    raftlog: CommandLine, registry: SchemaRegistryClient, name: str
) -> None:
    """A record that cannot be decoded was printed, so it is accepted as the others."""
    reset = raftlog("share-group", "reset", name, "-t", name, "--to-earliest", "--execute")
    assert reset.returncode == exits.OK, reset.stderr
    write(raftlog, name, (None, avro(registry, name, {"name": "Ada", "age": 3}), {}), (None, b"plain", {}))
    taking = ("consume", "--share", name, "-e", "-s", "value=registry", name)
    ran = raftlog(*taking)
    assert (ran.returncode, ran.stdout) == (exits.FAILED, '{"name":"Ada","age":3}\nplain\n')
    assert "0 at offset 1: the value is printed as it is" in ran.stderr
    assert raftlog(*taking).stdout == ""


def record(offset: int, value: bytes) -> Record:
    return Record(b"orders", 0, offset, None, value, (), 0, 0, 1)


def decoder_by(ask: Callable[[str], Any]) -> RegistryDecoder:
    return RegistryDecoder(lambda path, _timeout_s: ask(path), ("value",))


def test_hostile_ids_fill_no_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Each record may name another schema. What is kept is bounded, and a registry's nonsense is one line."""
    decoder = decoder_by(lambda _path: {"schema": ["no text"], "references": [{"name": 1}]})
    for number in range(2 * MAX_SCHEMAS + 1):
        value = b"\0" + number.to_bytes(4, "big")
        assert decoder.decoded(record(number, value)).value == value
        assert len(decoder._readers) <= MAX_SCHEMAS
    assert "what the registry returned is no schema" in capsys.readouterr().err


def test_schemas_that_refer_to_each_other_end(capsys: pytest.CaptureFixture[str]) -> None:
    """No registry should have them; the number of requests is bounded all the same."""
    asked = []

    def ask(path: str) -> Any:
        asked.append(path)
        return {"schema": '"long"', "references": [{"name": "a", "subject": "s", "version": 1}]}

    decoded = decoder_by(ask).decoded(record(0, b"\0\0\0\0\x01\x04"))
    assert (decoded.value, decoded.value_schema_id, len(asked)) == (b"2", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_registry_that_returns_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not before: a reader of a long topic does not wait for it at each record."""
    now, answers, asked = [100.0], [False], []
    monkeypatch.setattr("raftlog.cli.registry_decoder.time.monotonic", lambda: now[0])

    def ask(path: str) -> Any:
        asked.append(path)
        if not answers[0]:
            raise Failure("no answer", exits.UNREACHABLE)
        return {"schema": '"long"'}

    decoder, value = decoder_by(ask), b"\0\0\0\0\x01\x04"
    for number in range(3):
        assert decoder.decoded(record(number, value)).value == value
    assert (len(asked), capsys.readouterr().err.count("\n")) == (1, 1)
    now[0] += 6
    assert decoder.decoded(record(3, value)).value == value
    assert (len(asked), capsys.readouterr().err) == (2, "")
    now[0], answers[0] = now[0] + 6, True
    assert decoder.decoded(record(4, value)).value == b"2"
    assert decoder.code == exits.FAILED
