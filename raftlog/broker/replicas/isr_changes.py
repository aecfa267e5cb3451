"""Carries the ISR changes of the partitions led here to the controller: one request at a time, with all that is due.

A proposal without a response is retried unchanged, until a response or the metadata image decides it. Its partition
epoch keeps it from being applied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.metadata.broker_requests import AlterPartition, AlterPartitionReply, IsrChange

if TYPE_CHECKING:
    from raftlog.metadata.controller_api import Submit
    from raftlog.replication.partition import Partition

RETRY_AFTER = 0.05
"""Seconds before the first retry; doubles up to MAX_RETRY_AFTER."""
MAX_RETRY_AFTER = 1.0
ANSWER_TIMEOUT = 5.0
CHANGES_PER_REQUEST = 5000

log = get_logger(__name__)


class IsrChanges:
    """Proposals that are due, and the one request that is under way."""

    def __init__(
        self,
        submit: Submit,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._submit = submit
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._due: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, partition: Partition) -> None:
        """Send this partition's proposal soon."""
        self._due[partition] = None
        if self._task is None and not self._closed:
            self._task = self._loop.create_task(self._send_all())

    def close(self) -> None:
        """Stop sending requests."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def _send_all(self) -> None:
        pause = RETRY_AFTER
        try:
            while self._due:
                again = await self._send_surely(self._next_changes())
                self._due.update(dict.fromkeys(again))
                if again:
                    await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY_AFTER) if again else RETRY_AFTER
        finally:
            self._task = None

    def _next_changes(self) -> dict[Partition, IsrChange]:
        taken: dict[Partition, IsrChange] = {}
        while self._due and len(taken) < CHANGES_PER_REQUEST:
            partition = next(iter(self._due))
            del self._due[partition]
            change = partition.pending_isr_change()
            if change is not None:
                taken[partition] = change
        return taken

    async def _send_surely(self, changes: dict[Partition, IsrChange]) -> list[Partition]:
        """No proposal is lost, whatever fails: its partition's ISR could never change again."""
        try:
            return await self._send(changes)
        except Exception:
            log.exception("isr_change_failed", partitions=len(changes))
            return list(changes)

    async def _send(self, changes: dict[Partition, IsrChange]) -> list[Partition]:
        """Send them. Returns the partitions to retry."""
        if not changes:
            return []
        request = AlterPartition(self._broker_id, self._broker_epoch(), tuple(changes.values()))
        try:
            reply = await self._submit(request, timeout=ANSWER_TIMEOUT)
        except KafkaError as error:
            log.info("isr_change_timed_out", partitions=len(changes), reason=type(error).__name__)
            return list(changes)
        assert isinstance(reply, AlterPartitionReply)
        answers = {(answer.topic_id, answer.partition): answer for answer in reply.results}
        again = []
        for partition, change in changes.items():
            answer = answers.get((change.topic_id, change.partition))
            if answer is None or partition.complete_isr_change(change, answer):
                again.append(partition)
        return again
