"""Reads topics and appends their records to tables, commit after commit, until it is stopped or at the end.

One thread does all: it fetches until a table's commit is due by time or size, appends, and goes on. Offsets are
committed to a consumer group after the table, and only so that tools can show the lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from raftlog.base.errors import KafkaError, OffsetOutOfRange, UnknownTopicOrPartition, from_code
from raftlog.client.cluster import Cluster
from raftlog.client.errors import Refused, Unreachable
from raftlog.client.fetching import Fetched, Fetcher, Options, list_offsets
from raftlog.client.member import commit_offsets
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey, TopicMetadata
from raftlog.tables.columns import VALUE, Rows
from raftlog.tables.dead_letters import DeadLetters
from raftlog.tables.progress import Source, TableError, WrongSource
from raftlog.tables.table import StoreFailed, Table
from raftlog.tables.values import Values, plain
from raftlog.tables.writer import TableWriter

POLL_S: Final = 0.2
PARTITION_BYTES: Final = 4 << 20
"""The bytes that one fetch asks for of a partition."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a job. `begin`: EARLIEST, LATEST or a time in ms, for a table that knows no partitions yet."""

    begin: int = EARLIEST
    commit_s: float = 60.0
    commit_bytes: int = 128 << 20
    tidy_every: int = 20
    """Small files are merged after so many commits; 0: never."""
    group: str = ""
    """The consumer group that shows the lag; "": none."""
    until_end: bool = False
    skip_lost: bool = False
    """Whether to go on behind records that the topic lost."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that is in the table."""

    topic: str
    version: str
    records: int
    bytes: int
    offsets: Mapping[int, int]
    """The next offset of each partition."""
    dead_letters: int
    dead_letters_table: str
    """Where they are; "" without dead letters."""
    dead_letter_reason: str
    """The reason of the first of them."""
    lag: int | None
    """Offsets that are in the topic and not yet in the table; None if no broker could say."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Reports:
    """The receivers of reports: `commit` gets each commit, `say` a line about anything else.

    `resumed` gets the next offsets that a table has when it is opened.
    """

    commit: Callable[[Committed], None]
    say: Callable[[str], None]
    resumed: Callable[[str, Mapping[int, int]], None] = lambda _topic, _offsets: None


class LostRecords(TableError):
    """The topic no longer has records that are not in the table."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The table of a topic. With `values`, records that do not fit go to `dead_letters`."""

    table: Table
    values: Values | None = None
    dead_letters: Table | None = None


@dataclass(slots=True)
class Feed:
    """One topic on its way into its table."""

    topic: str
    writer: TableWriter
    source: Source
    rows: Rows
    dead_letters: DeadLetters | None = None
    positions: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition, with the rows that wait."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of the last batch before each position, where it is known."""
    ends: dict[int, int] = field(default_factory=dict)
    """Where to stop, with `until_end`."""
    fetched: set[int] = field(default_factory=set)
    """The partitions that were fetched at their position, which compares the leader epochs."""
    leaders: set[int] = field(default_factory=set)
    """The brokers that the waiting rows came from."""
    waits_since: float | None = None
    looked_at: float = field(default_factory=time.monotonic)
    """When the topic's partitions were last asked for."""
    commits: int = 0

    @property
    def has_moved(self) -> bool:
        return self.positions != self.writer.head.offsets

    @property
    def is_at_end(self) -> bool:
        return self.fetched >= self.ends.keys() and all(
            self.positions[partition] >= end for partition, end in self.ends.items()
        )


