"""Commits more offsets than one batch of tombstones can remove, has the group or its topic deleted, and checks the
rest.

A group is deleted as a whole: after the response no offset of it is left, and no reader sees a part of it. A member
that was admitted stays a member. Offsets are deleted with their topic; commits for a successor of that name stay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import GroupIdNotFound, MemberIdRequired, NonEmptyGroup
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    DELETE_GROUPS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Client,
    create_topic,
    shapes,
)

PARTITIONS: Final = 24
LONG: Final = "long-" * 40
"""In names of groups and topics, with MESSAGE_MAX_BYTES: it makes three batches of tombstones for these partitions."""

MESSAGE_MAX_BYTES: Final = 20_000
BACKOFF_S: Final = 0.05
PATIENCE: Final = 50
"""How often a broker is asked that may lack the newest metadata."""
SETTLED_S: Final = 0.6
"""Longer than what has to go is put off."""
ILLEGAL: Final = frozenset({22, 25})
"""The group does not know this member or generation."""
NO_TOPIC: Final = ({3}, {17})
"""UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION of a topic that was deleted a while ago."""
NON_EMPTY_GROUP: Final = NonEmptyGroup.code
GROUP_ID_NOT_FOUND: Final = GroupIdNotFound.code
MEMBER_ID_REQUIRED: Final = MemberIdRequired.code


class GroupEnder:
    """The scenario counts the coordinators that it kills in `deaths`: then a part of a group may be visible.

    `replaces` is set before the replacement of a topic with committed offsets.
    """

    def __init__(self, client: Client, topic: str, *, history: Observations, chance: random.Random) -> None:
        self.client = client
        self.topic = topic
        self.history = history
        self.group_id = LONG + client.name
        self.deaths = 0
        self.replaces = asyncio.Event()
        self.rounds = 0
        self.stopping = False
        self._chance = chance
        self._next = 0
        self._coordinator: tuple[str, int] | None = None

    async def run(self) -> None:
        while not self.stopping:
            try:
                await create_topic(
                    self.client, self.topic, partitions=PARTITIONS
                )  # a round may end without it
                await (self._end_group() if self._chance.random() < 0.6 else self._replace_topic())
                self.rounds += 1
            except AWAY:
                self._coordinator = None
                await asyncio.sleep(BACKOFF_S)

    # -- the end of a group --------------------------------------------------------------------------------

    async def _end_group(self) -> None:
        committed, deaths = await self._commit(range(PARTITIONS)), self.deaths
        request = shapes(DELETE_GROUPS).DeleteGroupsRequest(groups_names=(self.group_id,))
        ends = asyncio.ensure_future(self._ask(DELETE_GROUPS, request))
        try:
            await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.01, 0.03)))
            member = await self._intrude() if self._chance.random() < 0.5 else None
            seen = await self._fetch() if member is None else None
            code = int((await ends).results[0].error_code)
        finally:
            ends.cancel()
        if seen is not None and deaths == self.deaths and set(seen.values()) not in ({committed}, {-1}):
            self._blame(f"a part of a group is seen: {sorted(seen.values())}")
        if member is not None:
            await self._check_member(*member)
        elif code in (0, GROUP_ID_NOT_FOUND):
            left = [each for each in (await self._fetch()).values() if each >= 0]
            if left:
                self._blame(f"the deletion was answered with {code}, and {len(left)} offsets are left")
        elif code == NON_EMPTY_GROUP:
            self._blame("the group has members that nobody let in")

    async def _intrude(self) -> tuple[str, int] | None:
        """Join meanwhile; returns member id and generation, or None if the group refused."""
        member_id = ""
        for _ in range(2):
            joined = await self._join(member_id)
            if int(joined.error_code) == 0:
                return joined.member_id, int(joined.generation_id)
            if int(joined.error_code) != MEMBER_ID_REQUIRED:
                return None
            member_id = joined.member_id
        return None

    async def _join(self, member_id: str) -> Any:
        request = self._member(member_id).join(b"", session_ms=10_000, rebalance_ms=10_000)
        return await self._ask(JOIN_GROUP, request)

    def _member(self, member_id: str) -> ClassicMember:
        return ClassicMember(self.group_id, member_id, "sim", "ends")

    async def _check_member(self, member_id: str, generation: int) -> None:
        """A member that got a generation is in it: its first heartbeat comes in time."""
        member = self._member(member_id)
        code = int((await self._ask(HEARTBEAT, member.heartbeat(generation))).error_code)
        if code in ILLEGAL:
            self._blame(f"a member was let into generation {generation} and is not in it: error {code}")
        await self._ask(LEAVE_GROUP, member.leave())

    # -- the end of a topic --------------------------------------------------------------------------------

    async def _replace_topic(self) -> None:
        await self._commit(range(PARTITIONS))
        old_id = (await self._topic_id())[1]
        make = shapes(DELETE_TOPICS)
        topics = (make.DeleteTopicState(name=self.topic, topic_id=None),)
        asked = make.DeleteTopicsRequest(topics=topics, timeout=1_000)
        self.replaces.set()
        deleted = await self.client.ask_any(DELETE_TOPICS, asked)
        if int(deleted.responses[0].error_code):
            raise LookupError("not deleted")
        await create_topic(self.client, self.topic, partitions=PARTITIONS)
        await self._hear_of_successor(old_id)
        offsets = await self._fetch()
        self._check_gone(offsets.values())
        committed = await self._commit((0,))
        for _ in range(2):
            offsets = await self._fetch()
            if offsets[0] != committed:
                self._blame(f"{committed} was committed for the new topic, {offsets[0]} is there")
            self._check_gone([each for index, each in offsets.items() if index])
            await asyncio.sleep(SETTLED_S * self._chance.random())

    def _check_gone(self, offsets: Iterable[int]) -> None:
        """No offset of the old topic is visible, not even if the coordinator died before it removed them."""
        old = [each for each in offsets if each >= 0]
        if old:
            self._blame(f"{len(old)} offsets of a topic that was deleted are shown for its successor")

    async def _hear_of_successor(self, old_id: UUID) -> None:
        """Wait until the coordinator's own broker knows the new topic: an earlier commit counts for the old topic."""
        for _ in range(PATIENCE):
            code, topic_id = await self._topic_id()
            if code == 0 and topic_id != old_id:
                return
            await self._pause()
        raise LookupError("no successor")

    async def _topic_id(self) -> tuple[int, Any]:
        """Return the state on the coordinator's own broker: an error code, and the topic's id."""
        make = shapes(METADATA)
        topics = (make.MetadataRequestTopic(topic_id=None, name=self.topic),)
        asked = make.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        topic = (await self._ask(METADATA, asked)).topics[0]
        return int(topic.error_code), topic.topic_id

    # -- offsets -------------------------------------------------------------------------------------------

    async def _commit(self, partitions: Any) -> int:
        """Commit the next offset of these partitions until that is acknowledged; returns it. LookupError: no topic."""
        self._next += 1
        make = shapes(OFFSET_COMMIT)
        rows = tuple(
            make.OffsetCommitRequestPartition(partition_index=each, committed_offset=self._next)
            for each in partitions
        )
        request = make.OffsetCommitRequest(
            group_id=self.group_id, topics=(make.OffsetCommitRequestTopic(name=self.topic, partitions=rows),)
        )
        unknown = 0
        while unknown < PATIENCE:
            try:
                response = await self._ask(OFFSET_COMMIT, request)
                codes = {int(each.error_code) for each in response.topics[0].partitions}
            except AWAY:
                codes = {-1}
            if codes == {0}:
                return self._next
            unknown += codes in NO_TOPIC
            await self._pause()
        raise LookupError("no topic")

    async def _fetch(self) -> dict[int, int]:
        """Return the committed offsets by partition, as soon as a coordinator returns them."""
        make = shapes(OFFSET_FETCH)
        topic = make.OffsetFetchRequestTopic(name=self.topic, partition_indexes=tuple(range(PARTITIONS)))
        request = make.OffsetFetchRequest(group_id=self.group_id, topics=(topic,))
        while True:
            try:
                response = await self._ask(OFFSET_FETCH, request)
                if not int(response.error_code):
                    rows = response.topics[0].partitions
                    return {each.partition_index: int(each.committed_offset) for each in rows}
            except AWAY:
                pass
            await self._pause()

    async def _pause(self) -> None:
        self._coordinator = None
        await asyncio.sleep(BACKOFF_S)

    async def _ask(self, api_key: int, request: Any) -> Any:
        if self._coordinator is None:
            find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=self.group_id, key_type=0)
            found = await self.client.ask_any(FIND_COORDINATOR, find)
            if int(found.error_code):
                raise LookupError("no coordinator")
            self._coordinator = (found.host, found.port)
        return await self.client.ask(self._coordinator, api_key, request)

    def _blame(self, text: str) -> None:
        self.history.blame(f"{self.client.name}: {text}")
