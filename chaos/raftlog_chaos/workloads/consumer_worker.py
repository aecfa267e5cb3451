"""A member of a consumer group (KIP-848) among others: it sends heartbeats, commits what it owns, and behaves badly.

It leaves, for a while or for good, and forgets its member id. It sleeps through its session and then goes on as before.
It gives up a partition slowly, and sends a commit of its former epoch late. Some members take responses for lost and
retry as if they had missed no response. These report their partitions only after a change, as librdkafka does.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from raftlog.base.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from raftlog_chaos.workloads.consumer_group_model import ConsumerGroupModel
from raftlog_chaos.workloads.raw_client import CONSUMER_GROUP_HEARTBEAT, OFFSET_FETCH, Client, shapes
from raftlog_chaos.workloads.worker import BACKOFF_S, NOT_NOW, Worker

UNKNOWN_MEMBER_ID: Final = UnknownMemberId.code
GROUP_ID_NOT_FOUND: Final = GroupIdNotFound.code
FENCED_INSTANCE_ID: Final = FencedInstanceId.code
FENCED_MEMBER_EPOCH: Final = FencedMemberEpoch.code
UNRELEASED_INSTANCE_ID: Final = UnreleasedInstanceId.code
STALE_MEMBER_EPOCH: Final = StaleMemberEpoch.code
OVER: Final = frozenset({UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID})

TOO_LATE: Final = 0.5
"""The share of late responses, if any are late."""

REBALANCE_MS: Final = 30_000
"""Longer than a session: a member that does not give up in time has lost its session before."""

JOINING, LEAVING, BACK_SOON = 0, -1, -2


class ConsumerWorker(Worker):
    """A member of the consumer protocol."""

    quickness = 0.3
    """How likely it is that it gives up revoked partitions before it does anything else."""

    late_answers: random.Random | None = None
    """Chooses the heartbeat responses that come too late; None: none of them."""

    def __init__(
        self,
        client: Client,
        reads: tuple[str, int],
        *,
        book: ConsumerGroupModel,
        instance: str | None,
        chance: random.Random,
    ) -> None:
        super().__init__(client, reads, group_id=book.name, instance=instance, chance=chance)
        self.book = book
        self.epoch = JOINING
        self._giving_up: set[int] = set()
        self._given_up: set[int] = set()
        """The partitions that it gave up since its former epoch, and may have got again since."""
        self._must_tell_all = True
        self._said: tuple[int, ...] | None = None
        """The last reported partitions that the coordinator has answered."""
        self._by_regex = chance.random() < 0.3
        self._forget()

    def _lose_coordinator(self) -> None:
        super()._lose_coordinator()
        self._must_tell_all = True

    async def _take(self, code: int) -> None:
        """React to an error code."""
        if code in NOT_NOW:
            self._coordinator = None
        elif code in OVER:
            self._begin_anew()
            if code == FENCED_INSTANCE_ID or self._chance.random() < 0.3:
                self._forget()
                await asyncio.sleep(self._chance.uniform(0.2, 1.0))
        elif code == UNRELEASED_INSTANCE_ID:
            await asyncio.sleep(self._chance.uniform(0.2, 1.0))
        elif code != STALE_MEMBER_EPOCH:
            self.book.history.blame(f"{self.client.name}: refused with error {code}")
        await asyncio.sleep(BACKOFF_S)

    def _begin_anew(self) -> None:
        """Drop all state but the name."""
        self.book.gives_up(self.member_id)
        self.epoch, self.positions, self._giving_up = JOINING, {}, set()
        self._former, self._must_tell_all, self._said = None, True, None

    def _forget(self) -> None:
        self._begin_anew()
        self.member_id = f"{self.client.name}-{self._chance.getrandbits(64):x}"

    async def _act(self) -> int:
        if self.epoch == JOINING:
            return await self._beat()
        luck = 1.0 if self.calm else self._chance.random()
        if luck < 0.02:
            return await self._leave()
        if luck < 0.03:
            self._forget()
            return 0
        if luck < 0.04:  # like a paused process: then it goes on where it was
            await asyncio.sleep(self._chance.uniform(0.5, 3.0))
        if self._giving_up and self._chance.random() < self.quickness:
            self._give_up()
            return await self._beat()
        if luck < 0.3 or not self.positions or self._chance.random() < 0.3:
            return await self._beat()
        if self._former is not None and luck > 0.9:
            return await self._commit_late()
        return await self._commit()

    # -- membership ----------------------------------------------------------------------------------------

    async def _beat(self) -> int:
        make = shapes(CONSUMER_GROUP_HEARTBEAT)
        tells_all = self._must_tell_all or self.epoch == JOINING
        topic_id = await self._topic_id()
        has = tuple(sorted(self.positions))
        owned = (make.TopicPartitions(topic_id=topic_id, partitions=has),) if has else ()
        is_known = self.late_answers is not None and has == self._said and not tells_all
        request = make.ConsumerGroupHeartbeatRequest(
            group_id=self.book.name,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout=REBALANCE_MS if tells_all else -1,
            subscribed_topic_names=(() if self._by_regex else (self.topic,)) if tells_all else None,
            subscribed_topic_regex=(self.topic[:-1] + "." if self._by_regex else "") if tells_all else None,
            topic_partitions=None if is_known else owned,
        )
        member_id, sent_at = self.member_id, asyncio.get_running_loop().time()
        answer = await self._ask(CONSUMER_GROUP_HEARTBEAT, request)
        if int(answer.error_code):
            return int(answer.error_code)
        if self.late_answers is not None and self.late_answers.random() < TOO_LATE:
            return 0
        self._must_tell_all, self._said = False, has
        self.book.heard(member_id, sent_at)
        before, self.epoch = self.epoch, answer.member_epoch
        if before not in (JOINING, self.epoch) and self.positions:
            self._former, self._given_up = (before, dict(self.positions)), set()
        if answer.assignment is None:
            return 0
        parts = [each for topic in answer.assignment.topic_partitions for each in topic.partitions]
        return await self._adopt(set(parts), sent_at)

    async def _topic_id(self) -> Any:
        if self.topic not in self.client.topic_ids:
            await self.client.refresh(self.topic)
        return self.client.topic_ids[self.topic]

    async def _adopt(self, parts: set[int], sent_at: float) -> int:
        """Take new partitions, and keep revoked partitions for a while."""
        self._giving_up = self.positions.keys() - parts
        if self._giving_up:
            self.book.took_one.set()
        new = sorted(parts - self.positions.keys())
        now = asyncio.get_running_loop().time()
        owner = self.instance or self.member_id
        self.book.given(self.member_id, owner, self.epoch, parts, at=(sent_at, now))
        if not new:
            return 0
        try:
            code = await self._fetch(new)
        finally:  # it does not own what it could not begin to read, and will request it again
            missing = [each for each in new if each not in self.positions]
            self.book.gives_up(self.member_id, missing)
            self._must_tell_all = bool(missing)
        return code

    def _give_up(self) -> None:
        self.book.gives_up(self.member_id, self._giving_up)
        self._given_up |= self._giving_up
        for each in self._giving_up:
            self.positions.pop(each, None)
        self._giving_up = set()

    async def _fetch(self, new: list[int]) -> int:
        """Go on from the last owner's committed offsets."""
        make = shapes(OFFSET_FETCH)
        least = {index: self.book.least(index) for index in new}
        topics = (make.OffsetFetchRequestTopic(name=self.topic, partition_indexes=tuple(new)),)
        response = await self._ask(
            OFFSET_FETCH, make.OffsetFetchRequest(group_id=self.book.name, topics=topics)
        )
        if int(response.error_code):
            return int(response.error_code)
        for topic in response.topics:
            for each in topic.partitions:
                index = each.partition_index
                self.book.read(index, each.committed_offset, least=least[index])
                self.positions[index] = max(each.committed_offset, 0)
        return 0

    async def _leave(self) -> int:
        make = shapes(CONSUMER_GROUP_HEARTBEAT)
        back = self.instance is not None and self._chance.random() < 0.7
        request = make.ConsumerGroupHeartbeatRequest(
            group_id=self.book.name,
            member_id=self.member_id,
            member_epoch=BACK_SOON if back else LEAVING,
            instance_id=self.instance,
            topic_partitions=None,
        )
        self._forget()
        answer = await self._ask(CONSUMER_GROUP_HEARTBEAT, request)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        code = int(answer.error_code)
        return 0 if code == GROUP_ID_NOT_FOUND else code  # it was out, and the group is classic meanwhile

    # -- offsets -------------------------------------------------------------------------------------------

    async def _commit(self) -> int:
        index = self._chance.choice(sorted(self.positions))
        offset = self.positions[index] + 1
        least = self.book.least(index)
        self.book.attempt(index, offset)
        code = await self._send_commit(self.epoch, index, offset)
        if code == 0:
            self.positions[index] = offset
            self.book.committed(self.member_id, index, offset, least=least, was_over=False)
        elif code == STALE_MEMBER_EPOCH:
            return await self._beat()
        return code

    async def _commit_late(self) -> int:
        """Commit in the epoch before: for partitions that it has kept since then, and for revoked partitions
        (KIP-1251).
        """
        assert self._former is not None
        (epoch, positions), self._former = self._former, None
        index, position = self._chance.choice(sorted(positions.items()))
        if index in self.positions:
            return 0 if index in self._given_up else await self._commit_kept(epoch, index)
        if self._said is None or index in self._said:
            return 0  # the coordinator does not know yet that it was given up
        code = await self._send_commit(epoch, index, position)
        if code == 0:
            self.book.committed(self.member_id, index, position, least=0, was_over=True)
        return 0 if code == STALE_MEMBER_EPOCH else code

    async def _commit_kept(self, epoch: int, index: int) -> int:
        """Its coordinator has had it in another epoch since; the partition is its own all the same."""
        offset, least = self.positions[index] + 1, self.book.least(index)
        self.book.attempt(index, offset)
        code = await self._send_commit(epoch, index, offset)
        if code == 0:
            self.positions[index] = offset
            self.book.committed(self.member_id, index, offset, least=least, was_over=False)
        elif code == STALE_MEMBER_EPOCH:
            self.book.history.blame(
                f"{self.member_id} has partition {index} since epoch {epoch}, and is stale"
            )
        return code
