"""Validates a produced batch record by record, off the loop or in turns, within a memory budget."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raftlog.records.header import validate_produced
from raftlog.records.recompression import recompression_for
from raftlog.records.validation import RecordRules, schema_fields, validate_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftlog.base.config import TopicConfig
    from raftlog.base.env import Env
    from raftlog.base.memory import Account
    from raftlog.replication.partition import Partition


class Client(Protocol):
    """The sender of a batch."""

    @property
    def is_open(self) -> bool:
        """Whether it is still connected."""

    def record_thread_time(self, seconds: float) -> None:
        """Count the work for it by its quota."""


class WalkedBatch(NamedTuple):
    """A batch in its topic's codec, the largest timestamp of its records, and their bytes if they were compressed."""

    records: memoryview
    max_timestamp: int
    plain_bytes: int


async def walk_records(env: Env, records: memoryview, config: TopicConfig, *, memory: Account) -> WalkedBatch:
    """Check each record of a batch, a few at a time, and recompress the batch with its topic's codec.

    Raises the error of a batch that is invalid for a topic with this config. `memory` counts the
    decompressed and the recompressed batch, which may take half of it. All of it counts until the end, though only a
    few pieces exist at once.
    """
    header = validate_produced(records, config.max_message_bytes)
    laws = RecordRules.of(config, env.ages.latest_ms())
    laws = laws._replace(max_decompressed_bytes=min(laws.max_decompressed_bytes, memory.limit // 2))
    recompression = recompression_for(header, config)
    plain_bytes = 0
    result: Any = None
    try:
        with closing(validate_records(header, records, laws, recompression=recompression)) as steps:
            while True:
                try:
                    call = steps.send(result)
                except StopIteration as end:
                    newest: int = end.value
                    break
                result = None if call is None else await env.offload(call)
                if call is None:
                    await env.turns.next()
                elif result is not None:
                    memory.acquire(len(result))
                    plain_bytes += len(result)
        if recompression is not None:
            records = memoryview(await env.offload(partial(recompression.finish, header)))
        return WalkedBatch(records, newest, plain_bytes)
    finally:
        memory.release(plain_bytes)


async def check_schemas(
    check: Callable[..., Awaitable[None]] | None,
    log: Partition,
    records: memoryview,
    walked: WalkedBatch,
    *,
    memory: Account,
    client: Client | None = None,
) -> None:
    """Have the broker check the records of a walked batch by schemas, if its topic wants that.

    `check` is the broker's check, and raises the errors. Without a `client` the batch is the broker's own.
    """
    if not schema_fields(log.config):
        return
    assert check is not None, "a broker has a context"
    recompressed = 0 if walked.records is records else len(walked.records)
    memory.acquire(recompressed)
    try:
        await check(log.topic, log.config, records, walked.plain_bytes, memory=memory, client=client)
    finally:
        memory.release(recompressed)
