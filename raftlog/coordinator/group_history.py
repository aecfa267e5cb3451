"""The events of the groups in one partition, with time and reason: a bounded memory, for operators.

It is for display only. It is soft: a new coordinator begins empty. Members' heartbeats and commits are no events and
are free here.

There are two limits: `KEPT_OF_GROUP` events of a group, and `MAX_BYTES` of all groups of a broker. Beyond the latter
the least recent groups are evicted. A text of a client is cut to `MAX_TEXT_CHARS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from raftlog.base.group_events import GROUP_EVENT_KINDS, GroupEvent
from raftlog.base.log import get_logger
from raftlog.coordinator.classic.member_protocols import Protocols
from raftlog.coordinator.consumer.consumer_membership import MemberMetadata
from raftlog.coordinator.consumer_protocol import subscribed_topics
from raftlog.coordinator.group import STABLE, CommittedOffset, Group, Member
from raftlog.coordinator.group_requests import CommitOffsets, JoinGroup, TxnOffsetCommit
from raftlog.coordinator.timer import Moment

KEPT_OF_GROUP: Final = 60
MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the events of all groups that a broker coordinates."""

MAX_TEXT_CHARS: Final = 120
"""The maximum length of each text in an event. A character takes four bytes at most."""

MAX_TOPIC_CHARS: Final = 249
"""The longest possible name of a topic."""

EVENT_BYTES: Final = 400
"""The memory of an event beside its texts."""

ENTRY_BYTES: Final = 400
"""The memory of a group's entry beside its name and events."""

SAME_IN_A_ROW: Final = 5
"""This many events of one kind are separate; immediate repeats are only counted in the last."""

AT_ONCE_MS: Final = 10_000
"""After this pause an event is separate again."""

NAMED_PARTITIONS: Final = 3
NAMED_TOPICS: Final = 5

log = get_logger(__name__)


Who = Member | tuple[str, MemberMetadata]


def _nobody() -> str:
    return ""


class _Events:
    """The events of one group in `owner`, oldest first."""

    __slots__ = ("began_ms", "bytes", "events", "forgotten", "group_id", "owner")

    def __init__(self, group_id: str, owner: GroupHistory, began_ms: int) -> None:
        self.group_id = group_id
        self.began_ms = began_ms
        self.owner = owner
        self.events: list[GroupEvent] = []
        self.forgotten = 0
        self.bytes = ENTRY_BYTES + 4 * len(group_id)


class HistoryMemory:
    """The events that a broker keeps, of all partitions. `asked_by` returns the client of the present request."""

    def __init__(self, max_bytes: int = MAX_BYTES, asked_by: Callable[[], str] = _nobody) -> None:
        self.bytes = 0
        self.forgotten_until_ms = 0
        """The time of the last evicted event."""
        self.asked_by = asked_by
        self._max_bytes = max_bytes
        self._groups: dict[_Events, None] = {}
        """In the order of their last event."""

    def put(self, kept: _Events, growth: int) -> None:
        """Count one more event of a group. The least recent groups are evicted if there is no room, itself last."""
        self._groups.pop(kept, None)
        self._groups[kept] = None
        self.bytes += growth
        while self.bytes > self._max_bytes:
            oldest = next(iter(self._groups))
            self.forgotten_until_ms = max(self.forgotten_until_ms, oldest.events[-1].at_ms)
            oldest.owner.drop(oldest)

    def remove(self, kept: _Events) -> None:
        """Remove a group's events."""
        del self._groups[kept]
        self.bytes -= kept.bytes


