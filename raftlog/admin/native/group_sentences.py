"""Events of a consumer group in words: what happened, and what explains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftlog.base.group_events import TRIGGERS, GroupEvent

GENERATIONS: Final = frozenset({"generation_began", "group_emptied"})

MESSAGES: Final[dict[str, str]] = {
    "group_created": "the group began",
    "member_joined": "{who} joined",
    "member_rejoined": "{who} rejoined, which made the group rebalance",
    "leader_rejoined": "{who}, its leader, rejoined, which made the group rebalance",
    "subscription_changed": "{who} reads other topics: {detail}",
    "member_left": "{who} left",
    "member_away": "{who} left temporarily: its place is kept until its session ends",
    "session_timed_out": "{who} was removed",
    "rebalance_timed_out": "{who} was removed",
    "sync_timed_out": "{who} was removed",
    "static_member_replaced": "{who} was fenced",
    "member_refused": "{who} was removed",
    "topics_changed": "topics that the group reads have changed",
    "became_consumer_group": "the group is one of the consumer protocol now",
    "became_classic_group": "the group is one of the classic protocol now",
    "offsets_set": "{offsets} set from outside of the group: {detail}",
    "offsets_deleted": "{offsets} deleted: {detail}",
    "offsets_expired": "{offsets} forgotten",
    "group_deleted": "the group was deleted",
    "group_expired": "the group expired, with its last offsets",
}

SAID: Final = frozenset({"member_joined", "member_rejoined", "leader_rejoined", "member_left"})
"""The events with a client's reason in `detail` (KIP-800)."""

REASONS: Final[dict[str, str]] = {
    "leader_rejoined": "leaders do so when a topic that the group reads has other partitions",
    "session_timed_out": "it sent no heartbeat until its session timed out",
    "rebalance_timed_out": "it did not do its part of a rebalance in time (max.poll.interval.ms of most clients)",
    "sync_timed_out": "it joined a generation, but sent no SyncGroup",
    "static_member_replaced": "another member took its place, with the same group.instance.id",
    "member_refused": "the group has no room for it, or for its subscription",
    "became_consumer_group": "a member of that protocol joined",
    "became_classic_group": "its last member of the consumer protocol left",
    "offsets_expired": "they were not needed for offsets.retention.minutes",
    "group_expired": "it had no members for offsets.retention.minutes",
}


def sentence(event: GroupEvent) -> str:
    """Return what happened, without a sentence's end; for an unknown kind, from its fields."""
    if event.what in GENERATIONS:
        return _of_generation(event)
    template = MESSAGES.get(event.what)
    if template is None:
        return " ".join(filter(None, (event.what.replace("_", " "), event.detail)))
    offsets = "1 offset was" if event.count == 1 else f"{event.count} offsets were"
    text = template.format(who=member_name(event), detail=event.detail, offsets=offsets).removesuffix(": ")
    missing = event.count - len(event.detail.split(", ")) if event.what.startswith("offsets_") else 0
    if missing > 0 and event.detail:
        text += f" and {missing} more"
    return f"{text}, and {event.more} more after it" if event.more else text


def member_name(event: GroupEvent) -> str:
    """Return a member's client id, with a distinguishing suffix."""
    about = [f"static {event.instance_id}"] if event.instance_id else []
    about += [event.client_host.removeprefix("/")] if event.client_host else []
    name = event.client_id or event.member_id or "a member"
    return f"{name} ({', '.join(about)})" if about else name


def _of_generation(event: GroupEvent) -> str:
    if event.what == "group_emptied":
        return f"the group became empty, in generation {event.number}"
    members = "1 member" if event.count == 1 else f"{event.count} members"
    times = [f"gathered in {duration(event.took_ms)}"] if event.took_ms > 0 else []
    times += [f"assigned {duration(event.settled_ms)} later"] if event.settled_ms >= 0 else []
    text = f"generation {event.number} began with {members}"
    return f"{text} ({', '.join(times)})" if times else text


def duration(milliseconds: int) -> str:
    """Return a time for people."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def reason(events: Sequence[GroupEvent], index: int) -> str:
    """Return why an event came, without a sentence's end; "" if unknown. `events`: the oldest first."""
    event = events[index]
    if event.what in GENERATIONS:
        return _reason_of_generation(events, index)
    if event.by:
        return f"{event.by} asked for it"
    if event.detail and event.what in SAID:
        return f'the client gave the reason "{event.detail}"'
    known = REASONS.get(event.what, "")
    return f"{known} ({event.detail})" if event.what == "session_timed_out" and event.detail else known


def _reason_of_generation(events: Sequence[GroupEvent], index: int) -> str:
    """The first event since the generation before that had members join again, and how many followed."""
    begin = index
    while begin and events[begin - 1].what not in GENERATIONS:
        begin -= 1
    found = [each for each in range(begin, index) if events[each].what in TRIGGERS]
    if not found:
        return ""
    why = reason(events, found[0])
    text = sentence(events[found[0]]) + (f": {why}" if why else "")
    more = len(found) - 1
    return f"{text}; and {more} more {'change' if more == 1 else 'changes'}" if more else text
