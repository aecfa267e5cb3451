"""The options of `format("raftlog")`: the same as of Spark's Kafka source and sink, validated, with all faults reported
together.

Names are case-insensitive. `kafka.*` goes to the client library without the prefix, except for settings that the source
decides, or that reach beyond the query (`deployment`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from raftlog.pipeline.deployment import reach_of
from raftlog.pipeline.login import ClientSettings, for_librdkafka
from raftlog.pipeline.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    TopicPartition,
    assigned_from_json,
    from_json,
)

T = TypeVar("T")
Mode = Literal["batch", "stream"]
PREFIX: Final = "kafka."

SHARED: Final = ("kafka.bootstrap.servers", "raftlog.bootstrap.servers")
READ: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
WRITE: Final = ("topic", "includeTimestamp")
SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode"})
"""Spark hands its own options to the source or sink as well."""

NOT_FOR_READING: Final = {
    "auto.offset.reset": "use startingOffsets: the source says itself where it reads",
    "enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "enable.auto.offset.store": "offsets are kept in Spark's checkpoint",
    "enable.partition.eof": "the source needs it",
    "key.deserializer": "keys are read as binary",
    "value.deserializer": "values are read as binary",
    "interceptor.classes": "there are no interceptors",
}
NOT_FOR_WRITING: Final = {
    "key.serializer": "give the column key as string or binary",
    "value.serializer": "give the column value as string or binary",
    "transactional.id": "the sink is at least once",
    "delivery.report.only.error": "the sink needs it",
}
_DELAY: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h)\s*")
_DELAY_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class OptionFaults(ValueError):
    """The faults of the options, each with the option's name."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("raftlog options: " + "; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: of these topics, of topics with names that match a pattern, or just these partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def covers(self, at: TopicPartition) -> bool:
        """Return whether a partition of that name would be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, at.topic) is not None
        return at.topic in self.topics or at in self.assigned

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        if self.topics:
            return f"subscribe={','.join(self.topics)}"
        return f"assign={','.join(map(str, self.assigned))}"


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The earliest (-2) or latest (-1) offset of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition, each may be -2 or -1."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first offset with a timestamp (ms since 1970) at or after the common or the partition's own time."""

    common_ms: int | None
    own_ms: Offsets
    option: str


Bound = Everywhere | AtOffsets | AtTimes


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The input of a query, and how it is read. `client` are the client library's own settings."""

    subscription: Subscription
    start: Bound
    end: Bound
    client: dict[str, str]
    latest_if_too_late: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    """The names of the columns to read, none for all: what the schema says that a query gives."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    group_id_prefix: str = "spark-raftlog-source"
    fetch_offset_retries: int = 3
    fetch_offset_retry_ms: int = 10
    poll_timeout_ms: int = 120_000


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The target of rows. `topic` wins over the column of that name."""

    client: dict[str, str]
    topic: str | None = None
    include_timestamp: bool = False