class GroupHistory:
    """Receives each event from the code that decides it. Events that operators look for are logged as well."""

    def __init__(self, memory: HistoryMemory | None = None) -> None:
        self._memory = memory or HistoryMemory()
        self._groups: dict[str, _Events] = {}

    def of(self, group_id: str) -> tuple[list[GroupEvent], int]:
        """Return a group's events, oldest first, and how many older events were evicted."""
        kept = self._groups.get(group_id)
        return ([], 0) if kept is None else (list(kept.events), kept.forgotten)

    def known_since_ms(self, group_id: str, loaded_at_ms: int) -> int:
        """Return since when all events of a group are kept, except for those that `of` counts as evicted."""
        kept = self._groups.get(group_id)
        until_ms = self._memory.forgotten_until_ms
        return max(loaded_at_ms, until_ms if kept is None else min(until_ms, kept.began_ms))

    def clear(self) -> None:
        """Remove all events: another broker coordinates these groups from now on."""
        for each in tuple(self._groups.values()):
            self.drop(each)

    def drop(self, kept: _Events) -> None:
        """Remove one group's events."""
        del self._groups[kept.group_id]
        self._memory.remove(kept)

    def add(self, group_id: str, event: GroupEvent) -> None:
        """Add an event."""
        assert event.what in GROUP_EVENT_KINDS, event.what
        kept = self._groups.get(group_id)
        if kept is None:
            kept = self._groups[group_id] = _Events(group_id, self, event.at_ms)
            growth = kept.bytes
        elif _follows_its_like(kept.events, event):
            kept.events[-1].more += 1
            return
        else:
            growth = 0
        for name in ("member_id", "instance_id", "client_id", "client_host", "detail", "by"):
            setattr(event, name, getattr(event, name)[:MAX_TEXT_CHARS])
        event.topics = tuple(each[:MAX_TOPIC_CHARS] for each in event.topics)
        kept.events.append(event)
        change = _event_bytes(event)
        if len(kept.events) > KEPT_OF_GROUP:
            change -= _event_bytes(kept.events.pop(0))
            kept.forgotten += 1
        kept.bytes += change
        self._memory.put(kept, growth + change)

    # -- members -------------------------------------------------------------------------------------------

    def joined(self, group_id: str, who: Who, at: Moment, detail: str = "") -> None:
        """Record that a member is about to join."""
        self._add_member("member_joined", group_id, who, at, detail)

    def members(
        self, what: str, group_id: str, members: Collection[Who], at: Moment, detail: str = ""
    ) -> None:
        """Record the same event for several members, and log one line for all."""
        for each in members:
            self._add_member(what, group_id, each, at, detail)
        first = next(iter(members), None)
        if first is not None:
            member_id = first.member_id if isinstance(first, Member) else first[0]
            log.info(f"group_{what}", group_id=group_id, members=len(members), member_id=member_id)

    def rejoined(
        self,
        group_id: str,
        member: Member,
        request: JoinGroup,
        had: Protocols | None,
        at: Moment,
        *,
        leads: bool,
    ) -> None:
        """Record that a member of a classic group caused a rebalance. `had`: its protocols until then."""
        topics, before = _topics(request.protocols), _topics(had or ())
        if topics is not None and before is not None and topics != before:
            self._add_member("subscription_changed", group_id, member, at, _names(topics), topics=topics)
        else:
            what = "leader_rejoined" if leads else "member_rejoined"
            self._add_member(what, group_id, member, at, request.reason)

    def _add_member(
        self, what: str, group_id: str, who: Who, at: Moment, detail: str, *, topics: Collection[str] = ()
    ) -> None:
        if isinstance(who, Member):
            names = (who.member_id, who.group_instance_id or "", who.client_id, who.client_host)
        else:
            member_id, it = who
            names = (member_id, it.instance_id or "", it.client_id, it.client_host)
        self.add(group_id, GroupEvent(what, at.now_ms, *names, detail, tuple(sorted(topics)[:NAMED_TOPICS])))

    def members_changed(
        self, group: Group, before: Group, at: Moment, *, gone: str = "member_left", detail: str = ""
    ) -> None:
        """Record changes of a consumer group's members or of the group's type.

        `gone`: the reason why missing members left.
        """
        group_id, had, has = group.group_id, _members(before), _members(group)
        if not before.exists:
            self.created(group_id, at)
        if had is not has:  # most changes are steps of one member, perhaps of thousands
            came = [(each, it) for each, it in has.items() if each not in had]
            left = [(each, it) for each, it in had.items() if each not in has]
            instances = {it.instance_id for _, it in came} - {None}
            replaced = [each for each in left if each[1].instance_id in instances]
            others = [each for each in left if each[1].instance_id not in instances]
            self.members("static_member_replaced", group_id, replaced, at)
            self.members(gone, group_id, others, at, detail)
            for each in came:
                self.joined(group_id, each, at)
        if (before.consumer is None) is not (group.consumer is None) and had and has:
            self.turned(group, at)
        if group.modern is not None:
            self._epoch_changed(group, before, at, is_other=had is not has and had.keys() != has.keys())

    def _epoch_changed(self, group: Group, before: Group, at: Moment, *, is_other: bool) -> None:
        old, new, group_id = before.modern, group.modern, group.group_id
        assert new is not None
        if old is not None and old.epoch != new.epoch and not is_other:
            changed = [
                (each, it) for each, it in new.members.items() if not _reads_same(old.members.get(each), it)
            ]
            for each in changed:
                detail, topics = each[1].regex or _names(each[1].topics), each[1].topics
                self._add_member("subscription_changed", group_id, each, at, detail, topics=topics)
            if not changed:
                self._changed("topics_changed", group_id, at)
        if new.epoch and (old is None or old.epoch != new.epoch):
            self.generation_began(group_id, new.epoch, len(new.members), at)
        if group.state == STABLE:
            self.settled(group_id, at)

    # -- the group -----------------------------------------------------------------------------------------

    def created(self, group_id: str, at: Moment) -> None:
        """Record that a group without any known state appeared."""
        self._changed("group_created", group_id, at)

    def generation_began(
        self, group_id: str, generation: int, members: int, at: Moment, *, took_ms: int = -1
    ) -> None:
        """Record a new generation or epoch; `took_ms`: the duration of the rebalance."""
        what = "generation_began" if members else "group_emptied"
        event = GroupEvent(what, at.now_ms, number=generation, count=members, took_ms=took_ms)
        self.add(group_id, event)
        log.info("group_generation_began", group_id=group_id, generation=generation, members=members)

    def settled(self, group_id: str, at: Moment) -> None:
        """Record that the members of the last generation have their assignments."""
        kept = self._groups.get(group_id)
        for each in reversed(kept.events if kept else ()):
            if each.what == "generation_began":
                if each.settled_ms < 0:
                    each.settled_ms = at.now_ms - each.at_ms
                return

    def turned(self, group: Group, at: Moment) -> None:
        """Record that a group changed its type."""
        kind = "classic" if group.consumer is None else "consumer"
        self._changed(f"became_{kind}_group", group.group_id, at)

    def deleted(self, group_id: str, at: Moment) -> None:
        """Record that a client deleted a group."""
        self._changed("group_deleted", group_id, at, by=self._memory.asked_by())

    def _changed(self, what: str, group_id: str, at: Moment, by: str = "") -> None:
        self.add(group_id, GroupEvent(what, at.now_ms, by=by))
        log.info(what, group_id=group_id)

    # -- offsets -------------------------------------------------------------------------------------------

    def committed_from_outside(
        self, request: CommitOffsets | TxnOffsetCommit, before: Group, at: Moment
    ) -> None:
        """Record that a client outside the membership committed offsets.

        It is an event if the group has had members. Consumers that assign partitions themselves commit this way, as do
        transactions of old clients.
        """
        if not before.exists:
            self.created(request.group_id, at)
        elif isinstance(request, CommitOffsets) and (before.has_metadata or before.consumer is not None):
            moves = [
                (
                    each.topic,
                    f"{each.topic}-{each.partition} {_from(before.offsets.get((each.topic, each.partition)))}"
                    f"to {each.committed.offset}",
                )
                for each in request.commits[:NAMED_PARTITIONS]
            ]
            self._offsets("offsets_set", request.group_id, len(request.commits), moves, at)

    def offsets_deleted(
        self, group: Group, before: Group, partitions: Iterable[tuple[str, int]], at: Moment
    ) -> None:
        """Record that a client deleted offsets."""
        there = islice((each for each in partitions if before.has(each)), NAMED_PARTITIONS)
        named = [(topic, f"{topic}-{index}") for topic, index in there]
        self._offsets("offsets_deleted", group.group_id, before.offset_count - group.offset_count, named, at)

    def offsets_expired(self, group_id: str, count: int, now_ms: int, *, is_all: bool) -> None:
        """Record that offsets expired; `is_all`: the group was removed with the last."""
        what = "group_expired" if is_all else "offsets_expired"
        self.add(group_id, GroupEvent(what, now_ms, count=count))
        log.info("group_offsets_expired", group_id=group_id, offsets=count)

    def _offsets(
        self, what: str, group_id: str, count: int, named: Sequence[tuple[str, str]], at: Moment
    ) -> None:
        """`named`: the first few partitions, each with its topic, as text."""
        detail, topics = ", ".join(words for _, words in named), tuple(dict(named))
        by = self._memory.asked_by()
        self.add(group_id, GroupEvent(what, at.now_ms, detail=detail, topics=topics, by=by, count=count))


