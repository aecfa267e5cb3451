"""Bounds the memory of subscriptions in a consumer group, in each coordinator and each copy of the group.

A classic group is bounded by its single record. Here each member has a record of its own, so this bounds their sum. A
heartbeat costs only what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.coordinator.consumer.consumer_membership import MemberMetadata

MAX_SUBSCRIPTION_BYTES: Final = 64 * 1024 * 1024
"""For all members of a group together, about half a million names of topics."""

NAME_BYTES: Final = 60
"""The memory of a name beside its characters."""

Members = Mapping[str, MemberMetadata]


class SubscriptionBytes:
    """The bytes of the recorded members."""

    __slots__ = ("_members", "_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._members: Members = {}
        self._of: dict[str, int] = {}

    def update(self, members: Members) -> None:
        """Update to the present members."""
        if members is self._members:
            return
        for member_id in self._members.keys() - members.keys():
            self.total -= self._of.pop(member_id)
        for member_id, it in members.items():
            if it is not self._members.get(member_id):
                self.total -= self._of.get(member_id, 0)
                self._of[member_id] = weight = member_bytes(member_id, it)
                self.total += weight
        self._members = members

    def total_with(self, members: Members) -> int:
        """Return the bytes with these members."""
        if members is self._members:
            return self.total
        gone = sum(self._of[each] for each in self._members.keys() - members.keys())
        grown = sum(
            member_bytes(member_id, it) - self._of.get(member_id, 0)
            for member_id, it in members.items()
            if it is not self._members.get(member_id)
        )
        return self.total - gone + grown


def member_bytes(member_id: str, subscriber: MemberMetadata) -> int:
    """Return about how many bytes a member's description takes."""
    protocols = subscriber.classic.protocols if subscriber.classic else ()
    names = (
        member_id,
        subscriber.instance_id or "",
        subscriber.rack_id or "",
        subscriber.client_id,
        subscriber.client_host,
        subscriber.regex or "",
        *subscriber.topics,
    )
    return (
        NAME_BYTES * (len(names) + len(protocols))
        + sum(map(len, names))
        + sum(len(name) + len(subscription) for name, subscription in protocols)
    )
