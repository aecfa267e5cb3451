"""Parts of ours in place of PySyncObj's own: clock, transport, poller and settings.

With `core`, which holds every private name of it, the only module that imports PySyncObj.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pysyncobj.syncobj as raft
from pysyncobj import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from raftlog.quorum.election import Timing
from raftlog.quorum.wal import MAX_COMMAND_BYTES

CHUNK_BYTES: Final = 1024 * 1024


class MessageSizes(NamedTuple):
    """How much one message carries, bytes. Simulations make both tiny, so that few entries are many messages.

    `batch_bytes`: an append_entries message holds at most this and one more command; every command must be smaller.
    `chunk_bytes`: of a snapshot.
    """

    batch_bytes: int = 2 * MAX_COMMAND_BYTES
    chunk_bytes: int = CHUNK_BYTES


COMMAND_PREFIX: Final = b"\x00"
"""First byte of a command of ours; PySyncObj's own kinds (no-op, membership, version) are ignored."""

for _name in ("pysyncobj", "pysyncobj.syncobj"):  # a logger's children do not ask whether it is disabled
    logging.getLogger(_name).disabled = True  # it cries of truncations that `core` filters out


class Clock:
    """The clock of whichever core is running: several share a process in simulations."""

    now: Callable[[], float]


clock = Clock()
raft.monotonicTime = lambda: clock.now()  # noqa: PLW0108 (`now` changes)


class Voter(Node):  # type: ignore[misc]
    """A voter by number. Its hash is the number, since sets of nodes are iterated."""

    def __str__(self) -> str:
        return f"voter {self.id}"


class OutboxTransport(Transport):  # type: ignore[misc]
    """The transport to which the core sends: our outbox."""

    def __init__(self, send: Callable[[Node, dict[str, Any]], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self._send(node, message)
        return True


class NoPoller:
    """The core polls at the end of a tick; there is nothing to poll."""

    def poll(self, timeout: float) -> None:
        pass


def pysyncobj_conf(timing: Timing, batch_bytes: int) -> SyncObjConf:
    """Return PySyncObj's settings: no thread, fork, file or membership change of its own; it asserts the times."""
    return SyncObjConf(
        autoTick=False,
        raftMinTimeout=timing.election_min,
        raftMaxTimeout=timing.election_max,
        appendEntriesPeriod=timing.heartbeat,
        leaderFallbackTimeout=timing.check_quorum_timeout,
        connectionTimeout=max(3.5, timing.election_max),
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=batch_bytes,
        dynamicMembershipChange=False,
        useFork=False,
    )
