"""A member among others of one group: it joins, assigns if it leads, commits what it owns, and behaves badly.

It leaves, forgets its member id, sleeps through its session and then commits as before, and sends a commit of its
former generation late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from raftlog.base.errors import (
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.group_model import GroupModel
from raftlog_chaos.workloads.raw_client import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_FETCH,
    SYNC_GROUP,
    Client,
    shapes,
)
from raftlog_chaos.workloads.worker import BACKOFF_S, NOT_NOW, Worker

ILLEGAL_GENERATION: Final = IllegalGeneration.code
UNKNOWN_MEMBER_ID: Final = UnknownMemberId.code
REBALANCE_IN_PROGRESS: Final = RebalanceInProgress.code
MEMBER_ID_REQUIRED: Final = MemberIdRequired.code
FENCED_INSTANCE_ID: Final = FencedInstanceId.code

SESSION_MS: Final = 1_000
REBALANCE_MS: Final = 2_000
PATIENCE_S: Final = 8.0
"""How long a request may take: a JoinGroup waits for the others."""

_INDEX = Struct(">h")


class GroupWorker(Worker):
    """A member of the classic protocol."""

    def __init__(
        self,
        client: Client,
        reads: tuple[str, int],
        *,
        book: GroupModel,
        instance: str | None,
        chance: random.Random,
    ) -> None:
        super().__init__(client, reads, group_id=book.name, instance=instance, chance=chance)
        self.book = book
        self.generation = self._latest = -1

    async def _take(self, code: int) -> None:
        """React to an error code."""
        if code in NOT_NOW:
            self._coordinator = None
        elif code in (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
            self.generation = -1
        elif code == UNKNOWN_MEMBER_ID:
            self._forget()
        elif code == FENCED_INSTANCE_ID:
            self._forget()
            await asyncio.sleep(self._chance.uniform(0.5, 2.0))
        else:
            self.book.history.blame(f"{self.client.name}: refused with error {code}")
        await asyncio.sleep(BACKOFF_S)

    def _forget(self) -> None:
        self.member_id, self.generation = "", -1

    async def _act(self) -> int:
        if self.generation < 0:
            return await self._join()
        luck = 1.0 if self.calm else self._chance.random()
        if luck < 0.01:
            return await self._leave()
        if luck < 0.02:
            self._forget()
            return 0
        if luck < 0.03:  # like a paused process: then it goes on where it was
            await asyncio.sleep(self._chance.uniform(1.0, 4.0))
        elif luck < 0.3 or not self.positions or self._chance.random() < 0.2:
            return await self._beat()
        if self._former is not None and luck > 0.9:
            return await self._commit_late()
        return await self._commit()

    # -- membership ----------------------------------------------------------------------------------------

    def _member(self) -> ClassicMember:
        return ClassicMember(self.book.name, self.member_id, "sim", "shares", self.instance)

    async def _join(self) -> int:
        ended = self.book.lives_of(self.instance) - {self.member_id}
        request = self._member().join(b"", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
        joined = await self._ask(JOIN_GROUP, request)
        code = int(joined.error_code)
        if code == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return 0
        if code:
            return code
        self.member_id = joined.member_id
        self.book.joined(self.instance, self.member_id, ended)
        self.book.admitted(joined.generation_id, joined.leader)
        members = sorted(
            (each.group_instance_id or each.member_id, each.member_id) for each in joined.members
        )
        if members:
            self.book.listed(joined.generation_id, tuple(each for _, each in members))
        leads = joined.leader == self.member_id and not joined.skip_assignment
        return await self._sync(joined.generation_id, [each for _, each in members] if leads else [])

    async def _sync(self, generation: int, members: Sequence[str]) -> int:
        shares: dict[str, bytes] = dict.fromkeys(members, b"")
        for index in range(self.partitions if members else 0):
            shares[members[index % len(members)]] += _INDEX.pack(index)
        synced = await self._ask(SYNC_GROUP, self._member().sync(generation, shares))
        if int(synced.error_code):
            return int(synced.error_code)
        mine = [index for (index,) in _INDEX.iter_unpack(bytes(synced.assignment))]
        self.book.assigned(generation, self.instance or self.member_id, mine)
        return await self._fetch(generation, mine)

    async def _fetch(self, generation: int, mine: list[int]) -> int:
        """Go on from the last owner's committed offsets."""
        make = shapes(OFFSET_FETCH)
        least = {index: self.book.least(index) for index in mine}
        topics = (make.OffsetFetchRequestTopic(name=self.topic, partition_indexes=tuple(mine)),)
        response = await self._ask(
            OFFSET_FETCH, make.OffsetFetchRequest(group_id=self.book.name, topics=topics if mine else ())
        )
        if int(response.error_code):
            return int(response.error_code)
        self._former = (
            (self._latest, self.positions) if self.positions and generation > self._latest else None
        )
        self.positions, self._latest = {}, generation
        for topic in response.topics:
            for each in topic.partitions:
                index = each.partition_index
                self.book.read(index, each.committed_offset, least=least[index])
                self.positions[index] = max(each.committed_offset, 0)
        self.generation = generation
        return 0

    async def _beat(self) -> int:
        return int((await self._ask(HEARTBEAT, self._member().heartbeat(self.generation))).error_code)

    async def _leave(self) -> int:
        request = self._member().leave()
        self._forget()
        response = await self._ask(LEAVE_GROUP, request)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        return int(response.error_code)

    # -- offsets -------------------------------------------------------------------------------------------

    async def _commit(self) -> int:
        index = self._chance.choice(sorted(self.positions))
        offset = self.positions[index] + 1
        least = self.book.least(index)
        was_over = self.book.is_over(self.member_id)
        self.book.attempt(index, offset)
        code = await self._send_commit(self.generation, index, offset, instance=self.instance)
        if code == 0:
            self.positions[index] = offset
            self.book.committed(self.member_id, index, offset, least=least, was_over=was_over)
        return code

    async def _commit_late(self) -> int:
        """Send a commit that was in flight when the next generation began: it must be refused."""
        assert self._former is not None
        (generation, positions), self._former = self._former, None
        index, position = self._chance.choice(sorted(positions.items()))
        code = await self._send_commit(generation, index, position, instance=self.instance)
        if code == 0:
            self.book.committed(self.member_id, index, position, least=0, was_over=True)
        return 0 if code == ILLEGAL_GENERATION else code

    async def _ask(self, api_key: int, request: Any) -> Any:
        clock, member_id = asyncio.get_running_loop().time, self.member_id
        self.book.asks(member_id, clock())
        try:
            return await super()._ask(api_key, request)
        finally:
            self.book.hears(member_id, clock())