def read_options(options: Mapping[str, str], mode: Mode | None = None) -> ReadOptions:
    """Check the options of a batch or a stream, or (None) what both have in common. Raises OptionFaults."""
    given = _Given(options, known=(*SHARED, *READ))
    given.reject_unknown("reading")
    subscription = _subscription(given)
    start = _bound(given, "starting", EARLIEST if mode == "batch" else LATEST)
    end = _bound(given, "ending", LATEST)
    _check_mode(given, start, end, mode)
    found = ReadOptions(
        subscription=subscription,
        start=start,
        end=end,
        client=given.client(NOT_FOR_READING),
        latest_if_too_late=given.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
        == "latest",
        fail_on_data_loss=given.truth("failOnDataLoss", True),
        include_headers=given.truth("includeHeaders", False),
        min_partitions=given.number("minPartitions", None),
        max_records_per_partition=given.number("maxRecordsPerPartition", None),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", None),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", None),
        max_trigger_delay_ms=given.delay("maxTriggerDelay", 15 * 60_000),
        group_id_prefix=given.text("groupIdPrefix") or "spark-raftlog-source",
        fetch_offset_retries=given.number("fetchOffset.numRetries", 3, least=0) or 0,
        fetch_offset_retry_ms=given.number("fetchOffset.retryIntervalMs", 10, least=0) or 0,
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 120_000) or 0,
    )
    most, fewest = found.max_offsets_per_trigger, found.min_offsets_per_trigger
    if most is not None and fewest is not None and most < fewest:
        given.fault("minOffsetsPerTrigger", f"{fewest} is more than maxOffsetsPerTrigger={most}")
    given.raise_faults()
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises OptionFaults."""
    given = _Given(options, known=(*SHARED, *WRITE))
    given.reject_unknown("writing")
    found = WriteOptions(
        client=given.client(NOT_FOR_WRITING),
        topic=given.text("topic"),
        include_timestamp=given.truth("includeTimestamp", False),
    )
    acks = found.client.get("acks", "all")
    if acks not in ("all", "-1"):
        given.fault(
            "kafka.acks", f"{acks}: the sink needs acks=all, since it reports records as durable to Spark"
        )
    given.raise_faults()
    return found


@dataclass
class _Given:
    """The options as given, by lower-case name, and the faults found so far."""

    options: Mapping[str, str]
    known: tuple[str, ...]
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.options = {name.lower(): str(value) for name, value in self.options.items()}

    def fault(self, name: str, what: str) -> None:
        self.faults.append(f"{name}: {what}")

    def raise_faults(self) -> None:
        if self.faults:
            raise OptionFaults(self.faults)

    def reject_unknown(self, doing: str) -> None:
        """Note unknown options, with the name that was probably meant."""
        names = {name.lower(): name for name in self.known}
        everybody = {name.lower(): name for name in (*SHARED, *READ, *WRITE)}
        for name in self.options:
            if name in names or name.startswith(PREFIX) or name in SPARKS_OWN:
                continue
            if name in everybody:
                self.fault(everybody[name], f"is not for {doing}")
                continue
            close = difflib.get_close_matches(name, names, n=1)
            self.fault(name, f"unknown option{f', {names[close[0]]} is near' if close else ''}")

    def text(self, name: str) -> str | None:
        value = self.options.get(name.lower())
        if value is not None and not value.strip():
            self.fault(name, "is empty")
            return None
        return value

    def number(self, name: str, default: int | None, *, least: int = 1) -> int | None:
        return self._parsed(name, default, lambda text: _number(text, least))

    def truth(self, name: str, default: bool) -> bool:
        return self._parsed(name, default, _truth)

    def delay(self, name: str, default: int) -> int:
        return self._parsed(name, default, _delay)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        return self._parsed(name, default, lambda text: _choice(text, choices))

    def _parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except ValueError as error:
            self.fault(name, str(error))
            return default

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return an option parsed, or None when it is missing or wrong."""
        return self._parsed(name, None, parse)

    def client(self, refused: Mapping[str, str]) -> dict[str, str]:
        """Return the settings for the client library, with the servers."""
        found = {
            name.removeprefix(PREFIX): value
            for name, value in self.options.items()
            if name.startswith(PREFIX)
        }
        for name in sorted(found):
            if (why := refused.get(name) or reach_of(name)) is not None:
                self.fault(PREFIX + name, why)
        servers = [name for name in SHARED if self.text(name) is not None]
        if len({self.options[name] for name in servers}) > 1:
            self.fault(SHARED[1], f"differs from {SHARED[0]}; give one of them")
        if not servers:
            if not any(name in self.options for name in SHARED):
                self.fault(SHARED[0], "is missing (host:port,…); raftlog.bootstrap.servers will do as well")
        else:
            found["bootstrap.servers"] = self.options[servers[0]]
        found, faults = for_librdkafka(found)
        for name, why in faults:
            self.fault(PREFIX + name, why)
        return ClientSettings(found)


