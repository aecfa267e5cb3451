"""`raftlog consume`, with the flags of kcat -C and, with a group, of kcat -G."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import typer

from raftlog.base.errors import (
    GroupIdNotFound,
    InconsistentGroupProtocol,
    KafkaError,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.cli import exits
from raftlog.cli.client_settings import CONSUMER_SETTINGS, choice, is_on, number
from raftlog.cli.cluster_command import verb
from raftlog.cli.consume_share import consume_share
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.group_lookup import SHARE, refuse_type
from raftlog.cli.kcat import options
from raftlog.cli.kcat.format import (
    REGISTRY,
    Print,
    Record,
    envelope,
    formatter,
    read_delimiter,
    read_unpack,
)
from raftlog.cli.kcat.wanted import Wanted
from raftlog.cli.target import Target, code_of, words_of
from raftlog.client.errors import Refused, Unreachable
from raftlog.client.fetching import PARTITION_BYTES, Fetched, Fetcher, Options
from raftlog.client.member import Member, Membership, commit_offsets, committed_offsets
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey

if TYPE_CHECKING:
    from raftlog.cli.registry_decoder import RegistryDecoder

POLL_S: Final = 0.2
WAIT_MS: Final = 500
"""How long a leader waits for records."""
RESETS: Final = {
    "smallest": EARLIEST,
    "earliest": EARLIEST,
    "beginning": EARLIEST,
    "largest": LATEST,
    "latest": LATEST,
    "end": LATEST,
    "error": None,
}
"""The values of auto.offset.reset."""
COMMITTED: Final = "read_committed"

consume = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Range:
    """The positions to begin and to end at (-o): a position, or times in ms. `position` "" is the mode's default."""

    position: str = ""
    start_ms: int | None = None
    stop_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The input: topics in a group, or a topic without; `partition` -1 is all."""

    topics: Sequence[str]
    group: str
    partition: int
    span: Range


@verb(consume, "consume", known=CONSUMER_SETTINGS)
def read(
    target: Target,
    topics: options.Subscribed = None,
    *,
    topic: options.TopicName = "",
    group: options.Group = None,
    share: options.Share = None,
    ack: options.Ack = "",
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
    registry: options.Registry = "",
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
    raftlog consume --share work orders           as one worker of a queue
    raftlog consume -t orders -e -s value=registry  values by their schemas
    """
    names = [each for each in (topic, *(topics or [])) if each]
    _check(names, group, partition, share=share, ack=ack)
    span = _read_offsets((["beginning"] if from_beginning else []) + (offset or []))
    unpacked = read_unpack(unpack or [])
    show = _printer(format, key_delimiter, delimiter=delimiter, json=json, nulls=nulls, unpacked=unpacked)
    decoder = _decoder(target, registry, unpacked)
    wanted = Wanted(
        show=show,
        count=count,
        exit_at_end=exit_at_end,
        stop_ms=span.stop_ms,
        idle_s=idle / 1000,
        unbuffered=unbuffered,
        carry_on=carry_on,
        verbose=verbose and not quiet,
        quiet=quiet,
        decode=None if decoder is None else decoder.decoded,
    )
    if share is not None:
        if isolation or span != Range():
            raise Failure(
                "--share: the group's configs have the isolation level, and where it begins", exits.USAGE
            )
        code = consume_share(target, share, tuple(names), ack=ack or options.ACKS[0], wanted=wanted)
    else:
        if isolation:
            target.settings.setdefault("isolation.level", isolation)
        code = _run(target, Source(names, group or "", partition, span), wanted)
    return code or (decoder.code if decoder else exits.OK)


def _decoder(target: Target, url: str, unpacked: Sequence[str | None]) -> RegistryDecoder | None:
    """Return what decodes keys, values or both by a registry, None for neither. Raise Failure."""
    fields = [name for name, how in zip(("key", "value"), unpacked, strict=True) if how == REGISTRY]
    if not fields:
        return None
    from raftlog.cli.registry_decoder import decoder_of

    return decoder_of(target, url, fields)


