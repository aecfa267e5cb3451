"""The protocols that the members of a group offer to choose from, and their sums of bytes (`group_memory`).

Soft: records keep only the chosen protocol. Sizes are kept as sums, so that admitting a member does not visit all
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType

from raftlog.coordinator.group import Member
from raftlog.coordinator.group_memory import member_record_bytes, protocols_bytes

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols, best first: (name, subscription)."""

ProtocolNames = frozenset[str]

ProtocolsByMember = Mapping[str, Protocols]
"""Protocols by member id."""


def _ignore(growth: int) -> None:
    """Ignore growth, for callers that do not count."""


class MemberProtocols:
    """The protocols of all present members. `count(growth)` gets their growth in bytes of memory."""

    __slots__ = ("_count", "_names", "_offers", "_recorded", "_sizes", "_total_size", "bytes")

    def __init__(self, count: Callable[[int], None] = _ignore) -> None:
        self._count = count
        self.bytes = 0
        """The size of all the protocols."""
        self._offers: dict[str, Protocols] = {}
        self._recorded: set[str] = set()
        """Members with only their recorded protocol known."""
        self._sizes: dict[str, int] = {}
        self._total_size = 0
        self._names: Counter[ProtocolNames] = Counter()

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self._offers)

    def put(self, member: Member, protocols: Protocols) -> None:
        """Set a member's protocols."""
        member_id = member.member_id
        self.drop(member_id)
        self._offers[member_id] = protocols
        self._sizes[member_id] = size = member_record_bytes(member, protocols)
        self._total_size += size
        self._grow(protocols_bytes(protocols))
        self._names[_names_of(protocols)] += 1

    def _grow(self, growth: int) -> None:
        self.bytes += growth
        self._count(growth)

    def put_recorded(self, member: Member, protocol: str | None) -> None:
        """Add a member of a loaded group: it offers at least the recorded protocol."""
        self.put(member, ((protocol or "", member.subscription),))
        self._recorded.add(member.member_id)

    def drop(self, member_id: str) -> None:
        """Remove a member; it need not exist."""
        protocols = self._offers.pop(member_id, None)
        if protocols is None:
            return
        self._recorded.discard(member_id)
        self._total_size -= self._sizes.pop(member_id)
        self._grow(-protocols_bytes(protocols))
        names = _names_of(protocols)
        self._names[names] -= 1
        if not self._names[names]:
            del self._names[names]

    def keep(self, member_ids: Container[str]) -> None:
        """Drop all others."""
        for member_id in tuple(self._offers):
            if member_id not in member_ids:
                self.drop(member_id)

    def of(self, member_id: str) -> Protocols:
        """Return the protocols of a present member, as far as known."""
        return self._offers[member_id]

    def all(self) -> ProtocolsByMember:
        """Return the protocols of each present member, as far as known."""
        return MappingProxyType(self._offers)

    def joined_with(self, member_id: str) -> Protocols | None:
        """Return all protocols of a member; None if it joined another coordinator."""
        return None if member_id in self._recorded else self._offers.get(member_id)

    def common(self) -> ProtocolNames | None:
        """Return the names of protocols that all members have; None without members."""
        distinct = list(self._names)
        return distinct[0].intersection(*distinct[1:]) if distinct else None

    def size_with(self, member: Member, protocols: Protocols) -> int:
        """Return the largest size of the next generation's record if a member joins (again) with these."""
        return (
            self._total_size - self._sizes.get(member.member_id, 0) + member_record_bytes(member, protocols)
        )

    def growth_with(self, member_id: str, protocols: Protocols) -> int:
        """Return by how many bytes of memory all protocols grow if a member joins (again) with these."""
        return protocols_bytes(protocols) - protocols_bytes(self._offers.get(member_id, ()))


def _names_of(protocols: Protocols) -> ProtocolNames:
    return frozenset(name for name, _ in protocols)
