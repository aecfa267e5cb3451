"""The membership of a simulated client in a group of its own: join, sync, heartbeat, commit, leave.

It assigns all partitions to itself, as the range assignor does for a single member. The next `join` begins another
generation, whatever error of the coordinator ended the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from raftlog.base.errors import MemberIdRequired, UnknownMemberId
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.port import (
    HEARTBEAT_S,
    SESSION_TIMEOUT_S,
    Definite,
    Fate,
    Indefinite,
    fate_of,
    split_key,
)
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Client,
    shapes,
)

MEMBER_ID_REQUIRED: Final = MemberIdRequired.code
UNKNOWN_MEMBER_ID: Final = UnknownMemberId.code
NOT_COORDINATOR: Final = frozenset({14, 15, 16})
PROTOCOL: Final = "range"

_i16 = Struct(">h")
_i32 = Struct(">i")


class Refused(LookupError):
    """The coordinator answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class GroupMember:
    """`generation` is -1 while it is no member."""

    def __init__(self, client: Client, group: str, topics: Sequence[str]) -> None:
        self.client = client
        self.group = group
        self.topics = tuple(topics)
        self.member_id = ""
        self.generation = -1
        self._coordinator: tuple[str, int] | None = None
        self._beating: asyncio.Task[None] | None = None

    async def join(self, keys: Sequence[str]) -> dict[str, int | None]:
        """Begin a generation in which all keys are ours; returns each key's committed offset. Raises what AWAY
        lists.
        """
        session_ms = int(SESSION_TIMEOUT_S * 1000)
        for _ in range(2):
            metadata = _subscription(self.topics)
            request = self._member().join(metadata, session_ms=session_ms, rebalance_ms=session_ms)
            joined = await self._ask(JOIN_GROUP, request)
            if int(joined.error_code) != MEMBER_ID_REQUIRED:
                break
            self.member_id = joined.member_id
        if int(joined.error_code) == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._check("JoinGroup", int(joined.error_code))
        self.member_id, generation = joined.member_id, joined.generation_id
        await self._sync(generation, keys)
        committed = await self._committed(keys)
        self.generation = generation
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
        return committed

    def _member(self) -> ClassicMember:
        return ClassicMember(self.group, self.member_id, "consumer", PROTOCOL)

    async def _sync(self, generation: int, keys: Sequence[str]) -> None:
        request = self._member().sync(generation, {self.member_id: _assignment(keys)})
        synced = await self._ask(SYNC_GROUP, request)
        self._check("SyncGroup", int(synced.error_code))

    async def _committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        make = shapes(OFFSET_FETCH)
        topics = tuple(
            make.OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in _by_topic(keys).items()
        )
        request = make.OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True)
        response = await self._ask(OFFSET_FETCH, request)
        self._check("OffsetFetch", int(response.error_code))
        found: dict[str, int | None] = {}
        for topic in response.topics:
            for each in topic.partitions:
                self._check("OffsetFetch", int(each.error_code))
                known = each.committed_offset >= 0
                found[f"{topic.name}-{each.partition_index}"] = each.committed_offset if known else None
        return found

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit. Raises Definite, Indefinite."""
        make = shapes(OFFSET_COMMIT)
        topics = tuple(
            make.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    make.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[f"{topic}-{index}"],
                        committed_metadata="",
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in _by_topic(offsets).items()
        )
        request = make.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            topics=topics,
        )
        try:
            response = await self._ask(OFFSET_COMMIT, request)
        except AWAY as error:
            raise Indefinite(f"OffsetCommit: {error!r}") from None
        self._judge_commit({int(each.error_code) for topic in response.topics for each in topic.partitions})

    def _judge_commit(self, codes: set[int]) -> None:
        codes.discard(0)
        if not codes:
            return
        for code in sorted(codes):
            self._note_end(code)
        error = Indefinite if any(fate_of(code) is Fate.UNKNOWN for code in codes) else Definite
        raise error(f"OffsetCommit: errors {sorted(codes)}")

    async def _beat(self) -> None:
        while self.generation >= 0:
            request = self._member().heartbeat(self.generation)
            try:
                self._note_end(int((await self._ask(HEARTBEAT, request)).error_code))
            except AWAY:
                pass
            await asyncio.sleep(HEARTBEAT_S)
        self._beating = None

    async def leave(self) -> None:
        """Leave, if the coordinator is reachable."""
        if not self.member_id:
            return
        self.generation = -1
        try:
            await self._ask(LEAVE_GROUP, self._member().leave())
        except AWAY:
            pass

    # -- the coordinator ----------------------------------------------------------------------------------------

    async def _ask(self, api_key: int, request: Any) -> Any:
        """Ask the coordinator, and look it up again after a failure or NOT_COORDINATOR."""
        if self._coordinator is None:
            find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=self.group, key_type=0)
            found = await self.client.ask_any(FIND_COORDINATOR, find)
            if int(found.error_code):
                raise Refused("FindCoordinator", int(found.error_code))
            self._coordinator = (found.host, found.port)
        try:
            return await self.client.ask(self._coordinator, api_key, request)
        except AWAY:
            self._coordinator = None
            raise

    def _check(self, what: str, code: int) -> None:
        self._note_end(code)
        if code:
            raise Refused(what, code)

    def _note_end(self, code: int) -> None:
        """React to an error code: another coordinator, or the generation is over."""
        if code in NOT_COORDINATOR:
            self._coordinator = None
        elif code:
            self.generation = -1
            if code == UNKNOWN_MEMBER_ID:
                self.member_id = ""


def _by_topic(keys: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in map(split_key, keys):
        found.setdefault(topic, []).append(index)
    return found


def _string(text: str) -> bytes:
    data = text.encode()
    return _i16.pack(len(data)) + data


def _subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription v0."""
    return b"\x00\x00" + _i32.pack(len(topics)) + b"".join(map(_string, topics)) + _i32.pack(-1)


def _assignment(keys: Sequence[str]) -> bytes:
    """ConsumerProtocolAssignment v0."""
    topics = _by_topic(keys)
    parts = [
        _string(topic) + _i32.pack(len(indexes)) + b"".join(map(_i32.pack, indexes))
        for topic, indexes in topics.items()
    ]
    return b"\x00\x00" + _i32.pack(len(topics)) + b"".join(parts) + _i32.pack(-1)
