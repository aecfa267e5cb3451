"""The schemas of the registry on a node without a replica of `_schemas`, which reads them from the partition's leader.

It reads when a request needs a schema that it does not know. Requests share a reading, which goes on without them, and
wait for it a bounded time. After a failure or a long reading they do not wait: a slow or dead leader holds no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raftlog.admin.broker_questions import SPECIAL, fetch, list_offsets, of_leader
from raftlog.admin.errors import ApiError, check
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.route import Call
from raftlog.admin.view import NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.base.turns import each_part
from raftlog.base.types import NO_BROKER, NO_EPOCH, SCHEMAS_TOPIC
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.replay import decoded

WAIT_S: Final = 2.0
"""Longest wait of a request for a reading."""
READ_S: Final = 10.0
"""Longest reading. The next one goes on where it ended."""
REFRESH_EACH_S: Final = 0.5
"""Pause between the beginnings of two readings: unknown ids are not a load for the leader."""
KEEPS_UP_EACH_S: Final = 30.0
"""Subjects of known schemas may change: what is older is read on behind a request."""
READ_BYTES: Final = 256 << 10
MAX_BYTES: Final = 64 << 20
"""Bytes that are read for one state. After more it begins anew; the schemas of a larger log are not kept here."""
INDEX: Final = 0
log = get_logger("schemas")


class SchemaCopy:
    """`state` has what was read so far."""

    def __init__(self, node: NodeView) -> None:
        self.state = RegistryState()
        self._node = node
        self._loading = self.state
        """Another state while the log of another leader is read."""
        self._loaded_from: tuple[Any, int] = (None, NO_EPOCH)
        """The topic id and the leader epoch of what is loaded: a new leader may lack some of it."""
        self._offset = 0
        self._end_offset = 0
        self._first_end_offset = 0
        """The end of the log as what is loaded was begun."""
        self._bytes = 0
        self._began_at = -KEEPS_UP_EACH_S
        self._reading: asyncio.Task[None] | None = None
        self._failure = ""
        """Why the last reading failed, or is not done yet."""

    async def read_on(self, call: Call, is_known: Callable[[], bool]) -> str:
        """Wait for a reading. Return "", or why it failed or takes longer; then the next requests do not wait.

        A reading under way may have asked for the log's end too early. Wait for another unless the schema `is_known`.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + (0 if self._failure else WAIT_S)
        is_under_way = self._reading is not None and not self._reading.done()
        for _ in range(1 + is_under_way):
            reading = self._begin(call)
            await asyncio.wait([reading], timeout=ends_at - loop.time())
            if self._failure or is_known():
                break
        if not reading.done() and not self._failure:
            so_far = f"offset {self._offset} of {self._end_offset} so far"
            self._failure = f"that takes longer than {WAIT_S:.0f} s ({so_far})"
        return self._failure

    def keep_up(self, call: Call) -> None:
        """Have it read on, unless it has a moment ago, and do not wait for that."""
        if asyncio.get_running_loop().time() - self._began_at >= KEEPS_UP_EACH_S:
            self._begin(call)

    def _begin(self, call: Call) -> asyncio.Task[None]:
        """Return the reading that is under way."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._attempt(call))
        return self._reading

    def close(self) -> None:
        """End the reading."""
        if self._reading is not None:
            self._reading.cancel()

    async def _attempt(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._began_at + REFRESH_EACH_S - loop.time())
        self._began_at = loop.time()
        try:
            async with asyncio.timeout(READ_S):
                await self._read_all(call)
        except TimeoutError:
            self._failure = f"there were more than {READ_S:.0f} s to read"
        except (ApiError, KafkaError, BrokerUnreachable, OSError) as error:
            self._failure = str(error)
        except Exception:  # pages show the bytes of records meanwhile
            self._failure = "the reading failed; the log of this node says how"
            log.exception("schemas_not_copied", offset=self._offset)
        else:
            self._failure = ""

    async def _read_all(self, call: Call) -> None:
        """Read everything that was committed before this call."""
        topic = self._node.image().topics.get(SCHEMAS_TOPIC)
        source = (None, NO_EPOCH) if topic is None else (topic.topic_id, topic.partitions[INDEX].leader_epoch)
        leader = NO_BROKER if topic is None else topic.partitions[INDEX].leader
        start_offset, self._end_offset = (0, 0) if topic is None else await _bounds(call)
        if source != self._loaded_from or not start_offset <= self._offset <= self._end_offset:
            self._begin_anew(start_offset)
            self._loaded_from = source
        while self._offset < self._end_offset:
            if self._bytes > MAX_BYTES and self._first_end_offset < self._end_offset:
                self._begin_anew(start_offset)  # the log has less, if it was compacted since
            elif self._bytes > MAX_BYTES:
                raise ApiError(
                    503, f"its log has more than the {MAX_BYTES >> 20} MiB that are read from afar"
                )
            await self._read_some(call, leader)
        self.state = self._loading

    def _begin_anew(self, start_offset: int) -> None:
        """Load the log from its start. What is known stays until that is done."""
        self._loading, self._offset, self._bytes = RegistryState(), start_offset, 0
        self._first_end_offset = self._end_offset

    async def _read_some(self, call: Call, leader: int) -> None:
        fetched = await fetch(call, SCHEMAS_TOPIC, {INDEX: self._offset}, leader=leader, max_bytes=READ_BYTES)
        check(of_leader(fetched[INDEX].error_code), about=SCHEMAS_TOPIC)
        batches = bytes(fetched[INDEX].records or b"")
        records, offset = await self._node.offload(partial(decoded, batches, self._offset))
        if offset <= self._offset:
            raise ApiError(503, f"its leader returned no record at offset {offset}")
        await each_part(self._node, records, lambda each: self._loading.apply(*each))
        self._offset = offset
        self._bytes += len(batches)


async def _bounds(call: Call) -> tuple[int, int]:
    """Return where the log begins, and the end of what is committed, by its leader. Raises ApiError, KafkaError."""
    where = (SCHEMAS_TOPIC, INDEX)
    earliest = (await list_offsets(call, {where: SPECIAL["earliest"]}))[where]
    latest = (await list_offsets(call, {where: SPECIAL["latest"]}))[where]  # a log begins before a later end
    for error_code, _ in (earliest, latest):
        check(error_code, about=SCHEMAS_TOPIC)
    return earliest[1], latest[1]
