"""A registry's store: the state as this node's replica of `_schemas` has it, and changes by the partition's leader.

Ordering law: a change is decided on the state of all records before its own. `append` refuses any other place, and then
the decision is made again. It is answered once it is committed in the leader epoch of the decision, and applied. So two
nodes that both take themselves for the leader cannot give one id to two schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from raftlog.base.env import Offload
from raftlog.base.errors import (
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
)
from raftlog.base.log import get_logger
from raftlog.base.schema_log import SchemaLogBounds, SchemaLogPort
from raftlog.base.turns import HasTurns, each_part
from raftlog.base.types import NO_EPOCH
from raftlog.records.header import iter_headers
from raftlog.schemas.decisions import Change
from raftlog.schemas.errors import STORE_FAILED, STORE_TIMED_OUT, SchemaError, too_large
from raftlog.schemas.records import encode
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.replay import decoded

COMMIT_S: Final = 10.0
"""Longest wait for a change to be committed, and for this node to have applied what is."""
RETRY_S: Final = 1.0
"""Pause after a failed attempt to read the log."""
log = get_logger("schemas")

Decide = Callable[[RegistryState], Awaitable[Change]]


class NotLeading(Exception):
    """This node does not lead `_schemas`. `is_uncertain`: it may have written a change, and lost the lead since."""

    def __init__(self, *, is_uncertain: bool = False) -> None:
        super().__init__("this node does not lead the schema registry's partition")
        self.is_uncertain = is_uncertain


class SchemaStore:
    """`follow` runs as long as the registry does. `state` has what this node's replica has committed."""

    def __init__(
        self, schema_log: SchemaLogPort, of: HasTurns, *, offload: Offload, now_ms: Callable[[], float]
    ) -> None:
        self.state = RegistryState()
        self._log = schema_log
        self._of = of
        self._offload = offload
        self._now_ms = now_ms
        self._topic_id: Any = None
        self._applied_offset = 0
        self._applied_epoch = NO_EPOCH
        """The leader epoch of the last applied batch: with its offset it identifies all before it."""
        self._loaded_epoch = NO_EPOCH
        """The epoch in which this node, as the leader, has applied everything that was in its log at the beginning."""
        self._advanced = asyncio.Event()
        self._writing = asyncio.Lock()

    async def begin(self) -> None:
        """Create the topic at its first use. Raises KafkaError."""
        if not self._log.exists():
            await self._log.create()

    async def follow(self) -> None:
        """Apply what is committed, as it comes, until it is cancelled. After a failure it is tried again."""
        while True:
            try:
                await self._apply_committed()
                await self._log.changed()
            except (KafkaError, OSError) as error:
                self._wake()
                note = log.warning if _passes(error) else log.error
                note("schemas_unreadable", offset=self._applied_offset, reason=str(error))
            except Exception:  # the registry stands still until it can go on; the node serves records
                self._wake()
                log.exception("schemas_not_applied", offset=self._applied_offset)
            else:
                self._wake()
                continue
            await asyncio.sleep(RETRY_S)

    def _wake(self) -> None:
        """Wake all waiting requests: their condition may hold now."""
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    async def _apply_committed(self) -> None:
        bounds = self._log.bounds()
        if (
            bounds.topic_id != self._topic_id
            or not bounds.log_start_offset <= self._applied_offset <= bounds.log_end_offset
            or await self._was_replaced(bounds)
        ):
            self.state = RegistryState()
            self._topic_id, self._applied_offset = bounds.topic_id, bounds.log_start_offset
            self._loaded_epoch = self._applied_epoch = NO_EPOCH
        while bounds.topic_id is not None and self._applied_offset < self._log.bounds().high_watermark:
            batches = await self._log.read(self._applied_offset)
            records, end_offset = await self._offload(partial(decoded, batches, self._applied_offset))
            await each_part(self._of, records, lambda each: self.state.apply(*each))
            *_, (_, last) = iter_headers(memoryview(batches))
            self._applied_offset, self._applied_epoch = end_offset, last.leader_epoch
            self._wake()

    async def _was_replaced(self, bounds: SchemaLogBounds) -> bool:
        """Return whether another batch is where the last applied batch was.

        After an unclean election the replica is truncated, and may have grown again before this store looks.
        """
        last_offset = self._applied_offset - 1
        if self._applied_epoch == NO_EPOCH or not (
            bounds.log_start_offset <= last_offset < bounds.high_watermark
        ):
            return False
        _, found = next(iter_headers(memoryview(await self._log.read(last_offset))))
        return found.base_offset <= last_offset and found.leader_epoch != self._applied_epoch

    @property
    def is_behind(self) -> bool:
        """Whether this node's replica has committed records that are not applied yet."""
        return self._applied_offset < self._log.bounds().high_watermark

    @property
    def has_replica(self) -> bool:
        """Whether this node has a replica of `_schemas`."""
        return self._log.bounds().topic_id is not None

    async def news(self) -> None:
        """Return when this node has applied more records."""
        await self._advanced.wait()

    async def current(self) -> RegistryState:
        """Return the state with everything that was committed before this call. Raises NotLeading, SchemaError."""
        async with _within(COMMIT_S):
            await self._caught_up()
        return self.state

    async def _caught_up(self) -> SchemaLogBounds:
        """Wait until everything committed is applied; at the beginning of a leadership, everything in the log.

        A new leader's high watermark may lie below what its predecessor has answered.
        """
        bounds = self._bounds_as_leader()
        epoch = bounds.leader_epoch
        end_offset = bounds.high_watermark if epoch == self._loaded_epoch else bounds.log_end_offset
        while self._applied_offset < end_offset or self._topic_id != bounds.topic_id:
            await self._advanced.wait()
            if self._bounds_as_leader().leader_epoch != epoch:
                raise NotLeading
        self._loaded_epoch = epoch
        return self._bounds_as_leader()

    def demand_lead(self) -> None:
        """Raise NotLeading if this node does not lead `_schemas`, as far as it knows."""
        self._bounds_as_leader()

    def _bounds_as_leader(self) -> SchemaLogBounds:
        bounds = self._log.bounds()
        if bounds.leader_epoch == NO_EPOCH:
            raise NotLeading
        return bounds

    async def change(self, decide: Decide) -> Any:
        """Write what `decide` returns, and return its answer once that is committed. Raises NotLeading, SchemaError.

        One change at a time. `decide` is called again if records of other writers came before its own.
        """
        async with _within(COMMIT_S), self._writing:
            while True:
                bounds = await self._caught_up()
                at = self._applied_offset
                change = await decide(self.state)
                if not change.records:
                    return change.reply
                end_offset = self._append(change, at=at, leader_epoch=bounds.leader_epoch)
                if end_offset is None:
                    await self._until_applied(self._log.bounds())
                    continue
                await self._committed(end_offset, bounds.leader_epoch)
                return change.reply

    def _append(self, change: Change, *, at: int, leader_epoch: int) -> int | None:
        """Return the end offset; None if the log does not end at `at`, or another leader has come."""
        records = tuple(encode(each) for each in change.records)
        try:
            return self._log.append(records, at=at, leader_epoch=leader_epoch, now_ms=int(self._now_ms()))
        except NotLeaderOrFollower:
            return None
        except (MessageTooLarge, RecordListTooLarge) as error:
            raise too_large(f"its record is larger than max.message.bytes: {error}") from None
        except KafkaError as error:
            raise SchemaError(STORE_FAILED, f"the change could not be written: {error}") from None

    async def _until_applied(self, seen: SchemaLogBounds) -> None:
        """Wait for other writers' records, which are decided on next.

        In another leader epoch the log may end before `seen`: it was truncated meanwhile.
        """
        while self._applied_offset < seen.log_end_offset:
            if self._bounds_as_leader().leader_epoch != seen.leader_epoch:
                return
            await self._advanced.wait()

    async def _committed(self, end_offset: int, leader_epoch: int) -> None:
        """Wait until records appended in this epoch are committed and applied.

        A leader never truncates its own log. So the records below `end_offset` are ours as long as the epoch lasts.
        """
        while True:
            bounds = self._log.bounds()
            if bounds.leader_epoch != leader_epoch:
                raise NotLeading(is_uncertain=True)
            if self._applied_offset >= end_offset:
                return
            await self._advanced.wait()


def _passes(error: Exception) -> bool:
    """Return whether a failure to read passes by itself, as after a start of this node. Damage does not."""
    is_damage = isinstance(error, (KafkaStorageError, CorruptMessage))  # a client may retry at another node
    return isinstance(error, KafkaError) and error.retriable and not is_damage


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Turn a timeout into the registry's error."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise SchemaError(
            STORE_TIMED_OUT,
            f"the schema store made no progress within {seconds:.0f} s; the change may come yet",
        ) from None
