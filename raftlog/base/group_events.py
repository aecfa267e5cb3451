"""The events of a consumer group, as its coordinator tells them to whichever node is asked. Values only."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_TOLD_TOPICS: Final = 100
"""Topics that a group reads, of which the answer names so many."""


class GroupEvent(msgspec.Struct, omit_defaults=True):
    """One event; `what` is a key of `GROUP_EVENT_KINDS`. `at_ms` is the coordinator's wall clock.

    The member is the one that the event is about; `more`: so many further events of this kind followed at once.
    `detail` is text of clients, or names of topics and partitions: those of `topics`, which not everybody may see.
    `by`: the principal who asked, "" if that is not known.
    `number`: a generation or an epoch. `count`: members, or offsets. `took_ms`: how long members were gathered.
    `settled_ms`: how long after it began a generation had its assignments; -1: not yet, or never.
    """

    what: str
    at_ms: int
    member_id: str = ""
    instance_id: str = ""
    client_id: str = ""
    client_host: str = ""
    detail: str = ""
    topics: tuple[str, ...] = ()
    by: str = ""
    number: int = -1
    count: int = 0
    took_ms: int = -1
    settled_ms: int = -1
    more: int = 0


TRIGGERS: Final = frozenset(
    {
        "member_joined",
        "member_rejoined",
        "leader_rejoined",
        "subscription_changed",
        "member_left",
        "session_timed_out",
        "rebalance_timed_out",
        "sync_timed_out",
        "static_member_replaced",
        "member_refused",
        "topics_changed",
        "became_consumer_group",
        "became_classic_group",
    }
)
"""The kinds of events that a new generation follows from."""

GROUP_EVENT_KINDS: Final = TRIGGERS | {
    "group_created",
    "member_away",
    "generation_began",
    "group_emptied",
    "offsets_set",
    "offsets_deleted",
    "offsets_expired",
    "group_deleted",
    "group_expired",
}
"""The kinds of events. Those of `offsets_set` and the like come from outside of the group."""


class GroupHistoryAnswer(msgspec.Struct):
    """A group and its events, the oldest first. `forgotten`: how many older ones there were since `known_since_ms`.

    `loaded_at_ms`: when this coordinator began, in `leader_epoch` of partition `partition` of the offsets topic.
    `known_since_ms`: the same, or later if there was no room for what happened until then.
    `type` is "classic", "consumer", or "" for a group that is no more. `topics`: those that its members read.
    """

    state: str
    type: str
    members: int
    generation: int
    partition: int
    leader_epoch: int
    loaded_at_ms: int
    known_since_ms: int
    topics: list[str]
    events: list[GroupEvent]
    forgotten: int
