"""The settings for a broker's memory on behalf of clients and other brokers. Only the table; `raftlog.base.memory`
derives the parts from the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.base.config.group import ConsumerGroupSettings
from raftlog.base.config.setting import setting

DERIVED = -1
"""The value of a setting that follows from another setting."""


@dataclass(frozen=True, eq=False)
class MemorySettings(ConsumerGroupSettings):
    """The budget for memory, and its two largest parts."""

    raftlog_memory_max_bytes: int = setting(
        "raftlog.memory.max.bytes",
        "long",
        DERIVED,
        "Most memory for what clients and brokers send and are sent; -1: half of what the container or else the "
        "machine has, 512 MiB at most",
        at_least=DERIVED,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        "long",
        DERIVED,
        "Most bytes of requests in memory, beyond which connections are not read; -1: three sixteenths of "
        "raftlog.memory.max.bytes, where Kafka sets no limit",
        at_least=DERIVED,
    )
    raftlog_answers_max_bytes: int = setting(
        "raftlog.answers.max.bytes",
        "long",
        DERIVED,
        "Most bytes of answers that clients have not taken yet, beyond which requests wait; -1: a quarter of "
        "raftlog.memory.max.bytes",
        at_least=DERIVED,
    )