def _run(target: Target, source: Source, wanted: Wanted) -> int:
    """Read and print until the end; return the exit code."""
    fetcher = Fetcher(target.cluster, _options(target, source, wanted))
    offsets = _offsets(target, source, fetcher, quiet=wanted.quiet)
    reader = Reader(target, fetcher, offsets, wanted)
    try:
        with ended_by_signals(), target.failures(needs="READ"):
            try:
                return reader.run()
            finally:
                try:
                    sys.stdout.flush()
                finally:
                    offsets.close()  # or the group waits for a dead member
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    finally:
        fetcher.close()


def _options(target: Target, source: Source, wanted: Wanted) -> Options:
    settings = target.settings
    isolation = choice(settings, "isolation.level", (COMMITTED, "read_uncommitted"), COMMITTED)
    reset = RESETS[choice(settings, "auto.offset.reset", RESETS, "latest" if source.group else "earliest")]
    return Options(
        committed=isolation == COMMITTED,
        # with --exit-at-end there is no wait for more records; a group may have no partitions yet
        wait_ms=0
        if wanted.exit_at_end and not source.group
        else number(settings, "fetch.wait.max.ms", WAIT_MS),
        min_bytes=number(settings, "fetch.min.bytes", 1),
        partition_bytes=number(settings, "max.partition.fetch.bytes", PARTITION_BYTES),
        reset=reset,
    )


def _printer(
    format: str,
    key_delimiter: str | None,
    *,
    delimiter: str,
    json: bool,
    nulls: bool,
    unpacked: tuple[str | None, str | None],
) -> Print:
    if json:
        return envelope(read_delimiter(delimiter))
    keys = "" if key_delimiter is None else "%k" + _literal(key_delimiter)
    return formatter(format or f"{keys}%s{_literal(delimiter)}", nulls=nulls, unpacked=unpacked)


def _check(
    names: Sequence[str], group: str | None, partition: int, *, share: str | None = None, ack: str = ""
) -> None:
    for option, name in (("-G", group), ("--share", share)):
        if name == "":  # as a script's unset variable; without a group no offsets would be committed
            raise Failure(f"{option}: the group's id is empty", exits.USAGE)
    if ack and share is None:
        raise Failure("--ack needs --share GROUP", exits.USAGE)
    if ack not in ("", *options.ACKS):
        raise Failure(f"--ack: must be one of {', '.join(options.ACKS)}", exits.USAGE)
    if share and group:
        raise Failure("-G and --share cannot be combined: they are different kinds of groups", exits.USAGE)
    if not names:
        raise Failure("name a topic: -t TOPIC (see raftlog consume --help)", exits.USAGE)
    if (group or share) and partition >= 0:
        option = "-G" if group else "--share"
        raise Failure(
            f"{option} and -p cannot be combined: a group assigns all partitions to its members", exits.USAGE
        )
    if not (group or share) and len(names) > 1:
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
                f"-o {each}: must be beginning, end, stored, a whole number, s@MS or e@MS", exits.USAGE
            ) from None
    start_ms, stop_ms = times["s@"], times["e@"]
    if start_ms is not None and stop_ms is not None and start_ms > stop_ms:
        raise Failure(f"-o s@{start_ms} is after -o e@{stop_ms}: the range is empty", exits.USAGE)
    return Range(position, start_ms, stop_ms)