class Job:
    """The tables of some topics. Use `run` once. `stopping` set to True ends it after the next commit."""

    def __init__(
        self, cluster: Cluster, tables: Mapping[str, Destination], plan: Plan, reports: Reports
    ) -> None:
        self.stopping = False
        self._cluster, self._plan, self._reports = cluster, plan, reports
        options = Options(reset=None, partition_bytes=PARTITION_BYTES, checks_epochs=True)
        self._fetcher = Fetcher(cluster, options)
        self._tables = tables
        self._feeds: dict[str, Feed] = {}
        self._is_lost = False

    def run(self) -> None:
        """Append until the end or a stop. Raise TableError, KafkaError, Unreachable, Refused."""
        try:
            for destination in self._tables.values():
                if destination.values is not None:
                    destination.values.check_registry()
            for topic, destination in self._tables.items():
                self._feeds[topic] = self._begin(topic, destination)
            self._assign()
            while not self._is_over():
                self._poll()
                for feed in self._feeds.values():
                    if self._is_due(feed):
                        self._commit(feed)
                    elif self._is_idle(feed):
                        self._look_for_partitions(feed)
            for feed in self._feeds.values():
                self._commit(feed)
                if self._plan.until_end and not feed.commits and feed.is_at_end:
                    self._reports.say(f"{feed.topic}: up to date")
        finally:
            self._fetcher.close()

    # Beginning.

    def _begin(self, topic: str, destination: Destination) -> Feed:
        """Take the table over, and return where to read on."""
        source, found = self._source(topic)
        say = self._say_about(topic)
        writer = TableWriter(destination.table, source, time.sleep, say)
        known = writer.read_head().offsets
        if known:
            self._reports.resumed(topic, known)
        check_values(destination)
        feed = Feed(topic, writer, source, Rows(destination.values))
        if destination.dead_letters is not None:
            feed.dead_letters = DeadLetters(destination.dead_letters, source, time.sleep, say)
        new = [each for each in found.partitions if each not in known]
        begin = self._first_offsets(topic, new, EARLIEST if known else self._plan.begin)
        writer.take_over(begin, feed.rows.take())
        if feed.dead_letters is not None:
            feed.rows.decided = feed.dead_letters.begin(writer.head)
        feed.positions = dict(writer.head.offsets)
        feed.leader_epochs = dict(writer.head.leader_epochs)
        if self._plan.until_end:
            feed.ends = self._offsets(topic, found.partitions, LATEST)
        return feed

    def _source(self, topic: str, broker: int | None = None) -> tuple[Source, TopicMetadata]:
        """Return what a broker, by default any, says of a topic."""
        found = self._cluster.metadata([topic], broker=broker)
        about = found.topics[topic]
        if about.error_code:
            error = from_code(about.error_code)
            is_missing = isinstance(error, UnknownTopicOrPartition)
            raise from_code(error.code, f"there is no topic {topic}") if is_missing else error
        identity = "" if about.id is None or not about.id.int else str(about.id)
        return Source(found.cluster_id, topic, identity), about

    def _first_offsets(self, topic: str, partitions: Sequence[int], begin: int) -> dict[int, int]:
        if not partitions:
            return {}
        found = self._fetcher.offsets_at([(topic, each) for each in partitions], begin)
        return {partition: offset for (_, partition), offset in found.items()}

    def _offsets(self, topic: str, partitions: Any, timestamp: int) -> dict[int, int]:
        keys = [(topic, each) for each in partitions]
        found = list_offsets(self._cluster, keys, timestamp, committed=True)
        return {partition: offset for (_, partition), offset in found.items()}

    def _assign(self) -> None:
        self._fetcher.assign(
            {
                (topic, partition): offset
                for topic, feed in self._feeds.items()
                for partition, offset in feed.positions.items()
            },
            {
                (topic, partition): epoch
                for topic, feed in self._feeds.items()
                for partition, epoch in feed.leader_epochs.items()
            },
        )

    def _say_about(self, topic: str) -> Callable[[str], None]:
        return lambda line: self._reports.say(f"{topic}: {line}")

    # Reading.

    def _is_over(self) -> bool:
        return self.stopping or (
            self._plan.until_end and all(each.is_at_end for each in self._feeds.values())
        )

    def _poll(self) -> None:
        """Take what came. While no broker answers, say so once and go on."""
        try:
            found = self._fetcher.poll(POLL_S)
        except Unreachable as error:
            if not self._is_lost:
                self._reports.say(f"no broker answers ({describe(error)}); trying again")
            self._is_lost = True
            return
        for each in found:
            self._is_lost = False
            self._take(each)

    def _take(self, fetched: Fetched) -> None:
        topic, partition = fetched.at
        feed = self._feeds[topic]
        if fetched.error is not None:
            self._skip_lost(feed, partition, fetched.error)
            return
        if fetched.diverged_at is not None:
            self._skip_other_records(feed, partition, fetched.diverged_at)
            return
        feed.fetched.add(partition)
        feed.rows.add(partition, fetched.records)
        feed.positions[partition] = fetched.position
        if fetched.epoch >= 0:
            feed.leader_epochs[partition] = fetched.epoch
        feed.leaders.add(fetched.leader)
        if feed.waits_since is None and feed.has_moved:
            feed.waits_since = time.monotonic()

    def _skip_lost(self, feed: Feed, partition: int, error: KafkaError) -> None:
        """Go on behind records that are gone, if the user said so. Raise LostRecords, or the partition's error."""
        at = (feed.topic, partition)
        if not isinstance(error, OffsetOutOfRange):
            raise error
        position = feed.positions[partition]
        first = self._offsets(feed.topic, [partition], EARLIEST)[partition]
        if first <= position:  # also if new records reach the position again, since they are others
            end = self._offsets(feed.topic, [partition], LATEST)[partition]
            raise LostRecords(
                f"{feed.topic} {partition}: it was read up to offset {position}, and then ended before that (it ends "
                f"at {end} now): the topic lost records that the table has"
            )
        lost = f"records from offset {position} to {first} were deleted before they were read"
        what = f"{feed.topic} {partition}: {lost}"
        if not self._plan.skip_lost:
            raise LostRecords(f"{what}; --skip-lost goes on behind them")
        self._reports.say(f"{what}; going on behind them")
        feed.positions[partition] = first
        self._fetcher.positions[at] = first
        self._forget_epoch(feed, partition)

    def _skip_other_records(self, feed: Feed, partition: int, offset: int) -> None:
        """Go on at the position, although the topic has other records before it, if the user said so.

        Raise LostRecords. If the topic ends before the position, the next Fetch says so.
        """
        position = feed.positions[partition]
        since = min(
            offset, position - 1
        )  # the leader knows only where the last epoch that both have ends in its log
        what = (
            f"{feed.topic} {partition}: it was read up to offset {position}, and has other records from offset "
            f"{since} on by now, or before: the topic lost records that the table has"
        )
        if not self._plan.skip_lost:
            raise LostRecords(f"{what}; --skip-lost goes on behind them")
        self._reports.say(f"{what}; going on at offset {position}")
        self._forget_epoch(feed, partition)

    def _forget_epoch(self, feed: Feed, partition: int) -> None:
        """Compare no leader epoch until a batch brings the next: the batch before the position was not read."""
        feed.leader_epochs.pop(partition, None)
        self._fetcher.position_epochs.pop((feed.topic, partition), None)

    # Committing.

    def _is_due(self, feed: Feed) -> bool:
        if feed.rows.bytes >= self._plan.commit_bytes:
            return True
        return feed.waits_since is not None and time.monotonic() - feed.waits_since >= self._plan.commit_s

    def _is_idle(self, feed: Feed) -> bool:
        """Return whether no progress waits for a commit, and the topic was last checked at least `commit_s` ago."""
        return feed.waits_since is None and time.monotonic() - feed.looked_at >= self._plan.commit_s

    def _commit(self, feed: Feed) -> None:
        """Append what waits, if anything does, and report it."""
        if not feed.has_moved:
            return
        try:
            partitions = self._check_topic(feed)
        except (KafkaError, Unreachable) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            self._read_again(feed, error)
            return
        began = time.monotonic()
        count, size, dead, reason = feed.rows.count, feed.rows.bytes, 0, feed.rows.first_reason
        if feed.dead_letters is not None and feed.rows.values is not None:
            feed.rows.values.look_again()
            dead = feed.dead_letters.append(feed.rows, feed.writer.head, feed.positions)
        feed.writer.append(feed.rows.take(), feed.positions, feed.leader_epochs)
        feed.waits_since = None
        feed.leaders.clear()
        feed.commits += 1
        seconds = time.monotonic() - began
        lag = self._show_lag(feed)
        self._reports.commit(
            Committed(
                topic=feed.topic,
                version=feed.writer.head.version,
                records=count,
                bytes=size,
                offsets=dict(feed.positions),
                dead_letters=dead,
                dead_letters_table=feed.dead_letters.where if feed.dead_letters is not None and dead else "",
                dead_letter_reason=reason,
                lag=lag,
                seconds=seconds,
            )
        )
        self._add_partitions(feed, partitions)
        if self._plan.tidy_every and feed.commits % self._plan.tidy_every == 0:
            self._tidy(feed)

    def _check_topic(self, feed: Feed) -> Sequence[int]:
        """Return the topic's partitions. Raise WrongSource if its leaders have another topic of the same name by now.

        A leader knows the topic of the records that it serves, so records of a new topic are never appended.
        """
        feed.looked_at = time.monotonic()
        found: set[int] = set()
        for leader in feed.leaders or (None,):
            source, about = self._source(feed.topic, leader)
            if source != feed.source:
                raise WrongSource(
                    f"topic {feed.topic} was deleted and created again; the table ends before that"
                )
            found |= set(about.partitions)
        return sorted(found)

    def _read_again(self, feed: Feed, error: Exception) -> None:
        """Forget the rows that wait, since their leader cannot be asked about them, and read on behind the table."""
        self._reports.say(
            f"{feed.topic}: a leader does not answer ({describe(error)}); reading its records again"
        )
        feed.rows.clear()
        feed.positions = dict(feed.writer.head.offsets)
        feed.leader_epochs = dict(feed.writer.head.leader_epochs)
        feed.leaders.clear()
        feed.waits_since = None
        self._assign()

    def _look_for_partitions(self, feed: Feed) -> None:
        """Begin to read new partitions, also if all records go to them. If no broker can say, ask again later.

        A broker that knows another topic of that name may be late, so that is left to the leaders and the next commit.
        """
        feed.looked_at = time.monotonic()
        try:
            source, about = self._source(feed.topic)
            if source == feed.source:
                self._add_partitions(feed, sorted(about.partitions))
        except Unreachable:
            pass  # the next poll says so
        except KafkaError as error:
            if not error.retriable:
                raise

    def _add_partitions(self, feed: Feed, partitions: Sequence[int]) -> None:
        """Begin to read partitions that the topic did not have before, from their first record."""
        new = [each for each in partitions if each not in feed.positions]
        if new:
            feed.positions |= self._offsets(feed.topic, new, EARLIEST)
            self._assign()

    def _show_lag(self, feed: Feed) -> int | None:
        """Commit the offsets to the group, and return the lag. The table needs neither, so failures are reported."""
        keys: dict[PartitionKey, int] = {
            (feed.topic, partition): offset for partition, offset in feed.positions.items()
        }
        try:
            if self._plan.group:
                commit_offsets(self._cluster, self._plan.group, keys)
        except (KafkaError, Unreachable, Refused) as error:
            self._reports.say(f"group {self._plan.group} does not show the lag: {describe(error)}")
        try:
            ends = self._offsets(feed.topic, feed.positions, LATEST)
        except (KafkaError, Unreachable, Refused) as error:
            self._reports.say(f"{feed.topic}: the lag is not known: {describe(error)}")
            return None
        return sum(max(0, ends[partition] - offset) for partition, offset in feed.positions.items())

    def _tidy(self, feed: Feed) -> None:
        try:
            done = feed.writer.tidy()
        except StoreFailed as error:
            self._reports.say(f"{feed.topic}: small files stay as they are: {error}")
        else:
            self._reports.say(
                f"{feed.topic}: {', '.join(f'{name} {number}' for name, number in done.items())}"
            )
        feed.writer.refresh()


def check_values(destination: Destination) -> None:
    """Take over the table's column of values. Raise TableError if it has bytes instead of values, or vice versa."""
    columns = destination.table.columns()
    has_bytes = VALUE in columns.names and pa.types.is_binary(plain(columns.field(VALUE).type))
    if destination.values is None:
        if not has_bytes:
            raise TableError(f"{destination.table.where}: the table has values by schemas; name the registry")
    elif has_bytes:
        raise TableError(f"{destination.table.where}: the table has values as bytes; choose another place")
    elif VALUE in columns.names:
        destination.values.begin(columns.field(VALUE).type)


def describe(error: Exception) -> str:
    """Return an error in words; that of a broker may have no message but its name."""
    return str(error) or type(error).__name__
