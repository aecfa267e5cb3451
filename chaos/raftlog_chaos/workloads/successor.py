"""Consume, transform, produce by members of a group, each under a transactional id of its own (KIP-447).

No id fences another here. A member that was removed from the group may commit no more offsets. But a transaction with
committed offsets goes on to its end. So the next owner has to wait for that before it reads where to begin.
"""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import MemberIdRequired
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.exactly_once import Attempt, ExactlyOnceWorker
from raftlog_chaos.workloads.raw_client import JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from raftlog_chaos.workloads.txn_client import GROUP, Refused, TransactionalProducer

PROTOCOL_TYPE: Final = "sim"
PROTOCOL: Final = "the leader reads"
MEMBER_ID_REQUIRED: Final = MemberIdRequired.code

SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 200
"""A member that does not rejoin within this is removed, as is every member here: a life has one generation."""


class SeatedProducer(TransactionalProducer):
    """A producer that commits offsets as a member of its group, in one generation."""

    member_id = ""
    generation = -1

    def seat(self) -> dict[str, Any]:
        return {"generation_id": self.generation, "member_id": self.member_id}

    def _member(self) -> ClassicMember:
        return ClassicMember(self.group, self.member_id, PROTOCOL_TYPE, PROTOCOL)

    async def join(self) -> bool:
        """Join the group anew; says whether this member leads the generation, and so reads. LookupError: not now."""
        code, self.member_id = MEMBER_ID_REQUIRED, ""
        while code == MEMBER_ID_REQUIRED:
            request = self._member().join(b"", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
            joined = await self._ask_coordinator(GROUP, JOIN_GROUP, request, None)
            code, self.member_id = int(joined.error_code), joined.member_id
        self._check("JoinGroup", code)
        self.generation = joined.generation_id
        return bool(joined.leader == self.member_id) and await self._sync()

    async def _sync(self) -> bool:
        request = self._member().sync(self.generation, {self.member_id: b"all"})
        synced = await self._ask_coordinator(GROUP, SYNC_GROUP, request, None)
        self._check("SyncGroup", int(synced.error_code))
        return True

    async def leave(self) -> None:
        await self._ask_coordinator(GROUP, LEAVE_GROUP, self._member().leave(), None)


class Successor(ExactlyOnceWorker):
    """A worker that shares a group; its `transactional_id` names only the sequence of numbers."""

    def producer(self) -> SeatedProducer:
        return SeatedProducer(
            self.client,
            self.client.name,
            group=f"group-{self.transactional_id}",
            reads=(self.book.topic, 0),
            bumping=self.bumping,
        )

    async def _live(self) -> None:
        """Take the seat of the present worker, look up the progress, and go on from there for a while."""
        producer = self.producer()
        await self._step("init")
        await producer.init()
        if await producer.join():
            await self._go_on(producer)
        if self.chance.random() < 0.5:
            await producer.leave()

    async def _commit_offset(self, producer: TransactionalProducer, attempt: Attempt) -> None:
        """Its generation may be over: then its transaction must be aborted."""
        try:
            await producer.commit_offset(attempt.number + 1)
        except Refused as error:
            self.book.void(attempt, f"its offset was refused ({error})")
            await producer.end(commit=False)
            raise