class Assigned:
    """Partitions that the command line names, from a position on. Nothing is committed."""

    def __init__(self, target: Target, source: Source, fetcher: Fetcher, *, quiet: bool = False) -> None:
        self._target, self._source, self._fetcher, self._quiet = target, source, fetcher, quiet
        self._begun = False

    def begin(self) -> bool:
        """Assign the partitions if they are not, or not any more; return whether it did. Raise Failure, KafkaError."""
        if self._begun:
            return False
        topic, partition = self._source.topics[0], self._source.partition
        there = self._partitions_of(topic)
        if partition >= len(there):
            known = f"0 to {len(there) - 1}" if len(there) > 1 else "0 alone"
            raise Failure(
                f"topic {topic} has no partition {partition}; its partitions are {known}", exits.NOT_FOUND
            )
        chosen = [(topic, each) for each in (there if partition < 0 else [partition])]
        self._fetcher.assign(self._first_offsets(chosen))
        self._begun = True
        return True

    def _partitions_of(self, topic: str) -> list[int]:
        found = self._target.cluster.metadata([topic]).topics[topic]
        if found.error_code:
            error = from_code(found.error_code)
            if isinstance(error, UnknownTopicOrPartition):
                raise Failure(f"there is no topic {topic}", exits.NOT_FOUND)
            raise Failure(f"topic {topic}: {words_of(error, 'READ')}", code_of(error))
        return sorted(found.partitions)

    def _first_offsets(self, chosen: list[PartitionKey]) -> dict[PartitionKey, int]:
        return first_offsets(self._fetcher, chosen, self._source.span, quiet=self._quiet)

    def printed(self, at: PartitionKey, next_offset: int) -> None:
        """Note how far a partition is printed."""

    def commit(self, *, at_once: bool = False) -> None:
        """Commit what is printed, if it is time."""

    def close(self) -> None:
        """Commit the rest, and leave the group if there is one."""


class Stored(Assigned):
    """Named partitions, from a group's committed offsets on, which are committed without a membership."""

    def __init__(self, target: Target, source: Source, fetcher: Fetcher, *, quiet: bool = False) -> None:
        super().__init__(target, source, fetcher, quiet=quiet)
        settings = target.settings
        self._said = False
        self._group = source.group or settings.get("group.id", "")
        if not self._group:
            raise Failure("-o stored needs a group: add -X group.id=GROUP", exits.USAGE)
        self._interval_s = number(settings, "auto.commit.interval.ms", 5000) / 1000
        self._is_on = is_on(settings, "enable.auto.commit")
        self._due_at = time.monotonic() + self._interval_s
        self._printed: dict[PartitionKey, int] = {}

    def _first_offsets(self, chosen: list[PartitionKey]) -> dict[PartitionKey, int]:
        """Return where to begin: at a position that is named for it, else at the committed offset, else as
        auto.offset.reset says.
        """
        span = self._source.span
        if span.start_ms is not None or span.position not in ("", "stored"):
            return first_offsets(self._fetcher, chosen, span, quiet=self._quiet)
        found = committed_offsets(self._target.cluster, self._group, chosen, stable=True)
        missing = [each for each in chosen if each not in found]
        if missing and self._fetcher.options.reset is None:
            topic, partition = missing[0]
            raise Failure(f"{topic} {partition}: group {self._group} has committed no offset")
        if missing and not found:
            self._say_where_it_begins()
        return found | self._fetcher.offsets_at(missing, self._fetcher.options.reset or LATEST)

    def _say_where_it_begins(self) -> None:
        """Print once that a group without offsets begins at the end: the command would be silent and look stuck."""
        is_chosen = "auto.offset.reset" in self._target.settings
        if self._quiet or self._said or is_chosen or self._fetcher.options.reset != LATEST:
            return
        self._said = True
        print(
            f"group {self._group} has no committed offsets, so it begins at the end; to begin at the beginning: "
            "-X auto.offset.reset=earliest",
            file=sys.stderr,
        )

    def printed(self, at: PartitionKey, next_offset: int) -> None:
        self._printed[at] = next_offset

    def commit(self, *, at_once: bool = False) -> None:
        if not self._printed or not self._is_on or not (at_once or time.monotonic() >= self._due_at):
            return
        self._due_at = time.monotonic() + self._interval_s
        sys.stdout.buffer.flush()  # what is committed has reached the reader of the output
        self._commit(self._printed)
        self._printed = {}

    def _commit(self, printed: dict[PartitionKey, int]) -> None:
        try:
            commit_offsets(self._target.cluster, self._group, printed)
        except GroupIdNotFound:
            self._refuse_share_group()
            raise

    def _refuse_share_group(self) -> None:
        names = " ".join(self._source.topics)
        refuse_type(self._target, self._group, SHARE, f"raftlog consume --share {self._group} {names}")

    def close(self) -> None:
        self.commit(at_once=True)


