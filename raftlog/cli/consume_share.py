"""`raftlog consume --share`: takes records as a member of a share group, prints and acknowledges them (KIP-932).

A record is acknowledged after it was written to the standard output. What is not acknowledged when the command ends is
given back, and its delivery count has grown. With `--ack release` that is every record. Then the command ends before
the first lock does, or it would get its own records again until their deliveries are used up.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import Final

from raftlog.base.errors import KafkaError, UnknownTopicOrPartition, from_code
from raftlog.cli import exits
from raftlog.cli.client_settings import SHARE_SETTINGS, number
from raftlog.cli.effective_settings import setting_of
from raftlog.cli.end_signals import ended_by_signals
from raftlog.cli.exits import Failure
from raftlog.cli.group_lookup import CONSUMER, refuse_type
from raftlog.cli.kcat.format import Record
from raftlog.cli.kcat.wanted import Wanted
from raftlog.cli.share_group import looked_up
from raftlog.cli.target import Target, code_of, words_of
from raftlog.client.errors import Unreachable
from raftlog.client.share_fetching import ACCEPT, REJECT, ShareFetcher, ShareOptions, Taken
from raftlog.client.share_member import ShareMember

POLL_S: Final = 0.2
RESET: Final = "share.auto.offset.reset"
WAIT_MS: Final = 500
"""How long a leader waits for records."""
TYPES: Final = {"accept": ACCEPT, "reject": REJECT, "release": None}
"""The acknowledgement of each printed record, by the value of --ack; None: given back when the command ends."""


def consume_share(target: Target, group: str, topics: tuple[str, ...], *, ack: str, wanted: Wanted) -> int:
    """Take and print records until the end; return the exit code. Raise Failure."""
    if TYPES[ack] is None and not (wanted.exit_at_end or wanted.count):
        raise Failure("--ack release holds records until the end: add -e or -c N", exits.USAGE)
    with closing(replace(target, known=SHARE_SETTINGS)) as reached:
        settings = reached.settings
        options = ShareOptions(
            wait_ms=number(settings, "fetch.wait.max.ms", WAIT_MS),
            min_bytes=number(settings, "fetch.min.bytes", 1),
        )
        _check_topics(reached, topics)
        if looked_up(reached, group) is None:
            refuse_type(reached, group, CONSUMER, f"raftlog consume -G {group} {' '.join(topics)}")
            if not wanted.quiet:
                print(f"share group {group} is new: {_begin(reached, group, topics[0])}", file=sys.stderr)
        member = ShareMember(reached.cluster, group, topics)
        fetcher = ShareFetcher(member, reached.cluster, topics, options)
        reader = ShareReader(reached, member, fetcher, TYPES[ack], wanted)
        try:
            with ended_by_signals(), reached.failures(needs="READ"):
                try:
                    reader.run()
                finally:
                    reader.close()
        except KeyboardInterrupt:
            return exits.INTERRUPTED
        return reader.code


def _begin(target: Target, group: str, topic: str) -> str:
    """Return where a new group begins, and how to begin at the beginning. It is a config, so it may be unreadable."""
    try:
        reset = setting_of(target, "group", group, RESET)
    except Failure:
        reset = None
    if reset == "earliest":
        return f"it begins at the beginning ({RESET}={reset})"
    begin = {
        None: f"it begins at the end, unless its {RESET} says otherwise",
        "latest": "it begins at the end",
    }.get(reset, f"it begins as {RESET}={reset} says")
    at_start = f"raftlog share-group reset {group} -t {topic} --to-earliest --execute"
    return f"{begin}; to begin at the beginning: {at_start}"


def _check_topics(target: Target, topics: tuple[str, ...]) -> None:
    """Raise Failure for a topic that is not there: the group would wait for it without a word."""
    with target.failures():
        found = target.cluster.metadata(topics).topics
    for name in topics:
        if not found[name].error_code:
            continue
        error = from_code(found[name].error_code)
        if isinstance(error, UnknownTopicOrPartition):
            raise Failure(f"there is no topic {name}", exits.NOT_FOUND)
        raise Failure(f"topic {name}: {words_of(error, 'READ')}", code_of(error))


class ShareReader:
    """Prints what is taken until the end. `type_` is the acknowledgement of each record."""

    def __init__(
        self, target: Target, member: ShareMember, fetcher: ShareFetcher, type_: int | None, wanted: Wanted
    ) -> None:
        self._target, self._member, self._fetcher, self._type = target, member, fetcher, type_
        self._wanted = wanted
        self._printed = 0
        self.code = exits.OK
        """The exit code of the command."""
        self._said_lost = False

    def run(self) -> None:
        """Print records until the end. Raise Failure, KafkaError, Unreachable, Refused."""
        self._member.tick()  # without a coordinator at the start the command ends
        got_at = time.monotonic()
        while not (self._wanted.exit_at_end and self._fetcher.is_empty):
            if self._type is None and time.monotonic() + POLL_S >= self._fetcher.first_lock_ends_at:
                print("raftlog: the lock's duration is over: what is held is given back", file=sys.stderr)
                return
            for each in self._poll():
                got_at = time.monotonic()
                if each.error is None:
                    self._take(each)
                    if self._wanted.count and self._printed >= self._wanted.count:
                        return
                elif not self._goes_on(each, each.error):
                    return
            self._report_lost()
            if self._wanted.idle_s and time.monotonic() - got_at > self._wanted.idle_s:
                return

    def _poll(self) -> list[Taken]:
        """Return what came. While no broker answers, say so once and go on."""
        try:
            self._member.tick()
            left = self._wanted.count - self._printed if self._wanted.count else 0
            found = self._fetcher.poll(POLL_S, most=left)
        except Unreachable as error:
            if not (self._said_lost or self._wanted.quiet):
                print(f"raftlog: {self._target.failure(error)}; trying again", file=sys.stderr)
            self._said_lost = True
            return []
        self._said_lost = self._said_lost and not found
        return found

    def _take(self, taken: Taken) -> None:
        """Print the records of a partition, and acknowledge what was written, also if this is interrupted."""
        written: list[int] = []
        try:
            for kind, delivery_count, each in taken.records:
                record = Record(
                    taken.at[0].encode(),
                    taken.at[1],
                    each.offset,
                    each.key,
                    each.value,
                    each.headers,
                    kind,
                    each.timestamp,
                    taken.leader,
                    delivery_count,
                )
                self._wanted.print_record(record)
                written.append(each.offset)
                self._printed += 1
                if self._wanted.count and self._printed >= self._wanted.count:
                    break
        except KafkaError as error:
            topic, partition = taken.at
            raise Failure(f"{topic} {partition}: {words_of(error)}", code_of(error)) from None
        finally:
            sys.stdout.buffer.flush()  # an acknowledged record has reached the reader of the output
            if self._type is not None:
                for offset in written:
                    self._fetcher.acknowledge(taken, offset, offset, self._type)

    def _goes_on(self, taken: Taken, error: KafkaError) -> bool:
        """Report an error of a partition; return whether the command carries on after errors."""
        self.code = code_of(error)
        print(f"raftlog: {taken.at[0]} {taken.at[1]}: {words_of(error, 'READ')}", file=sys.stderr)
        return self._wanted.carry_on

    def _report_lost(self) -> None:
        """Report the acknowledgements that were not accepted."""
        lost, self._fetcher.lost = self._fetcher.lost, []
        for (topic, partition), first, last, reason in lost:
            offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
            print(
                f"raftlog: {topic} {partition}: {offsets} may be delivered again, not acknowledged: {reason}",
                file=sys.stderr,
            )
            self.code = exits.FAILED

    def close(self) -> None:
        """Acknowledge the rest, give back what is held, and leave the group."""
        try:
            self._fetcher.close()
            self._report_lost()
        finally:
            self._member.leave()
