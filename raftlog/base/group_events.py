"""The events of a consumer group, which its coordinator sends to the queried node. Values only."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_TOLD_TOPICS: Final = 100
"""Topics of a group that the response names at most."""


class GroupEvent(msgspec.Struct, omit_defaults=True):
    """One event; `what` is a key of `GROUP_EVENT_KINDS`. `at_ms` is the coordinator's wall clock.

    The member is the event's subject; `more`: the number of immediate repeats. `detail` is text of clients, or names of
    topics and partitions; clients may lack authorization for these `topics`. `by`: the requesting principal, "" if
    unknown. `number`: a generation or an epoch. `count`: members, or offsets. `took_ms`: how long members were
    gathered. `settled_ms`: the time from the start of a generation to its assignments; -1: not yet, or never.
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
"""The kinds of events that cause a new generation."""

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
"""The kinds of events. `offsets_set` and similar kinds come from outside of the group."""


class GroupHistoryAnswer(msgspec.Struct):
    """A group and its events, oldest first. `forgotten`: the number of older events since `known_since_ms` that were
    evicted.

    `loaded_at_ms`: when this coordinator began, in `leader_epoch` of partition `partition` of the offsets topic.
    `known_since_ms`: the same, or later after evictions. `type` is "classic", "consumer", or "" for a deleted group.
    `topics`: the topics that its members read.
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
