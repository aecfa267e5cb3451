"""A consumer of the classic protocol that keeps what it has while it joins again (KIP-429, cooperative rebalances).

The leader takes a partition from one member in one generation. It gives it to another in the next, after the first has
revoked it and joined again. So between two generations a member reads partitions without an assignee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog_chaos.workloads.classic_worker import I16, I32, REBALANCE_IN_PROGRESS, ClassicWorker
from raftlog_chaos.workloads.consumer_worker import JOINING


class CooperativeWorker(ClassicWorker):
    """The subscription, version 1, names what it reads."""

    protocol = "cooperative-sticky"
    quickness = 0.05
    _must_join = False

    async def _take(self, code: int) -> None:
        if code == REBALANCE_IN_PROGRESS:
            self._must_join = True
        else:
            await super()._take(code)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._must_join = False

    async def _act(self) -> int:
        if self.epoch != JOINING and self._must_join and not self._giving_up:
            return await self._join()
        return await super()._act()

    def _give_up(self) -> None:
        super()._give_up()
        self._must_join = True

    async def _adopt(self, parts: set[int], sent_at: float) -> int:
        self._must_join = False
        self.book.heard(self.member_id, sent_at)
        try:
            return await super()._adopt(parts, sent_at)
        finally:
            self._must_join = not parts <= self.positions.keys()

    def _shares(self, members: Sequence[Any]) -> dict[str, list[int]]:
        """Return the assignment: each member keeps its own up to a fair share; partitions that another still reads have
        to wait.
        """
        owned = {each.member_id: self._owned(bytes(each.metadata)) for each in members}
        most = -(-self.partitions // len(owned))
        wanted = {each: sorted(its)[:most] for each, its in sorted(owned.items())}
        kept = {index for its in wanted.values() for index in its}
        for index in sorted(set(range(self.partitions)) - kept):
            min(wanted.values(), key=len).append(index)
        held = {
            index: {each for each, its in owned.items() if index in its} for index in range(self.partitions)
        }
        return {each: [index for index in its if held[index] <= {each}] for each, its in wanted.items()}

    # -- the consumer protocol's bytes, version 1 ----------------------------------------------------------

    def _subscription(self) -> bytes:
        share = sorted(self.positions)
        owned = I32.pack(1) + self._topic() + b"".join(map(I32.pack, (len(share), *share)))
        return I16.pack(1) + super()._subscription()[I16.size :] + (owned if share else I32.pack(0))

    def _owned(self, subscription: bytes) -> set[int]:
        """A member's claim of what it reads."""
        return set(self._read(I16.pack(0) + subscription[len(super()._subscription()) :]))
