"""Many workers of many share groups in one process, as raw clients: they join, take records and accept them.

Each reads one partition, as the assignment of a group with as many members as partitions is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    BrokerNotAvailable,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
)
from raftlog.records.batch import build_batch, new_record
from raftlog.testing.progress import Wait, patient, signs_of_descendants
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import AWAY, PRODUCE, Client
from raftlog_chaos.workloads.share_member import ACCEPT, Ack, ShareMember

PATIENCE_S: Final = 60.0
HEARTBEAT_S: Final = 5.0
"""`group.share.heartbeat.interval.ms`."""
BACKOFF_S: Final = 0.1
AT_ONCE: Final = 100
"""The most records that a worker takes at once."""
RECORD_BYTES: Final = 100
LOOK_S: Final = 0.01
NOT_NOW: Final = frozenset(
    error.code
    for error in (
        BrokerNotAvailable,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
        RequestTimedOut,
    )
) | {NONE}
"""The errors of an acknowledgement that may pass while its records are locked."""


class Worker:
    """One member. `accepted` counts records whose acknowledgement was answered; `looked_at` is its last good fetch."""

    def __init__(self, member: ShareMember) -> None:
        self.member = member
        self.has_joined = False
        self.accepted = 0
        self.looked_at = 0.0
        self.errors = 0
        self._loop = asyncio.get_running_loop()
        self._beat_at = 0.0

    async def run(self) -> None:
        """Be a member until the task is cancelled."""
        while True:
            try:
                await self._turn()
            except (*AWAY, LookupError):
                self.member.epoch = 0  # another connection has another session
                await asyncio.sleep(BACKOFF_S)
                await self._refresh()

    async def _turn(self) -> None:
        if self._loop.time() >= self._beat_at:
            if self.has_joined:
                await self.member.beat()
            else:
                await self._refresh()
                await self.member.join()
                self.has_joined = True
            self._beat_at = self._loop.time() + HEARTBEAT_S
        answer = await self.member.fetch(max_records=AT_ONCE, batch_size=AT_ONCE)
        if any(_codes(answer)):
            await self._begin_again()
            return
        self.looked_at = self._loop.time()
        parts = [part for topic in answer.responses for part in topic.partitions]
        acquired = [each for part in parts for each in part.acquired_records]
        if acquired and await self._accept(
            [(each.first_offset, each.last_offset, [ACCEPT]) for each in acquired]
        ):
            self.accepted += sum(each.last_offset - each.first_offset + 1 for each in acquired)

    async def _accept(self, acks: Sequence[Ack]) -> bool:
        """Acknowledge records, again while their state cannot be written; return whether that succeeded."""
        while True:
            codes = _codes(await self.member.acknowledge(*acks))
            if not any(codes):
                return True
            if not NOT_NOW.issuperset(codes):
                await self._begin_again()
                return False
            self.errors += 1
            await asyncio.sleep(BACKOFF_S)

    async def _begin_again(self) -> None:
        """Look for the leader, and begin another session."""
        self.errors += 1
        self.member.epoch = 0
        await asyncio.sleep(BACKOFF_S)
        await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self.member.client.refresh(self.member.topic)
        except AWAY:
            await asyncio.sleep(BACKOFF_S)


def _codes(answer: Any) -> list[int]:
    """Return the error codes of a response, of which most are 0."""
    parts = [part for topic in answer.responses for part in topic.partitions]
    return [int(answer.error_code), *(int(part.error_code) for part in parts)]


class QueueLoad:
    """`groups` groups of `members` workers each, on one topic with as many partitions. They are tasks of this loop."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], topic: str, *, groups: int, members: int
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = members
        self.workers = [
            Worker(
                ShareMember(
                    self._client(f"{group}-{number}"),
                    f"worker-{number}",
                    (topic, number),
                    group=f"queue-{group}",
                )
            )
            for group in range(groups)
            for number in range(members)
        ]
        self._tasks = [asyncio.get_running_loop().create_task(each.run()) for each in self.workers]

    def _client(self, name: str) -> Client:
        return Client(name, self._bootstrap, timeout_s=patient(PATIENCE_S))

    @property
    def accepted(self) -> int:
        return sum(each.accepted for each in self.workers)

    @property
    def errors(self) -> int:
        return sum(each.errors for each in self.workers)

    async def produce(self, count: int) -> None:
        """Append at least so many records to each partition."""
        client = self._client("producer")
        batch = build_batch([new_record(None, bytes(RECORD_BYTES), timestamp=0) for _ in range(count)])
        try:
            for partition in range(self._partitions):
                await self._append(client, (self._topic, partition), batch)
        finally:
            client.close()

    async def _append(self, client: Client, where: tuple[str, int], batch: bytes) -> None:
        """Try until it succeeds."""
        while True:
            try:
                await client.refresh(self._topic)
                answer = await client.ask_leader(*where, PRODUCE, produce_request(where, batch, acks=-1))
                if not answer.responses[0].partition_responses[0].error_code:
                    return
            except (*AWAY, LookupError):
                pass
            await asyncio.sleep(BACKOFF_S)

    async def until(self, holds: Callable[[], object], what: str) -> float:
        """Wait until `holds()`; returns the seconds it took. Raises Stalled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wait = Wait(what, seen=self._progress, signs=signs_of_descendants)
        while not holds():
            wait.pause()
            await asyncio.sleep(LOOK_S)
        return loop.time() - began

    def _progress(self) -> str:
        joined = sum(each.has_joined for each in self.workers)
        return f"{joined} of {len(self.workers)} have joined; {self.accepted} records are accepted"

    async def close(self) -> None:
        """End all workers; an error of a task is raised."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        for each in self.workers:
            each.member.client.close()