def _event_bytes(event: GroupEvent) -> int:
    texts = (event.member_id, event.instance_id, event.client_id, event.client_host, event.detail, event.by)
    return EVENT_BYTES + 4 * sum(map(len, (*texts, *event.topics)))


def _follows_its_like(events: list[GroupEvent], event: GroupEvent) -> bool:
    if len(events) < SAME_IN_A_ROW or event.at_ms - events[-1].at_ms > AT_ONCE_MS:
        return False
    return event.number < 0 and all(each.what == event.what for each in events[-SAME_IN_A_ROW:])


def _from(committed: CommittedOffset | None) -> str:
    return "" if committed is None else f"from {committed.offset} "


def _members(group: Group) -> Mapping[str, MemberMetadata]:
    if group.modern is not None:
        return group.modern.members
    return {
        each.member_id: MemberMetadata(
            each.group_instance_id, client_id=each.client_id, client_host=each.client_host
        )
        for each in group.membership.members.values()
    }


def _reads_same(before: MemberMetadata | None, after: MemberMetadata) -> bool:
    return before is after or (
        before is not None and (before.topics, before.regex) == (after.topics, after.regex)
    )


def _topics(protocols: Protocols) -> frozenset[str] | None:
    return subscribed_topics(protocols[0][1]) if protocols else None


def _names(topics: Collection[str]) -> str:
    named = sorted(topics)[:NAMED_TOPICS]
    rest = len(topics) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")
