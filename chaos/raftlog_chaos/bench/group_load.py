"""Many members of many groups in one process, as raw clients: they join, assign, send heartbeats, commit, and record
what they saw.

They wait only where a stock client would wait, and know only raftlog's wire protocol. Their demand on brokers: an
acknowledged commit is never taken back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raftlog.base.errors import IllegalGeneration, MemberIdRequired, RebalanceInProgress, UnknownMemberId
from raftlog.testing.progress import Wait, patient, signs_of_descendants
from raftlog_chaos.workloads.classic_requests import ClassicMember
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Client,
    shapes,
)

NOT_NOW: Final = frozenset({14, 15, 16})
ILLEGAL_GENERATION: Final = IllegalGeneration.code
UNKNOWN_MEMBER_ID: Final = UnknownMemberId.code
REBALANCE_IN_PROGRESS: Final = RebalanceInProgress.code
MEMBER_ID_REQUIRED: Final = MemberIdRequired.code

BACKOFF_S: Final = 0.05
LOOK_S: Final = 10e-6
"""For each member, between two looks at all of them: the look must not take what their requests need."""

PATIENCE_S: Final = 60.0
"""A JoinGroup waits for the others; a coordinator that died is noticed by its connection, not by this."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of all members of a load; with `commit_s` 0 they do not commit."""

    topic: str
    partitions: int
    heartbeat_s: float = 0.5
    commit_s: float = 0.0
    session_ms: int = 30_000
    rebalance_ms: int = 60_000


@dataclass(slots=True)
class GroupLoadModel:
    """The observations of the members of all groups. Loop seconds."""

    errors: list[str] = field(default_factory=list)
    regressed: list[str] = field(default_factory=list)
    commits: int = 0
    heartbeats: int = 0


