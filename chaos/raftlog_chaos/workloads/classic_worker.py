"""A consumer of the classic protocol in a group that may become a consumer group and back in the meantime.

It gives up all its partitions before it joins (eager), and assigns in turn if it leads, as long as the group has a
leader. The cooperative consumer (KIP-429) is in `cooperative_worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from raftlog.base.errors import IllegalGeneration, MemberIdRequired, RebalanceInProgress
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.consumer_worker import JOINING, ConsumerWorker
from raftlog_chaos.workloads.raw_client import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

ILLEGAL_GENERATION: Final = IllegalGeneration.code
REBALANCE_IN_PROGRESS: Final = RebalanceInProgress.code
MEMBER_ID_REQUIRED: Final = MemberIdRequired.code
MUST_REJOIN: Final = frozenset({ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS})

SESSION_MS: Final = 1_000
REBALANCE_MS: Final = 2_000
I16: Final = Struct(">h")
I32: Final = Struct(">i")


class ClassicWorker(ConsumerWorker):
    """`epoch` is its generation."""

    protocol = "range"

    async def _take(self, code: int) -> None:
        if code in MUST_REJOIN:
            member_id = self.member_id
            self._begin_anew()
            self.member_id = member_id
        else:
            await super()._take(code)

    def _forget(self) -> None:
        self._begin_anew()
        self.member_id = ""

    def _member(self) -> ClassicMember:
        return ClassicMember(self.book.name, self.member_id, "consumer", self.protocol, self.instance)

    async def _beat(self) -> int:
        if self.epoch == JOINING:
            return await self._join()
        sent_at = asyncio.get_running_loop().time()
        code = int((await self._ask(HEARTBEAT, self._member().heartbeat(self.epoch))).error_code)
        if not code:
            self.book.heard(self.member_id, sent_at)
        return code

    async def _join(self) -> int:
        request = self._member().join(self._subscription(), session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
        joined = await self._ask(JOIN_GROUP, request)
        code = int(joined.error_code)
        if code == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return 0
        if code:
            return code
        self.member_id = joined.member_id
        leads = joined.leader == self.member_id and not joined.skip_assignment
        return await self._sync(joined.generation_id, self._shares(joined.members) if leads else {})

    def _shares(self, members: Sequence[Any]) -> dict[str, list[int]]:
        """The assignment: each partition in turn."""
        ids = sorted(each.member_id for each in members)
        return {each: list(range(number, self.partitions, len(ids))) for number, each in enumerate(ids)}

    async def _sync(self, generation: int, shares: dict[str, list[int]]) -> int:
        assignments = {each: self._assignment(share) for each, share in shares.items()}
        sent_at = asyncio.get_running_loop().time()
        synced = await self._ask(SYNC_GROUP, self._member().sync(generation, assignments))
        if int(synced.error_code):
            return int(synced.error_code)
        self.epoch = generation
        return await self._adopt(set(self._read(bytes(synced.assignment))), sent_at)

    async def _leave(self) -> int:
        request = self._member().leave()
        self._forget()
        response = await self._ask(LEAVE_GROUP, request)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        return int(response.error_code)

    async def _commit_late(self) -> int:
        return 0

    # -- the consumer protocol's bytes, version 0 ----------------------------------------------------------

    def _topic(self) -> bytes:
        name = self.topic.encode()
        return I16.pack(len(name)) + name

    def _subscription(self) -> bytes:
        return I16.pack(0) + I32.pack(1) + self._topic() + I32.pack(-1)

    def _assignment(self, share: list[int]) -> bytes:
        indexes = I32.pack(len(share)) + b"".join(map(I32.pack, share))
        return I16.pack(0) + I32.pack(1) + self._topic() + indexes + I32.pack(-1)

    def _read(self, assignment: bytes) -> list[Any]:
        """Return the partitions of the topic, if it is assigned."""
        if len(assignment) < I16.size + I32.size or not I32.unpack_from(assignment, I16.size)[0]:
            return []
        position = I16.size + I32.size + len(self._topic())
        (count,) = I32.unpack_from(assignment, position)
        begin = position + I32.size
        return [I32.unpack_from(assignment, begin + I32.size * number)[0] for number in range(count)]