class Shared(Stored):
    """The partitions that a group shares out to this command, which is a member."""

    def __init__(self, target: Target, source: Source, fetcher: Fetcher, *, quiet: bool = False) -> None:
        super().__init__(target, source, fetcher, quiet=quiet)
        settings = target.settings
        session_ms = number(settings, "session.timeout.ms", 45_000)
        about = Membership(
            self._group,
            tuple(source.topics),
            session_ms=session_ms,
            rebalance_ms=number(settings, "max.poll.interval.ms", 300_000),
            heartbeat_ms=min(number(settings, "heartbeat.interval.ms", 3_000), session_ms // 3),
            instance_id=settings.get("group.instance.id"),
        )
        self._member = Member(target.cluster, about)

    def begin(self) -> bool:
        if self._begun and not self._member.tick():
            return False
        self.commit(at_once=True)
        self._fetcher.assign({})
        self._begun = False
        try:
            shared = self._member.join()
        except InconsistentGroupProtocol:
            self._refuse_share_group()
            raise
        chosen = [(topic, each) for topic, numbers in sorted(shared.items()) for each in numbers]
        self._fetcher.assign(self._first_offsets(chosen) if chosen else {})
        self._begun = True
        return True

    def _commit(self, printed: dict[PartitionKey, int]) -> None:
        try:
            self._member.commit(printed)
        except KafkaError as error:
            if not Member.is_lost(error):  # the partitions are another member's by now
                raise

    def close(self) -> None:
        try:
            self.commit(at_once=True)
        finally:
            try:
                self._member.leave()
            except (KafkaError, Unreachable, Refused):
                pass  # the session ends by itself


def _offsets(target: Target, source: Source, fetcher: Fetcher, *, quiet: bool) -> Assigned:
    if source.group:
        return Shared(target, source, fetcher, quiet=quiet)
    if source.span.position == "stored":
        return Stored(target, source, fetcher, quiet=quiet)
    return Assigned(target, source, fetcher, quiet=quiet)


def first_offsets(
    fetcher: Fetcher, chosen: list[PartitionKey], span: Range, *, quiet: bool
) -> dict[PartitionKey, int]:
    """Return where to begin in each partition: never outside what it holds. Raise KafkaError, Unreachable, Refused.

    A line says that all partitions end before a given offset, as the command would be silent.
    """
    if span.start_ms is not None:
        return fetcher.offsets_at(chosen, span.start_ms)
    if span.position in ("", "beginning"):
        return fetcher.offsets_at(chosen, EARLIEST)
    high = fetcher.offsets_at(chosen, LATEST)
    if span.position == "end":
        return high
    low, offset = fetcher.offsets_at(chosen, EARLIEST), int(span.position)
    short = [each for each in chosen if high[each] < offset]
    if short == chosen and short and not quiet:
        (topic, partition), more = short[0], f", and so do {len(short) - 1} more" if len(short) > 1 else ""
        print(
            f"raftlog: {topic} {partition} ends at offset {high[short[0]]}, before {offset}{more}: reading from there",
            file=sys.stderr,
        )
    return {
        each: max(low[each], min(high[each], offset if offset >= 0 else high[each] + offset))
        for each in chosen
    }


@dataclass(slots=True)
class Reader:
    """Prints what is fetched until the end."""

    target: Target
    fetcher: Fetcher
    offsets: Assigned
    wanted: Wanted
    _going: set[PartitionKey] = field(default_factory=set)
    """Partitions that are not at their end."""
    _printed: int = 0
    _code: int = 0
    _said_lost: bool = False
    _ended: set[PartitionKey] = field(default_factory=set)
    """Partitions whose end was reached once."""
    _said_waiting: bool = False

    def run(self) -> int:
        """Print records; return the exit code. Raise Failure, KafkaError, Unreachable, Refused."""
        if self.offsets.begin():
            self._going = set(self.fetcher.positions)
        got_at = time.monotonic()
        while not self._at_its_end():
            found = self._poll()
            if any(each.has_records for each in found):
                got_at = time.monotonic()
            for each in found:
                if (code := self._print_fetched(each)) is not None:
                    return code
            sys.stdout.buffer.flush()
            if self.wanted.idle_s and time.monotonic() - got_at > self.wanted.idle_s:
                break
        return self._code

    def _poll(self) -> list[Fetched]:
        """Return what came. While no broker answers, say so once and go on."""
        try:
            if self.offsets.begin():
                self._going = set(self.fetcher.positions)
            self.offsets.commit()
            found = self.fetcher.poll(POLL_S)
        except Unreachable as error:
            if not (self._said_lost or self.wanted.quiet):
                print(f"raftlog: {self.target.failure(error)}; trying again", file=sys.stderr)
            self._said_lost = True
            return []
        self._said_lost = self._said_lost and not found
        return found

    def _at_its_end(self) -> bool:
        """Return whether every partition is read; a group may have none for this member, and give it some later."""
        return not self._going and (self.wanted.exit_at_end or self.wanted.stop_ms is not None)

    def _print_fetched(self, found: Fetched) -> int | None:
        """Print what came of a partition; return the exit code at the end."""
        if found.error is not None:
            return self._fail(found.at, found.error)
        if found.has_records:
            self._going.add(found.at)
        for record in self._records(found):
            self._print(record)
            self.offsets.printed(found.at, record.offset + 1)
            if self.wanted.count and self._printed >= self.wanted.count:
                return self._code
        if found.at_end and found.at in self.fetcher.positions:
            self._end(found)
        return None

    def _records(self, found: Fetched) -> Iterator[Record]:
        """Yield the records up to the time to stop at. Raise Failure for a batch that is damaged."""
        topic, partition = found.at
        name = topic.encode()
        try:
            for kind, each in found.records:
                if self.wanted.stop_ms is not None and each.timestamp >= self.wanted.stop_ms:
                    self._going.discard(found.at)
                    self.fetcher.positions.pop(found.at, None)
                    return
                yield Record(
                    name,
                    partition,
                    each.offset,
                    each.key,
                    each.value,
                    each.headers,
                    kind,
                    each.timestamp,
                    found.leader,
                )
        except KafkaError as error:
            raise Failure(f"{topic} {partition}: {words_of(error)}", code_of(error)) from None

    def _print(self, record: Record) -> None:
        self.wanted.print_record(record)
        self._printed += 1

    def _end(self, found: Fetched) -> None:
        if self.wanted.exit_at_end:
            self._going.discard(found.at)
        else:
            self._say_waiting(found)
        if self.wanted.verbose and found.is_first_end:
            sys.stdout.buffer.flush()
            end = ": exiting" if not self._going else ""
            topic, partition = found.at
            print(
                f"% Reached end of topic {topic} [{partition}] at offset {found.position}{end}",
                file=sys.stderr,
            )

    def _say_waiting(self, found: Fetched) -> None:
        """Print once to a terminal that no record came yet, when all partitions are at their end."""
        self._ended.add(found.at)
        if self._said_waiting or self._printed or self.wanted.quiet or self.wanted.verbose:
            return
        if self._ended >= self.fetcher.positions.keys() and sys.stderr.isatty():
            self._said_waiting = True
            print("waiting for new records; Ctrl-C ends", file=sys.stderr)

    def _fail(self, at: PartitionKey, error: KafkaError) -> int | None:
        """Report an error of a partition; return the exit code, unless the command carries on after errors."""
        self._code = code_of(error)
        print(f"raftlog: {at[0]} {at[1]}: {words_of(error, 'READ')}", file=sys.stderr)
        if not self.wanted.carry_on:
            return self._code
        self._going.discard(at)
        self.fetcher.positions.pop(at, None)
        return None
