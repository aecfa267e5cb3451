"""The requests and responses of the members of a consumer group (KIP-848), and the invariants that hold despite
crashes.

A partition is owned by one process at a time: from its assignment until the process revokes it, or its session could
have expired. Within an epoch the owner of a partition never changes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from raftlog_chaos.workloads.group_model import GroupModel

SESSION_S: Final = 1.0


class ConsumerGroupModel(GroupModel):
    """One group's. Times are loop seconds."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._hands: defaultdict[int, dict[str, float]] = defaultdict(dict)
        """Keyed by partition: its reader, and until when at least the coordinator considers that process alive."""
        self.took_one = asyncio.Event()
        """Set when a member gets a revocation, for scenarios that act before it is carried out."""

    def heard(self, member_id: str, sent_at: float) -> None:
        """Record a heartbeat's response: the session lasts from when the heartbeat was sent, or longer."""
        for hands in self._hands.values():
            if member_id in hands:
                hands[member_id] = sent_at + SESSION_S

    def given(
        self, member_id: str, owner: str, epoch: int, partitions: Iterable[int], *, at: tuple[float, float]
    ) -> None:
        """Record that a member got partitions; `at`: when it sent the request, and when it got the response."""
        sent_at, now = at
        indexes = sorted(partitions)
        self.assigned(epoch, owner, indexes)
        for index in indexes:
            hands = self._hands[index]
            for other, alive_until in tuple(hands.items()):
                if other != member_id and now < alive_until:
                    self._blame(
                        f"partition {index} was given to {member_id} in epoch {epoch}, while {other} has it"
                    )
                if other != member_id:
                    del hands[other]
            hands[member_id] = sent_at + SESSION_S
        self.member_admitted.set()

    def gives_up(self, member_id: str, partitions: Iterable[int] | None = None) -> None:
        """Record that a process no longer reads these (all of them if None): from now on another process may."""
        for index in tuple(self._hands) if partitions is None else partitions:
            self._hands[index].pop(member_id, None)

    def readers(self, index: int) -> list[str]:
        return list(self._hands[index])
