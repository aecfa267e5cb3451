"""Attacks on the nodes' state for each client: rates of made-up names and addresses, and metrics that clients push."""

from __future__ import annotations

import contextlib
import random
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from raftlog.protocol.codec import RequestHeader, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.attacks.bombs import gzip_bomb, lz4_bomb, snappy_bomb, zstd_bomb
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ELSEWHERE,
    Line,
    Target,
    counted,
    expect,
    for_seconds,
    request,
)

METADATA, ALTER_CONFIGS, ALTER_QUOTAS, SUBSCRIPTIONS, PUSH = 3, 44, 49, 71, 72
CLIENT_METRICS: Final = 16
SUBSCRIPTION: Final = "attack"
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MIB: Final = 1 << 20
AT_ONCE: Final = 250
"""Entities of one AlterClientQuotas."""


MAX_PUSHES: Final = 1_000
"""Pushes of a hundred points that one address may have taken in six seconds: the fields of about 550 are allowed."""


# --- quotas


def _alter_quotas(entities: Sequence[tuple[str, str | None]], key: str, value: float | None) -> bytes:
    """Return the request that sets a quota of each entity, or takes it back (None)."""
    make = request_builders(ALTER_QUOTAS, 1)
    entries = tuple(
        make.EntryData(
            entity=(make.EntityData(entity_type=kind, entity_name=name),),
            ops=(make.OpData(key=key, value=value or 0.0, remove=value is None),),
        )
        for kind, name in entities
    )
    return request(ALTER_QUOTAS, 1, "AlterClientQuotasRequest", entries=entries, validate_only=False)


@contextlib.contextmanager
def _quota(target: Target, kind: str, key: str, value: float) -> Iterator[None]:
    """Set a default quota for as long as the context lasts."""
    with target.line(source=ELSEWHERE) as line:
        expect(line.ask(_alter_quotas([(kind, None)], key, value), 10) is not None, "no quota was set")
    try:
        yield
    finally:
        with target.line(source=ELSEWHERE) as line:
            line.ask(_alter_quotas([(kind, None)], key, None), 10)


def _named(name: str) -> bytes:
    """Return a request that comes from a client of this name."""
    message = request_builders(METADATA, 12).MetadataRequest(topics=(), allow_auto_topic_creation=False)
    return encode_request(RequestHeader(METADATA, 12, 1, name), message)


@attack("kafka", within_s=40)
def a_client_id_for_each_request(target: Target) -> str:
    """Under a default quota for client ids, another id in each request leaves all other clients their time."""
    sent = heard = 0
    with _quota(target, "client-id", "request_percentage", 1_000.0), target.lines(8) as lines:
        going_on = for_seconds(6)
        while going_on():
            for line in lines:
                some = b"".join(_named(f"made-up-{sent + number}") for number in range(100))
                sent += 100
                line.send(some, within_s=0.1)
                heard += len(line.read(0.005, MIB))
    return f"{sent} ids, {heard // 1024} KiB of answers"


@attack("kafka", within_s=40)
def addresses_by_the_thousand(target: Target) -> str:
    """Under a default quota for addresses, connections from thousands of them leave all other clients their time."""
    begun, going_on = 0, for_seconds(6)
    with _quota(target, "ip", "connection_creation_rate", 1_000.0):
        while going_on():
            source = f"127.{2 + begun % 200}.{begun // 200 % 250}.{1 + begun // 50_000}"
            with contextlib.suppress(OSError), target.line(node=1 + begun % 3, source=source) as line:
                line.close(reset=True)
            begun += 1
    return f"{begun} addresses"


@attack("kafka", within_s=60)
def quotas_of_made_up_names(target: Target) -> str:
    """Quotas of thousands of made-up users are refused beyond a bound, or cost no more than their names."""
    users = [("user", f"made-up-{number}") for number in range(5_000)]
    words = []
    with target.line(source=ELSEWHERE) as line:
        for value in (1_000.0, None):
            for start in range(0, len(users), AT_ONCE):
                some = _alter_quotas(users[start : start + AT_ONCE], "producer_byte_rate", value)
                words.append("answered" if line.ask(some, 10) is not None else "no answer")
    return counted(words)


# --- metrics


def _field(number: int, data: bytes) -> bytes:
    """Return a field of a protobuf message, its length in front."""
    size, head = len(data), bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + data


