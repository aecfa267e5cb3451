"""A consumer of the classic protocol in a group that may become a consumer group and back while it is in it.

It gives up all it has before it joins (eager), and assigns in turn if it leads, as long as anybody leads. The
cooperative one (KIP-429) is in `cooperative_worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from raftlog_chaos.workloads.consumer_worker import JOINING, ConsumerWorker
from raftlog_chaos.workloads.raw_client import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, shapes

ILLEGAL_GENERATION: Final = 22
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
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

    async def _beat(self) -> int:
        if self.epoch == JOINING:
            return await self._join()
        request = shapes(HEARTBEAT).HeartbeatRequest(
            group_id=self.book.name,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        sent_at = asyncio.get_running_loop().time()
        code = int((await self._ask(HEARTBEAT, request)).error_code)
        if not code:
            self.book.heard(self.member_id, sent_at)
        return code

    async def _join(self) -> int:
        make = shapes(JOIN_GROUP)
        protocol = make.JoinGroupRequestProtocol(name=self.protocol, metadata=self._subscription())
        joined = await self._ask(
            JOIN_GROUP,
            make.JoinGroupRequest(
                group_id=self.book.name,
                session_timeout=SESSION_MS,
                rebalance_timeout=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=(protocol,),
            ),
        )
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
        make = shapes(SYNC_GROUP)
        sent_at = asyncio.get_running_loop().time()
        synced = await self._ask(
            SYNC_GROUP,
            make.SyncGroupRequest(
                group_id=self.book.name,
                generation_id=generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name=self.protocol,
                assignments=tuple(
                    make.SyncGroupRequestAssignment(member_id=each, assignment=self._assignment(share))
                    for each, share in shares.items()
                ),
            ),
        )
        if int(synced.error_code):
            return int(synced.error_code)
        self.epoch = generation
        return await self._adopt(set(self._read(bytes(synced.assignment))), sent_at)

    async def _leave(self) -> int:
        make = shapes(LEAVE_GROUP)
        me = make.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        self._forget()
        request = make.LeaveGroupRequest(group_id=self.book.name, members=(me,))
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
        """The partitions of the one topic, if it is in there."""
        if len(assignment) < I16.size + I32.size or not I32.unpack_from(assignment, I16.size)[0]:
            return []
        position = I16.size + I32.size + len(self._topic())
        (count,) = I32.unpack_from(assignment, position)
        begin = position + I32.size
        return [I32.unpack_from(assignment, begin + I32.size * number)[0] for number in range(count)]
