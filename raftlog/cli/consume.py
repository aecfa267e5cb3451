"""`raftlog consume`, with the flags of kcat -C and, with a group, of kcat -G; on librdkafka."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli import kcat_options as options
from raftlog.cli.cluster_command import verb
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.kcat_format import Print, Record, envelope, formatter, read_delimiter, read_unpack
from raftlog.cli.librdkafka import (
    Troubles,
    client_settings,
    confluent_kafka,
    exit_of,
    list_topics,
    words_of,
)
from raftlog.cli.target import Target

POLL_S: Final = 0.2
BATCH: Final = 1000

consume = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Range:
    """The positions to begin and to end at (-o): a position, or times in ms. `position` "" is the mode's default."""

    position: str = ""
    start_ms: int | None = None
    stop_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The input: topics in a group, or a topic without; `partition` -1 is all. `settings` are the consumer's."""

    topics: Sequence[str]
    group: str
    partition: int
    span: Range
    settings: Mapping[str, object]


@verb(consume, "consume")
def read(
    target: Target,
    topics: options.Subscribed = None,
    *,
    topic: options.TopicName = "",
    group: options.Group = None,
    partition: options.FromPartition = -1,
    offset: options.Offsets = None,
    from_beginning: options.FromBeginning = False,
    count: options.ReadCount = 0,
    exit_at_end: options.ExitAtEnd = False,
    idle: options.IdleMs = 0,
    format: options.Format = "",
    json: options.Json = False,
    key_delimiter: options.PrintKeys = None,
    delimiter: options.Delimiter = "\\n",
    unpack: options.Unpack = None,
    nulls: options.PrintNulls = False,
    unbuffered: options.Unbuffered = False,
    carry_on: options.CarryOn = False,
    isolation: options.Isolation = "",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Print records, one per line.

    \b
    raftlog consume -t orders -e                  all there are, and stop
    raftlog consume -t orders -o -10 -c 10 -J     the last ten, as JSON
    raftlog consume -t orders -o s@1767225600000  from a time on, and follow
    raftlog consume -G billing orders payments    in a group
    """
    names = [each for each in (topic, *(topics or [])) if each]
    _check(names, group, partition)
    span = _read_offsets((["beginning"] if from_beginning else []) + (offset or []))
    show = _printer(format, key_delimiter, delimiter=delimiter, json=json, nulls=nulls, unpacked=unpack or [])
    wanted = Wanted(
        show=show,
        count=count,
        exit_at_end=exit_at_end,
        stop_ms=span.stop_ms,
        idle_s=idle / 1000,
        unbuffered=unbuffered,
        carry_on=carry_on,
        verbose=verbose and not quiet,
        commits=bool(group) or span.position == "stored",
    )
    source = Source(names, group or "", partition, span, {"isolation.level": isolation} if isolation else {})
    return _run(target, source, wanted, quiet=quiet)


def _run(target: Target, source: Source, wanted: Wanted, *, quiet: bool) -> int:
    """Read and print until the end; return the exit code."""
    given = client_settings(target.settings)
    consumer, troubles = target.client("Consumer", _settings(source, given))
    troubles.quiet = quiet
    reader = Reader(target, consumer, wanted, troubles)
    try:
        with (
            ended_by_signals()
        ):  # or what was printed is not committed, and the group waits for a dead member
            return _read(reader, source)
    except confluent_kafka().KafkaException as error:
        raise troubles.failure(error.args[0], consumer, needs="READ") from None
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    finally:
        try:
            sys.stdout.flush()
        finally:
            consumer.close()


def _read(reader: Reader, source: Source) -> int:
    if source.group:
        reader.subscribe(source.topics, source.span)
    else:
        reader.assign(source.topics[0], source.partition, source.span)
    return reader.run()


def _printer(
    format: str,
    key_delimiter: str | None,
    *,
    delimiter: str,
    json: bool,
    nulls: bool,
    unpacked: Sequence[str],
) -> Print:
    if json:
        return envelope(read_delimiter(delimiter))
    keys = "" if key_delimiter is None else "%k" + _literal(key_delimiter)
    return formatter(format or f"{keys}%s{_literal(delimiter)}", nulls=nulls, unpacked=read_unpack(unpacked))


def _check(names: Sequence[str], group: str | None, partition: int) -> None:
    if group == "":  # as a script's unset variable; without a group no offsets would be committed
        raise Failure("-G: the group's id is empty", exits.USAGE)
    if not names:
        raise Failure("say which topic: -t TOPIC (see raftlog consume --help)", exits.USAGE)
    if group and partition >= 0:
        raise Failure("-G and -p do not go together: a group shares all partitions", exits.USAGE)
    if not group and len(names) > 1:
        raise Failure("several topics need a group: -G GROUP TOPIC...", exits.USAGE)


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def _read_offsets(given: Sequence[str]) -> Range:
    """Read the -o options; of one kind, the last counts. Raises Failure."""
    position, times = "", {"s@": None, "e@": None}
    for each in given:
        try:
            if each[:2] in times:
                times[each[:2]] = int(each[2:])  # type: ignore[assignment]
            elif each in ("beginning", "end", "stored"):
                position = each
            else:
                position = str(int(each))
        except ValueError:
            raise Failure(
                f"-o {each}: beginning, end, stored, a whole number, s@MS or e@MS", exits.USAGE
            ) from None
    start_ms, stop_ms = times["s@"], times["e@"]
    if start_ms is not None and stop_ms is not None and start_ms > stop_ms:
        raise Failure(f"-o s@{start_ms} is after -o e@{stop_ms}: no record is in between", exits.USAGE)
    return Range(position, start_ms, stop_ms)


def _settings(source: Source, given: Mapping[str, str]) -> dict[str, object]:
    shared = {
        "enable.partition.eof": True,
        "enable.auto.offset.store": False,  # what was printed is committed, not what was fetched
        **source.settings,
    }
    if source.group:
        return {**shared, "group.id": source.group}
    is_stored = source.span.position == "stored"
    if is_stored and "group.id" not in given:
        raise Failure("-o stored: whose? Say -X group.id=GROUP", exits.USAGE)
    return {
        **shared,
        "group.id": "raftlog-consume",
        "enable.auto.commit": is_stored,
        "auto.offset.reset": "earliest",  # only records that were deleted meanwhile are skipped
    }


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to print, and when to stop: `count` 0 and `idle_s` 0 are without end."""

    show: Print
    count: int
    exit_at_end: bool
    stop_ms: int | None
    idle_s: float
    unbuffered: bool
    carry_on: bool
    verbose: bool
    commits: bool


@dataclass(slots=True)
class Reader:
    """Prints what a consumer gets until the end."""

    target: Target
    consumer: Any
    wanted: Wanted
    troubles: Troubles
    _going: set[tuple[str, int]] | None = None
    """Partitions that are not at their end; None until a group has shared them out."""
    _leaders: dict[str, dict[int, int]] = field(default_factory=dict)
    _printed: int = 0
    _last: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The last message of each partition that was printed and is not to be committed yet."""
    _code: int = 0

    def assign(self, topic: str, partition: int, span: Range) -> None:
        """Read these partitions, without a group. Raises Failure when they are not there."""
        there = self._leaders_of(topic)
        if not there:
            raise Failure(f"there is no topic {topic}", exits.NOT_FOUND)
        if partition >= len(there):
            known = f"0 to {len(there) - 1}" if len(there) > 1 else "0 alone"
            raise Failure(f"topic {topic} has no partition {partition}, but {known}", exits.NOT_FOUND)
        chosen = sorted(there) if partition < 0 else [partition]
        self._going = {(topic, each) for each in chosen}
        self.consumer.assign(self._begin(topic, chosen, span))

    def _begin(self, topic: str, partitions: Sequence[int], span: Range) -> list[Any]:
        library = confluent_kafka()
        if span.start_ms is not None:
            wanted = [library.TopicPartition(topic, each, span.start_ms) for each in partitions]
            return list(self.consumer.offsets_for_times(wanted, timeout=self.target.timeout_s))
        return [
            library.TopicPartition(topic, each, self._offset(topic, each, span.position))
            for each in partitions
        ]

    def _offset(self, topic: str, partition: int, position: str) -> int:
        """Return where to begin: never outside what the partition holds, where a consumer would be sent elsewhere."""
        library = confluent_kafka()
        named: dict[str, int] = {
            "": library.OFFSET_BEGINNING,
            "beginning": library.OFFSET_BEGINNING,
            "end": library.OFFSET_END,
            "stored": library.OFFSET_STORED,
        }
        if position in named:
            return named[position]
        low, high = self.consumer.get_watermark_offsets(
            library.TopicPartition(topic, partition), timeout=self.target.timeout_s
        )
        offset = int(position)
        return int(max(low, min(high, offset if offset >= 0 else high + offset)))

    def subscribe(self, topics: Sequence[str], span: Range) -> None:
        """Read as a member of a group; what it has committed goes before `span`' default, not before a position."""
        self._going = None
        list_topics(self.consumer, self.troubles, self.target.timeout_s)  # or fails while no broker answers

        def revoked(_consumer: Any, _partitions: list[Any]) -> None:
            self._going = None

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            self._going = {(each.topic, each.partition) for each in partitions}
            if span.position or span.start_ms is not None:
                consumer.assign([self._begin(each.topic, [each.partition], span)[0] for each in partitions])

        self.consumer.subscribe(list(topics), on_assign=assigned, on_revoke=revoked)

    def run(self) -> int:
        """Print records; returns the exit code."""
        got_at = time.monotonic()
        while not self._at_its_end():
            first = self.consumer.poll(POLL_S)
            if first is None:
                sys.stdout.buffer.flush()
                if self.wanted.idle_s and time.monotonic() - got_at > self.wanted.idle_s:
                    break
                continue
            got_at = time.monotonic()
            try:
                code = self._take([first, *self._more()])
            finally:
                self._settle()
            if code is not None:
                return code
        return self._code

    def _take(self, messages: Sequence[Any]) -> int | None:
        """Print messages; return the exit code at the end."""
        for message in messages:
            if (error := message.error()) is None:
                self._print(message)
            elif self._is_fatal(message, error):
                self._code = exit_of(error)
                print(f"raftlog: {self._about(message)}{words_of(error, 'READ')}", file=sys.stderr)
                if not self.wanted.carry_on:
                    return self._code
            if self.wanted.count and self._printed >= self.wanted.count:
                return self._code
        return None

    def _settle(self) -> None:
        """Commit the printed records, once the reader of the output has them."""
        if not self._last:
            return
        sys.stdout.buffer.flush()
        last, self._last = list(self._last.values()), {}
        for message in last:
            try:
                self.consumer.store_offsets(message)
            except confluent_kafka().KafkaException:
                continue  # the partition is another member's by now

    def _at_its_end(self) -> bool:
        """Whether every partition is read; a group may have none for this member, and give it some later."""
        return (
            self._going is not None
            and not self._going
            and (self.wanted.exit_at_end or self.wanted.stop_ms is not None)
        )

    def _more(self) -> list[Any]:
        """Take the available messages, but no more than can be printed."""
        left = self.wanted.count - self._printed - 1 if self.wanted.count else BATCH
        return list(self.consumer.consume(min(BATCH, left), 0)) if left > 0 else []

    def _print(self, message: Any) -> None:
        tp = (message.topic(), message.partition())
        kind, timestamp_ms = message.timestamp()
        if self.wanted.stop_ms is not None and timestamp_ms >= self.wanted.stop_ms:
            if self._going is not None:
                self._going.discard(tp)
            self.consumer.pause([confluent_kafka().TopicPartition(*tp)])
            return
        if self._going is not None:  # else the group is sharing anew just now
            self._going.add(tp)
        record = Record(
            tp[0].encode(),
            tp[1],
            message.offset(),
            message.key(),
            message.value(),
            message.headers() or (),
            kind,
            timestamp_ms,
            self._leaders_of(tp[0]).get(tp[1], -1),
        )
        try:
            sys.stdout.buffer.write(self.wanted.show(record))
        except Failure as failure:
            raise Failure(f"{tp[0]} {tp[1]} at offset {record.offset}: {failure}") from None
        if self.wanted.unbuffered:
            sys.stdout.buffer.flush()
        if self.wanted.commits:
            self._last[tp] = message
        self._printed += 1

    @staticmethod
    def _about(message: Any) -> str:
        """Return the partition of an error, if any."""
        if message.topic() is None:
            return ""
        return (
            f"topic {message.topic()}: "
            if message.partition() < 0
            else f"{message.topic()} {message.partition()}: "
        )

    def _is_fatal(self, message: Any, error: Any) -> bool:
        """Whether it is an error and not only a partition's end, or of a group that is not asked for."""
        if (
            error.code() == confluent_kafka().KafkaError.GROUP_AUTHORIZATION_FAILED
            and not self.wanted.commits
        ):
            return False  # librdkafka looks for a coordinator all the same
        if error.code() != confluent_kafka().KafkaError._PARTITION_EOF:
            return True
        sys.stdout.buffer.flush()
        tp = (message.topic(), message.partition())
        if self.wanted.exit_at_end and self._going is not None:
            self._going.discard(tp)
        if self.wanted.verbose:
            end = ": exiting" if not self._going else ""
            print(
                f"% Reached end of topic {tp[0]} [{tp[1]}] at offset {message.offset()}{end}",
                file=sys.stderr,
            )
        return False

    def _leaders_of(self, topic: str) -> dict[int, int]:
        """Return the leaders of a topic's partitions when it was first looked up; empty without such a topic."""
        if topic not in self._leaders:
            metadata = list_topics(self.consumer, self.troubles, self.target.timeout_s, topic)
            found = metadata.topics[topic]
            if found.error is not None and exit_of(found.error) != exits.NOT_FOUND:
                raise Failure(f"topic {topic}: {words_of(found.error, 'READ')}", exit_of(found.error))
            self._leaders[topic] = {each.id: each.leader for each in found.partitions.values()}
        return self._leaders[topic]