def _subscription(given: _Given) -> Subscription:
    ways = ("subscribe", "subscribePattern", "assign")
    chosen = [way for way in ways if way.lower() in given.options]
    if len(chosen) != 1:
        given.fault(", ".join(chosen) or "subscribe", f"exactly one of {', '.join(ways)} says what to read")
        return Subscription()
    if chosen == ["subscribe"]:
        return Subscription(topics=given.parsed("subscribe", _topics) or ())
    if chosen == ["subscribePattern"]:
        return Subscription(pattern=given.parsed("subscribePattern", _pattern))
    return Subscription(assigned=tuple(given.parsed("assign", assigned_from_json) or ()))


def _bound(given: _Given, which: Literal["starting", "ending"], default: int) -> Bound:
    """Return where reading begins or ends; the common time wins over single times, these win over offsets."""
    common, own, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    time_ms = given.number(common, None, least=0)
    times = given.parsed(own, lambda text: from_json(text, lowest=0))
    position = given.parsed(offsets, _position)
    if time_ms is not None:
        return AtTimes(time_ms, {}, common)
    if times is not None:
        return AtTimes(None, times, own)
    return Everywhere(default) if position is None else position


def _position(text: str) -> Bound:
    match text.strip().lower():
        case "earliest":
            return Everywhere(EARLIEST)
        case "latest":
            return Everywhere(LATEST)
    if not text.lstrip().startswith("{"):
        raise ValueError(f'{text!r} is none of earliest, latest or JSON like {{"topic":{{"0":23}}}}')
    return AtOffsets(from_json(text))


def _check_mode(given: _Given, start: Bound, end: Bound, mode: Mode | None) -> None:
    if _names(end, EARLIEST):
        given.fault("endingOffsets", "earliest (-2) cannot be where reading ends")
    if mode == "batch":
        if _names(start, LATEST):
            given.fault("startingOffsets", "latest (-1) cannot be where a batch begins")
        _check_order(given, start, end)
        unfit = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
    elif mode == "stream":
        unfit = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    else:
        return
    for name in unfit:
        if name.lower() in given.options:
            given.fault(name, f"is not for a {mode}")


def _check_order(given: _Given, start: Bound, end: Bound) -> None:
    """Note partitions with an end before their start; offsets that need the log are compared later."""
    match start, end:
        case AtOffsets(first), AtOffsets(last):
            option, other = "startingOffsets", "endingOffsets"
        case AtTimes(None, first, option), AtTimes(None, last, other):
            pass
        case AtTimes(int(first_ms), _, option), AtTimes(int(last_ms), _, other):
            if first_ms > last_ms:
                given.fault(option, f"{first_ms} is greater than {other}={last_ms}")
            return
        case _:
            return
    for at in sorted(first.keys() & last.keys()):
        if first[at] > last[at] >= 0:
            given.fault(option, f"{at}: {first[at]} is greater than {last[at]} of {other}")


def _names(bound: Bound, offset: int) -> bool:
    match bound:
        case Everywhere(everywhere):
            return everywhere == offset
        case AtOffsets(offsets):
            return offset in offsets.values()
    return False


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if "" in topics:
        raise ValueError(f"{text!r} has an empty topic name")
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression ({error})") from None
    return text


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if number < least:
        raise ValueError(f"{number} is below {least}")
    return number


def _truth(text: str) -> bool:
    if (lower := text.strip().lower()) not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lower == "true"


def _delay(text: str) -> int:
    if (found := _DELAY.fullmatch(text.lower())) is None:
        raise ValueError(f"{text!r} is not a time like 500ms, 30s or 15m")
    return int(found[1]) * _DELAY_MS[found[2]]


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if (lower := text.strip().lower()) not in choices:
        raise ValueError(f"{text!r} is none of {', '.join(choices)}")
    return lower
