"""The guarantees of a share group (KIP-932) for one partition, checked against the responses of its leaders.

- Once a member has the response that confirms ACCEPT, its record is not delivered again.
- No record is lost. It is delivered until a member accepts or rejects it, or until its delivery limit is reached.
- At any time, at most one member holds the lock of a record.
- Once an operator is answered that records are archived, they are not delivered again, and each has its dead letter.
  Once released by hand, a record cannot be acknowledged by the member that held it.
- Under one leader, the delivery count of a record only grows. It never exceeds the limit.
- The share partition's start offset never moves back.

A delivery counts as later than a response if a later leader made it. Under the same leader, its delivery count must be
higher, or its request was sent after the response. A replaced leader that does not know of its successor may still
deliver records that the successor has completed, as in Apache Kafka. But its acknowledgements have no effect, because
the share coordinator fences its writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from raftlog.base.errors import InvalidRecordState, InvalidRequest
from raftlog.base.share_deliveries import HandOutcome
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.records.batch import read_end_marker
from raftlog.records.header import iter_headers
from raftlog_chaos.workloads.observations import Observations, TopicIndex
from raftlog_chaos.workloads.share_member import ACCEPT, GAP, REJECT, RELEASE, RENEW

SLACK_S: Final = 1.0
"""Longest time from the end of a member's share session on the leader until the member knows, seconds."""

Reign = LedSharePartition | None
"""The leader's object for the share partition, which made the response; None if that is uncertain."""


class Hold:
    """A record that a member acquired and has not acknowledged.

    The lock lasts at least until `locked_until`, and has expired by `over_at`.
    """

    __slots__ = (
        "count",
        "given_up_at",
        "locked_until",
        "member",
        "over_at",
        "received_at",
        "reign",
        "sent_at",
    )

    def __init__(self, member: str, count: int, reign: Reign, sent_at: float, now: float) -> None:
        self.member = member
        self.count = count
        self.reign = reign
        self.sent_at = sent_at
        self.received_at = now
        self.locked_until = self.over_at = now
        self.given_up_at: float | None = None


class Answered(NamedTuple):
    """The answer to an acknowledgement: when it came, from where, and the delivery that it was about."""

    at: float
    reign: Reign
    delivery_count: int

    def is_before(self, hold: Hold) -> bool:
        """Return whether a delivery was made after this was written, for certain."""
        if hold.reign is None or self.reign is None:
            return False
        if hold.reign.state_epoch != self.reign.state_epoch:
            return False  # an administrator has set the start offset
        if hold.reign is self.reign:
            return hold.count > self.delivery_count or hold.sent_at > self.at
        return hold.reign.leader_epoch > self.reign.leader_epoch