def _metrics(points: int, name: str = "org.apache.kafka.attack") -> bytes:
    """Return OTLP metrics: one gauge of so many points, each with a label of its own."""
    found = bytearray()
    for number in range(points):
        value = _field(2, _field(1, str(number).encode()))
        found += _field(1, b"\x21" + struct.pack("<d", number) + _field(7, _field(1, b"label") + value))
    gauge = _field(1, name.encode()) + _field(5, bytes(found))
    return _field(1, _field(2, _field(2, gauge)))


@contextlib.contextmanager
def _subscribed(target: Target) -> Iterator[None]:
    """Request all metrics from all clients for as long as the context lasts."""

    def alter(configs: dict[str, str | None]) -> None:
        make = request_builders(ALTER_CONFIGS, 1)
        changes = tuple(
            make.AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
            for name, value in configs.items()
        )
        named = make.AlterConfigsResource(
            resource_type=CLIENT_METRICS, resource_name=SUBSCRIPTION, configs=changes
        )
        with target.line(source=ELSEWHERE) as line:
            line.ask(
                request(
                    ALTER_CONFIGS,
                    1,
                    "IncrementalAlterConfigsRequest",
                    resources=(named,),
                    validate_only=False,
                ),
                10,
            )

    alter({"metrics": "*", "interval.ms": "100"})
    try:
        yield
    finally:
        alter({"metrics": None, "interval.ms": None})


def _push(line: Line, metrics: bytes, compression: int, chance: random.Random) -> str:
    """Push metrics as a client that was never seen before; return the outcome in words."""
    name = uuid.UUID(bytes=chance.randbytes(16), version=4)
    asked = line.request(SUBSCRIPTIONS, 0, "GetTelemetrySubscriptionsRequest", client_instance_id=name)
    answer: Any = None
    if asked is not None:
        answer = line.request(
            PUSH,
            0,
            "PushTelemetryRequest",
            client_instance_id=name,
            subscription_id=asked.subscription_id,
            terminating=False,
            compression_type=compression,
            metrics=metrics,
        )
    return "no answer" if answer is None else f"error {int(answer.error_code)}"


def _pushed(target: Target, pushes: list[tuple[int, bytes]], going_on: Callable[[], bool]) -> list[str]:
    """Push each in turn, again and again, to node 1."""
    chance = random.Random(5)
    words: list[str] = []
    while going_on():
        with target.line() as line:
            while going_on() and not line.closed:
                compression, metrics = pushes[len(words) % len(pushes)]
                words.append(_push(line, metrics, compression, chance))
    return words


@attack("kafka", within_s=40)
def metrics_of_made_up_clients(target: Target) -> str:
    """Metrics that come under another instance id each time are read at a bounded rate, beside all other clients."""
    with _subscribed(target):
        words = _pushed(target, [(NONE, _metrics(100))], for_seconds(6))
    expect(0 < words.count("error 0") <= MAX_PUSHES, f"pushes are taken at no bounded rate: {counted(words)}")
    return counted(words)


@attack("kafka", within_s=40)
def metrics_of_very_many_fields(target: Target) -> str:
    """Metrics of very many tiny fields, or nested without end, are read in turns and up to a bound."""
    nested = b""
    for _ in range(2_000):
        nested = _field(1, nested)
    pushes = [b"\x08\x01" * 400_000, _field(1, b"\x0a\x00" * 300_000), nested, _metrics(8_000)]
    with _subscribed(target):
        return counted(_pushed(target, [(NONE, each) for each in pushes], for_seconds(6)))


@attack("kafka", within_s=60)
def metrics_that_are_packed(target: Target) -> str:
    """Metrics in gzip, snappy, lz4 and zstd that unfold to hundreds of megabytes are refused, and not unpacked."""
    size = 256 * MIB
    packed = [
        (GZIP, gzip_bomb(size)),
        (LZ4, lz4_bomb(size)),
        (ZSTD, zstd_bomb(size)),
        (SNAPPY, snappy_bomb()),
    ]
    packed += [(each, b"\xff" * 1_000) for each in (GZIP, SNAPPY, LZ4, ZSTD, 9, -1)]
    with _subscribed(target):
        words = _pushed(target, [(codec, each[: 900 * 1024]) for codec, each in packed], for_seconds(6))
    expect("error 0" not in words, "a bomb was taken for metrics")
    return counted(words)


@attack("kafka", within_s=30)
def metrics_that_nobody_wants(target: Target) -> str:
    """Pushes that no subscription asks for are not read, whatever they say, and cost no more than their bytes."""
    packed = zlib.compress(_metrics(5_000), wbits=31)
    return counted(_pushed(target, [(NONE, _metrics(8_000)), (GZIP, packed), (NONE, b"")], for_seconds(4)))
