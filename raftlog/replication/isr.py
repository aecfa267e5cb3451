"""The in-sync replicas as their leader sees them: agreed on, or agreed on plus one pending change (KIP-497).

These are values only. `LeaderRole` decides which follower is out of sync, and which is back in.

Until the controller has answered, a change may or may not have happened. So the high watermark is computed over
`maximal`: every replica that is in the ISR under either answer.
"""

from __future__ import annotations

from typing import NamedTuple


class CommittedIsr(NamedTuple):
    """The ISR of the metadata log, at the partition epoch that the leader knows."""

    committed: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    @property
    def proposed(self) -> tuple[int, ...]:
        return self.committed


class PendingExpand(NamedTuple):
    """`joining` was proposed as a member: it counts already, since the controller may have accepted it."""

    committed: tuple[int, ...]
    joining: int

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.committed, self.joining)

    @property
    def proposed(self) -> tuple[int, ...]:
        return (*self.committed, self.joining)


class PendingShrink(NamedTuple):
    """`leaving` were proposed to be removed: they still count, since the controller may refuse."""

    committed: tuple[int, ...]
    leaving: frozenset[int]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    @property
    def proposed(self) -> tuple[int, ...]:
        return tuple(member for member in self.committed if member not in self.leaving)


Isr = CommittedIsr | PendingExpand | PendingShrink