class ShareGroupModel:
    """One group and one partition. `lock_s` and `limit` are the group's configs."""

    def __init__(
        self,
        group: str,
        where: TopicIndex,
        history: Observations,
        *,
        lock_s: float,
        limit: int,
        read_committed: bool,
    ) -> None:
        self.group = group
        self.where = where
        self.history = history
        self.lock_s = lock_s
        self.limit = limit
        self.read_committed = read_committed
        self.compacted = False
        """Whether records may be missing between those that are delivered, because the topic is compacted."""
        self.first_offset = -1
        """Where the group began, as its first leader saw it."""
        self.settled: dict[int, Answered] = {}
        """The records whose accept or reject was answered."""
        self.doubtful: Counter[int] = Counter()
        """How often each record was accepted or rejected without an answer: that may be written or not."""
        self.counted: dict[int, int] = {}
        """The highest delivery count of each record that a leader or a member had."""
        self.log_start_offset = 0
        self.deliveries = self.again = self.refused = 0
        self.removed = 0
        """Offsets that were delivered without a record, as compaction has removed it."""
        self.acquired = asyncio.Event()
        self.acknowledging = asyncio.Event()
        self.answered = asyncio.Event()
        self.answered_hand = asyncio.Event()
        """Set when an operator has an answer."""
        self.archiving = asyncio.Event()
        """Set when a record waits for its dead letter."""
        self.letters = 0
        self._kinds: dict[int, int] = {}
        """How each settled record was acknowledged; GAP where the member may not have held it any more."""
        self._by_hand: set[int] = set()
        """Records that an operator may have archived."""
        self._hands: dict[int, float] = {}
        """When an operator's last word on each record was answered; infinity before that, and without an answer."""
        self.deleted_below = 0
        """Where the log began after a deletion, which a power cut may have undone."""
        self._resets = 0
        self._released: dict[int, Answered] = {}
        self._holds: dict[int, list[Hold]] = {}
        self._starts: dict[int, int] = {}
        """The last start offset of each leader's object, by identity."""
        self.newest_epoch = -1
        """The epoch of the last leader that was at work."""
        self._newest_since = 0.0
        self.state_epoch = -1
        """The epoch of the state that an administrator has begun."""
        self._reset_at = 0.0
        self._stored: tuple[int, ...] = ()
        self._kept: list[LedSharePartition] = []
        """Objects that were seen, so that no other gets the identity of one."""

    def blame(self, text: str) -> None:
        self.history.blame(f"{self.group} of {self.where}: {text}")

    # -- what members saw ----------------------------------------------------------------------------------

    def delivered(
        self, member: str, acquired: Sequence[tuple[int, int, int]], *, reign: Reign, sent_at: float
    ) -> dict[int, Hold]:
        """Note what a member was given: first and last offset, and delivery count."""
        found: dict[int, Hold] = {}
        now = asyncio.get_running_loop().time()
        for first_offset, last_offset, count in acquired:
            for offset in range(first_offset, last_offset + 1):
                hold = found[offset] = Hold(member, count, reign, sent_at, now)
                hold.locked_until, hold.over_at = sent_at + self.lock_s, now + self.lock_s
                if self._hands.get(offset, -inf) >= sent_at:
                    give_up(hold, sent_at)  # an operator may have taken it away before it was received
                self._delivered(offset, hold)
        if found:
            self.acquired.set()
            self._is_at_work(reign)
        return found

    def _is_at_work(self, reign: Reign) -> None:
        """Note a leader that has read the state: from now on its predecessors can write no more."""
        if reign is not None and reign.leader_epoch > self.newest_epoch:
            self.newest_epoch, self._newest_since = reign.leader_epoch, asyncio.get_running_loop().time()

    def _delivered(self, offset: int, hold: Hold) -> None:
        self.deliveries += 1
        earlier = self._holds.setdefault(offset, [])
        self.again += bool(earlier)
        settled, released = self.settled.get(offset), self._released.get(offset)
        if settled is not None and settled.is_before(hold):
            self.blame(f"{offset} was delivered for the {hold.count}th time after it was settled")
        if released is not None and released.is_before(hold) and hold.count <= released.delivery_count:
            self.blame(
                f"{offset} is delivered with count {hold.count}, but was released with {released.delivery_count}"
            )
        if not 1 <= hold.count <= self.limit:
            self.blame(f"{offset} is delivered for the {hold.count}th time; the limit is {self.limit}")
        for each in earlier:
            if hold.reign is not None and each.reign is hold.reign and each.count == hold.count:
                self.blame(f"{offset} was delivered twice for the {hold.count}th time")
        earlier.append(hold)
        self.counted[offset] = max(hold.count, self.counted.get(offset, 0))

    def sent(self, holds: Mapping[int, Hold], kinds: Mapping[int, int]) -> None:
        """Note that a member is about to acknowledge records."""
        now = asyncio.get_running_loop().time()
        for offset, kind in kinds.items():
            if kind != RENEW and offset in holds:
                give_up(holds[offset], now)
            self.doubtful[offset] += kind not in (RENEW, RELEASE)
        if kinds:
            self.acknowledging.set()

    def not_heard(self, kinds: Mapping[int, int]) -> None:
        """Note that acknowledgements have no effect, for certain."""
        for offset, kind in kinds.items():
            self.doubtful[offset] -= kind not in (RENEW, RELEASE)

    def told(
        self, holds: Mapping[int, Hold], kinds: Mapping[int, int], code: int, *, reign: Reign, sent_at: float
    ) -> None:
        """Note the answer to a member's acknowledgements. `holds`: what the member had when it sent them."""
        now = asyncio.get_running_loop().time()
        if code in (InvalidRecordState.code, InvalidRequest.code):
            self.refused += 1
            self.not_heard(kinds)
            is_by_hand = any(self._hands.get(each, -inf) >= sent_at for each in kinds)
            if reign is not None and holds.keys() >= kinds.keys() and not is_by_hand:
                self._check_refusal([holds[each] for each in kinds], reign, sent_at, now)
        if code:
            return
        self.answered.set()
        is_former = (
            reign is not None and reign.leader_epoch < self.newest_epoch and sent_at > self._newest_since
        )
        self._is_at_work(reign)
        is_led = reign is not None and reign.is_loaded
        start_offset = reign.machine.start_offset if reign is not None and is_led else -1
        for offset, kind in kinds.items():
            hold = holds.get(offset)
            is_over = hold is None or sent_at > hold.over_at
            if is_over and is_led and offset >= start_offset:
                self.blame(f"{offset} is acknowledged by a member that has not got it")
            if is_former and kind != RENEW and offset >= start_offset:
                self.blame(f"{offset} is acknowledged by a former leader")
            if self.state_epoch >= 0 and self._is_void(reign):
                if is_led and kind != RENEW and offset >= start_offset and sent_at > self._reset_at:
                    self.blame(f"{offset} is acknowledged by a leader that knows the former state")
                continue
            renews_nothing = kind == RENEW and offset < start_offset
            if hold is not None and not renews_nothing:
                self._took(offset, kind, hold, Answered(now, reign, hold.count), sent_at)

    def _took(self, offset: int, kind: int, hold: Hold, answered: Answered, sent_at: float) -> None:
        if kind == RENEW:
            hold.locked_until, hold.over_at = sent_at + self.lock_s, answered.at + self.lock_s
        elif kind == RELEASE:
            former = self._released.get(offset)
            if former is None or former.delivery_count < answered.delivery_count:
                self._released[offset] = answered
        else:
            if offset not in self.settled:
                self.settled[offset] = answered
                is_held = answered.at < hold.locked_until and is_kept(hold, sent_at)
                is_sure = is_held and offset not in self._by_hand
                self._kinds[offset] = (
                    kind if is_sure else GAP
                )  # below the start offset, any word is confirmed
            if any(
                answered.is_before(each) for each in self._holds[offset] if each.reign is not answered.reign
            ):
                self.blame(f"{offset} was settled by a former leader, after another has delivered it")

    # -- what an operator did ------------------------------------------------------------------------------

    def sent_by_hand(self, offsets: range, *, rejects: bool) -> None:
        """Note that an operator is about to release or archive records: their members may lose them."""
        now = asyncio.get_running_loop().time()
        for offset in offsets:
            for hold in self._holds.get(offset, ()):
                give_up(hold, now)
            self.doubtful[offset] += rejects
            self._hands[offset] = inf
        if rejects:
            self._by_hand.update(offsets)

    def answered_by_hand(
        self, offsets: range, found: HandOutcome, *, rejects: bool, reign: LedSharePartition, sent_at: float
    ) -> None:
        """Note the answer to an operator, if it says that all the records were released, or all archived.

        From then on no member can acknowledge a delivery that it had before. Archived records are not delivered again.
        """
        now = asyncio.get_running_loop().time()
        self._hands.update(dict.fromkeys(offsets, now))
        self.answered_hand.set()
        count = found.archived if rejects else found.released
        if count != len(offsets) or self._is_void(reign):
            return
        for offset in offsets:
            before = [
                each
                for each in self._holds.get(offset, ())
                if each.reign is reign and each.received_at <= sent_at
            ]
            for hold in before:
                hold.over_at = min(hold.over_at, now)
            if not rejects:
                released = max((each.count for each in before), default=0)
                self._released[offset] = Answered(now, reign, released)
                continue
            answered = self.settled[offset] = Answered(now, reign, self.limit)
            self._kinds[offset] = REJECT
            if any(
                answered.is_before(each) for each in self._holds.get(offset, ()) if each.reign is not reign
            ):
                self.blame(f"{offset} was archived by a former leader, after another has delivered it")

    def _check_refusal(self, holds: Sequence[Hold], reign: Reign, sent_at: float, now: float) -> None:
        """A member that has a lock, and has not given it up, must be heard."""
        if all(each.reign is reign and each.locked_until > now and is_kept(each, sent_at) for each in holds):
            self.blame(f"{holds[0].member} was refused records whose locks it has")

    def reset(self, start_offset: int, state_epoch: int) -> None:
        """Note that the group begins anew at an offset; what was settled before may be delivered again."""
        self.first_offset, self.state_epoch = start_offset, state_epoch
        self._reset_at = asyncio.get_running_loop().time()
        self._resets += 1
        self.settled = {
            offset: each for offset, each in self.settled.items() if not self._is_void(each.reign)
        }
        self._released = {
            offset: each for offset, each in self._released.items() if not self._is_void(each.reign)
        }

    def _is_void(self, reign: Reign) -> bool:
        """Return whether a leader has a state from before the last reset, or may have it."""
        return reign is None or reign.state_epoch < self.state_epoch

    def session_ended(self, member: str, reign: Reign) -> None:
        """Check that a member whose session has ended holds no record."""
        if reign is not None and reign.is_loaded:
            held = [
                each.first_offset
                for each in reign.machine.ranges
                if each.is_held and each.member_id == member
            ]
            if held:
                self.blame(f"{member} has ended its session, and still holds {held[:5]}")

    # -- what is inside ------------------------------------------------------------------------------------

    def looked_at_leader(self, led: LedSharePartition) -> None:
        """Compare a leader's machine with what was seen before."""
        if not led.is_loaded:
            return
        machine = led.machine
        if id(led) not in self._starts:
            self._kept.append(led)
        start_offset = machine.start_offset
        before = self._starts.get(id(led), start_offset)
        if start_offset < before:
            self.blame(f"the start offset goes back from {before} to {start_offset}")
        self._starts[id(led)] = start_offset
        if self.first_offset < 0:
            self.first_offset = start_offset
        for each in machine.ranges:
            if each.state.name == "ARCHIVING":
                self.archiving.set()
            if each.delivery_count:
                if each.delivery_count > self.limit:
                    self.blame(f"{each.first_offset} was delivered {each.delivery_count} times")
                for offset in range(each.first_offset, each.end_offset):
                    self.counted[offset] = max(each.delivery_count, self.counted.get(offset, 0))

    def looked_at_state(self, epochs: tuple[int, ...], start_offset: int) -> None:
        """Compare a committed state with the one before; `epochs` of its coordinator and of the state."""
        found = (*epochs, start_offset)
        if self._stored and found[0] < self._stored[0]:
            return  # a former coordinator
        is_reset = bool(self._stored) and found[2] > self._stored[2]
        before_it = found[:3] if is_reset else found
        if any(now < before for now, before in zip(before_it, self._stored, strict=False)):
            self.blame(f"the state goes back: {self._stored} and then {found}")
        self._stored = found

    # -- the end -------------------------------------------------------------------------------------------

    def judge(
        self,
        values: Mapping[int, bytes],
        withheld: Collection[int],
        end_offset: int,
        *,
        newest: Collection[int] = (),
    ) -> Iterable[str]:
        """Yield what is wrong at the end, when all records up to `end_offset` are settled.

        `values` are the log's; `withheld` those offsets that a group with `read_committed` never gets. `newest` are the
        offsets that compaction cannot have removed anywhere.
        """
        name, seen = f"{self.group} of {self.where}", self.history.seen.get(self.where, {})
        lost = [
            offset
            for offset in range(max(self.first_offset, self.log_start_offset, self.deleted_below), end_offset)
            if not (self.read_committed and offset in withheld)
            and not (self.compacted and offset not in newest)
            and offset not in self.settled
            and not self.doubtful[offset]
            and self.counted.get(offset, 0) < self.limit
        ]
        if lost:
            counts = [self.counted.get(each, 0) for each in lost[:5]]
            yield f"{name}: {len(lost)} records are lost: {lost[:5]} after {counts} deliveries"
        unseen = sorted(each for each in newest if each in self.settled and each not in seen)
        if unseen:
            yield f"{name}: {len(unseen)} records were settled as gaps: {unseen[:5]}"
        for offset, holds in self._holds.items():
            if self.read_committed and offset in withheld:
                yield f"{name}: {offset} was delivered, though it was aborted or is a marker"
            for one in holds:
                for other in holds:
                    if self._overlap(one, other):
                        yield f"{name}: {one.member} and {other.member} had {offset} at the same time"
        for offset, value in seen.items():
            is_removed = self.compacted and offset not in values
            if offset >= self.log_start_offset and values.get(offset) != value and not is_removed:
                yield f"{name}: {value!r} was delivered at {offset}, where {values.get(offset)!r} is"

    def judge_letters(
        self, letters: Counter[int], withheld: Collection[int], end_offset: int
    ) -> Iterable[str]:
        """Yield what is wrong with the dead letters of each offset: a record that was given up has exactly one.

        After a reset a record may be given up again. A record that was deleted may have no letter.
        """
        name = f"{self.group} of {self.where}"
        self.letters = letters.total()
        twice = sorted(each for each, count in letters.items() if count > 1 + self._resets)
        if twice:
            yield f"{name}: {len(twice)} records have more than one dead letter: {twice[:5]}"
        accepted = sorted(each for each in letters if self._kinds.get(each) == ACCEPT)
        if accepted and not self._resets:
            yield f"{name}: {len(accepted)} accepted records have dead letters: {accepted[:5]}"
        missing = [
            offset
            for offset in range(max(self.first_offset, self.log_start_offset, self.deleted_below), end_offset)
            if offset not in letters and self._is_given_up(offset, withheld)
        ]
        if missing:
            yield f"{name}: {len(missing)} records that were given up have no dead letter: {missing[:5]}"

    def _is_given_up(self, offset: int, withheld: Collection[int]) -> bool:
        """Return whether a record was certainly rejected, or is certainly out of deliveries."""
        if offset in withheld:
            return False
        if offset in self.settled:
            return self._kinds[offset] == REJECT
        return not self.doubtful[offset] and self.counted.get(offset, 0) >= self.limit and not self._resets

    def _overlap(self, one: Hold, other: Hold) -> bool:
        """Whether a member got a record while another still had its lock, under the same leader."""
        return (
            one.reign is not None
            and one.reign is other.reign
            and one.count < other.count
            and one.member != other.member
            and other.received_at < one.locked_until
            and is_kept(one, other.received_at + SLACK_S)
        )


def withheld_in(batches: bytes) -> set[int]:
    """Return the offsets of aborted records and of markers in a log without open transactions."""
    withheld: set[int] = set()
    opened: dict[int, list[int]] = {}
    view = memoryview(batches)
    for position, header in iter_headers(view):
        offsets = range(header.base_offset, header.end_offset)
        if header.is_control:
            withheld.update(offsets)
            marker = read_end_marker(view[position : position + header.length])
            of_transaction = opened.pop(header.producer_id, [])
            if marker is not None and not marker.commit:
                withheld.update(of_transaction)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, []).extend(offsets)
    return withheld


def give_up(hold: Hold, now: float) -> None:
    """Note that a member may have lost a record: it acknowledges it, or its session ends."""
    if hold.given_up_at is None:
        hold.given_up_at = now


def is_kept(hold: Hold, until: float) -> bool:
    return hold.given_up_at is None or hold.given_up_at >= until