class Member:
    """One member. `synced` is the generation of its assignment, -1 without an assignment."""

    def __init__(
        self, client: Client, group_id: str, *, habits: LoadOptions, book: GroupLoadModel, partition: int
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.habits = habits
        self.book = book
        self.partition = partition
        self.member_id = ""
        self.synced = -1
        self.generation = -1
        self.coordinator: tuple[str, int] | None = None
        """The coordinator's host and port; None while that is looked for."""
        self.acked = -1
        """The offset that was acknowledged last."""
        self.acked_at = 0.0
        self.beaten_at = 0.0
        """When its last heartbeat was answered."""
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._beat_at = self._commit_at = 0.0

    async def run(self) -> None:
        """Be a member until `stopping`."""
        while not self.stopping:
            try:
                code = await self._turn()
            except AWAY:
                await self._look_again()
                continue
            if code:
                await self._take(code)

    async def _look_again(self) -> None:
        """The coordinator is away: pending requests go to the next coordinator at once."""
        self.coordinator = None
        self._beat_at = self._commit_at = 0.0
        await asyncio.sleep(BACKOFF_S)

    async def _take(self, code: int) -> None:
        if code in NOT_NOW:
            await self._look_again()
        elif code in (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
            self.synced = -1
        elif code == UNKNOWN_MEMBER_ID:
            self.member_id, self.synced = "", -1
        else:
            self.book.errors.append(f"{self.group_id}: error {code}")
            await asyncio.sleep(1)

    async def _turn(self) -> int:
        if self.coordinator is None:
            return await self._find()
        if self.synced < 0:
            return await self._join()
        now = self._loop.time()
        if now >= self._beat_at:
            return await self._beat(now)
        if self.habits.commit_s and now >= self._commit_at:
            return await self._commit(now)
        due_at = min(self._beat_at, self._commit_at) if self.habits.commit_s else self._beat_at
        await asyncio.sleep(due_at - now)
        return 0

    async def _ask(self, api_key: int, request: Any) -> Any:
        assert self.coordinator is not None
        return await self.client.ask(self.coordinator, api_key, request)

    async def _find(self) -> int:
        find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=self.group_id, key_type=0)
        found = await self.client.ask_reachable(FIND_COORDINATOR, find)
        if not int(found.error_code):
            self.coordinator = (found.host, found.port)
        return int(found.error_code)

    # -- membership ----------------------------------------------------------------------------------------

    def _member(self) -> ClassicMember:
        return ClassicMember(self.group_id, self.member_id, "load", "shares")

    async def _join(self) -> int:
        habits = self.habits
        request = self._member().join(
            bytes(80), session_ms=habits.session_ms, rebalance_ms=habits.rebalance_ms
        )
        joined = await self._ask(JOIN_GROUP, request)
        code = int(joined.error_code)
        if code == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return 0
        if code:
            return code
        self.member_id, self.generation = joined.member_id, int(joined.generation_id)
        leads = joined.leader == self.member_id
        return await self._sync([each.member_id for each in joined.members] if leads else [])

    async def _sync(self, members: Sequence[str]) -> int:
        shares = dict.fromkeys(members, bytes(40))
        synced = await self._ask(SYNC_GROUP, self._member().sync(self.generation, shares))
        if not int(synced.error_code):
            self.synced = self.generation
            self._beat_at = self._loop.time() + self.habits.heartbeat_s
        return int(synced.error_code)

    async def _beat(self, now: float) -> int:
        self._beat_at = now + self.habits.heartbeat_s
        code = int((await self._ask(HEARTBEAT, self._member().heartbeat(self.synced))).error_code)
        if not code:
            self.beaten_at = self._loop.time()
            self.book.heartbeats += 1
        return code

    # -- offsets -------------------------------------------------------------------------------------------

    async def _commit(self, now: float) -> int:
        self._commit_at = now + self.habits.commit_s
        make = shapes(OFFSET_COMMIT)
        offset = self.acked + 1
        partition = make.OffsetCommitRequestPartition(partition_index=self.partition, committed_offset=offset)
        response = await self._ask(
            OFFSET_COMMIT,
            make.OffsetCommitRequest(
                group_id=self.group_id,
                generation_id_or_member_epoch=self.synced,
                member_id=self.member_id,
                topics=(make.OffsetCommitRequestTopic(name=self.habits.topic, partitions=(partition,)),),
            ),
        )
        code = int(response.topics[0].partitions[0].error_code)
        if not code:
            self.acked, self.acked_at = offset, self._loop.time()
            self.book.commits += 1
        return code

    async def check(self) -> None:
        """Fetch the committed offset, and blame the brokers if it is below their acknowledgement."""
        make, least = shapes(OFFSET_FETCH), self.acked
        topic = make.OffsetFetchRequestTopic(name=self.habits.topic, partition_indexes=(self.partition,))
        request = make.OffsetFetchRequest(group_id=self.group_id, topics=(topic,))
        while True:
            try:
                code = 0 if self.coordinator else await self._find()
                if not code:
                    response = await self._ask(OFFSET_FETCH, request)
                    code = int(response.error_code)
                if not code:
                    break
            except AWAY:
                pass
            self.coordinator = None
            await asyncio.sleep(BACKOFF_S)
        found = int(response.topics[0].partitions[0].committed_offset)
        if found < least:
            self.book.regressed.append(f"{self.group_id}: {found} is committed, {least} was acknowledged")


class Load:
    """Members as tasks of the running loop. `clients` None: each member has connections of its own."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], habits: LoadOptions, *, clients: int | None = None
    ) -> None:
        self.book = GroupLoadModel()
        self.habits = habits
        self.members: list[Member] = []
        self._bootstrap = bootstrap
        self._shared = [self._client(number) for number in range(clients or 0)]
        self._sizes: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def _client(self, number: int) -> Client:
        return Client(f"load-{number}", self._bootstrap, timeout_s=patient(PATIENCE_S))

    def add(self, group_id: str) -> Member:
        """Let one more member join a group."""
        number = len(self.members)
        client = self._shared[number % len(self._shared)] if self._shared else self._client(number)
        partition = self._sizes[group_id] % self.habits.partitions
        self._sizes[group_id] += 1
        member = Member(client, group_id, habits=self.habits, book=self.book, partition=partition)
        self.members.append(member)
        task = asyncio.get_running_loop().create_task(member.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return member

    def in_step(self, members: Sequence[Member]) -> bool:
        """Return whether these have their assignments of one generation."""
        return len({each.synced for each in members}) == 1 and members[0].synced >= 0

    async def until(self, holds: Callable[[], object], what: str) -> float:
        """Wait until `holds()`; returns the seconds it took. Raises Stalled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wait = Wait(what, seen=self._progress, signs=signs_of_descendants)
        while not holds():
            wait.pause()
            await asyncio.sleep(max(0.005, LOOK_S * len(self.members)))
        return loop.time() - began

    def _progress(self) -> str:
        synced = sum(each.synced >= 0 for each in self.members)
        return f"{synced} of {len(self.members)} members have assignments; {self.book.errors[:3]}"

    async def close(self) -> None:
        """End all members; what a task raised is raised."""
        for each in self.members:
            each.stopping = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        for client in {each.client for each in self.members} | set(self._shared):
            client.close()
