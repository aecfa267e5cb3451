"""The requests and responses of the members of a group, and the invariants that hold despite crashes.

A generation has one leader, gives a partition to one owner only, and keeps no members that fell silent. An acknowledged
commit is never taken back. A member of a former generation, or with a static id that was taken over, commits no offset.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.workloads.observations import Observations

SILENCE_S = 8.0
"""A session, the time for a rebalance, and a coordinator's failover, with much to spare; virtual seconds."""


class GroupModel:
    """The model of one group. Owners are static ids, or member ids of members without a static id."""

    def __init__(self, name: str, history: Observations, instances: frozenset[str]) -> None:
        self.name = name
        self.history = history
        self.acked: dict[int, int] = {}
        self.commits = 0
        self.generations: set[int] = set()
        self.member_admitted = asyncio.Event()
        """Set when a member was admitted to a generation, for scenarios that act at that moment."""
        self._attempted: dict[int, int] = {}
        self._leaders: dict[int, str] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._lives: dict[str, set[str]] = {each: set() for each in instances}
        self._over: set[str] = set()
        self._newest: tuple[int, tuple[str, ...]] = (-1, ())
        self._heard_at: dict[str, float] = {}
        self._asking: dict[str, int] = {}

    # -- ownership -----------------------------------------------------------------------------------------

    def assigned(self, generation: int, owner: str, partitions: list[int]) -> None:
        self.generations.add(generation)
        for index in partitions:
            known = self._owners.setdefault((generation, index), owner)
            if known != owner:
                self._blame(f"generation {generation} gave partition {index} to {known} and to {owner}")

    def admitted(self, generation: int, leader: str) -> None:
        """Record a member of a generation. A static leader's id changes with its incarnations, except for the
        beginning.
        """
        self.member_admitted.set()
        owner = next((each for each in self._lives if leader.startswith(f"{each}-")), leader)
        known = self._leaders.setdefault(generation, owner)
        if known != owner:
            self._blame(f"generation {generation} is led by {known} and by {owner}")

    def listed(self, generation: int, members: tuple[str, ...]) -> None:
        """Check the members that a leader got of its generation."""
        self._newest = max(self._newest, (generation, members))

    def asks(self, member_id: str, now: float) -> None:
        """Record that a member sends a request; `hears` ends it, answered or given up."""
        self._heard_at[member_id] = now
        self._asking[member_id] = self._asking.get(member_id, 0) + 1

    def hears(self, member_id: str, now: float) -> None:
        self._heard_at[member_id] = now
        self._asking[member_id] -= 1

    def finds_sleepers(self, since: float, now: float) -> bool:
        """Return whether the newest generation has a silent member; no node has died after `since`."""
        generation, members = self._newest
        for each in members:
            silent_s = now - max(since, self._heard_at.get(each, since))
            if silent_s > SILENCE_S and not self._asking.get(each):
                self._blame(f"{each} is in generation {generation}, and silent for {silent_s:.1f} s")
                return True
        return False

    def lives_of(self, instance: str | None) -> frozenset[str]:
        """Return the member ids that a static id has had so far; a join that begins now ends them."""
        return frozenset(self._lives.get(instance or "", ()))

    def joined(self, instance: str | None, member_id: str, ended: frozenset[str]) -> None:
        if instance is not None:
            self._over |= ended - {member_id}
            self._lives.setdefault(instance, set()).add(member_id)

    # -- offsets -------------------------------------------------------------------------------------------

    def least(self, index: int) -> int:
        return self.acked.get(index, 0)

    def attempt(self, index: int, offset: int) -> None:
        self._attempted[index] = max(offset, self._attempted.get(index, 0))

    def committed(self, member_id: str, index: int, offset: int, *, least: int, was_over: bool) -> None:
        """Check an acknowledged commit; `least` and `was_over` (it could not be right) are from when it was sent."""
        self.commits += 1
        if offset < least:
            self._blame(f"partition {index}: {offset} was taken from {member_id} after {least}")
        if was_over:
            self._blame(f"{member_id} committed, though its static id has a new life, or it a new generation")
        self.acked[index] = max(offset, self.least(index))

    def is_over(self, member_id: str) -> bool:
        return member_id in self._over

    def read(self, index: int, offset: int, *, least: int) -> None:
        """Check a fetched offset; `least` is from the time of the request."""
        found = max(offset, 0)
        if not least <= found <= self._attempted.get(index, 0):
            self._blame(f"partition {index}: {found} is committed, {least} was acknowledged")

    def _blame(self, text: str) -> None:
        self.history.blame(f"{self.name}: {text}")
