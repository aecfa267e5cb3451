"""One load on one system: the request to a client process, its answer, and what the system spent meanwhile.

A client is a process of its own. It prints `begin` when its warm-up is over, `end` when the measured time is, and its
answer as a line of JSON. The cost of the system is taken between the two words.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from raftlog.base.readable import readable
from raftlog.testing.progress import patient
from raftlog_chaos.compare.processes import Child

Kind = Literal[
    "produce", "consume", "both", "ack", "arrival", "committed", "producers", "connections", "queue"
]

OVERTIME_S: Final = 30.0
"""A client that takes so much longer than its load is ended: the system is too slow for it, or hangs."""
FLUSH_COLUMN: Final = 18
"""The column of /proc/diskstats that counts flush requests, from zero."""
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class TooSlow(Exception):
    """A client did not end within its time."""


class LoadFailed(Exception):
    """A client ended without an answer. The message is the last that it said."""


class Load(msgspec.Struct, kw_only=True):
    """A load. `rate` is in records a second over all producers; 0 is as fast as possible."""

    kind: Kind
    servers: list[str] = []
    settings: dict[str, str] = {}
    """More settings of a Kafka client, about security."""
    topic: str = "compare"
    partitions: int = 6
    record_bytes: int = 1_000
    acks: str = "all"
    codec: str = "none"
    rate: int = 0
    seconds: float = 2.0
    warmup_s: float = 0.5
    clients: int = 1
    """Producers, connections, or workers of a queue."""
    per_ack: int = 1
    """The records that a worker of a queue accepts at once."""
    locks: int = 0
    """The records that the workers of a queue have together, at most."""
    hello: str = ""
    """The first bytes of an idle connection, in hexadecimal digits."""


class Answer(msgspec.Struct, kw_only=True):
    """The client's own account. `took_ms`: p50, p99 and p99.9; `client_s`: its CPU time.

    `delivered_ms`: the same quantiles until a worker of a queue had the record, of a load with a rate.
    """

    records: int
    seconds: float
    client_s: float
    failed: int = 0
    took_ms: tuple[float, float, float] | None = None
    consumed: int = 0
    delivered_ms: tuple[float, float, float] | None = None


class Usage(NamedTuple):
    """CPU seconds of some processes so far and their memory, and the flushes of a folder's disk (None: not counted).

    `machine_s` has the CPU seconds of everything on the machine. raftlog's syncs (`io_submit`) run in the kernel's own
    threads, which are charged to no process: only this figure has them. Other systems do not use these threads.
    """

    user_s: float
    system_s: float
    machine_s: float
    flushes: int | None
    resident_bytes: int

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: Usage) -> Usage:
        """Return the usage since then. A process that ended in between counts as zero."""
        flushes = None if self.flushes is None or before.flushes is None else self.flushes - before.flushes
        return Usage(
            max(0.0, self.user_s - before.user_s),
            max(0.0, self.system_s - before.system_s),
            max(0.0, self.machine_s - before.machine_s),
            flushes,
            self.resident_bytes - before.resident_bytes,
        )


class Measured(NamedTuple):
    """An answer, and what the system used in the same time; `used.machine_s` is without the client's share."""

    load: Load
    answer: Answer
    used: Usage

    @property
    def records_per_s(self) -> float:
        return self.answer.records / self.answer.seconds

    @property
    def megabytes_per_s(self) -> float:
        return self.records_per_s * self.load.record_bytes / 1e6

    @property
    def gigabytes(self) -> float:
        return self.answer.records * self.load.record_bytes / 1e9


def usage_of(pids: Sequence[int], folder: Path) -> Usage:
    """Return the usage of these processes so far; an ended process counts as zero."""
    user = system = resident = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        user, system = user + int(fields[11]), system + int(fields[12])
        resident += int(fields[21]) * PAGE_BYTES
    return Usage(user / CLOCK_TICKS, system / CLOCK_TICKS, _machine_s(), _flushes(folder), resident)


def _machine_s() -> float:
    """Return the CPU seconds that this machine has spent so far, its interrupts included."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _waiting, interrupts, soft_interrupts = map(
            int, file.readline().split()[1:8]
        )
    return (user + nice + system + interrupts + soft_interrupts) / CLOCK_TICKS


def _flushes(folder: Path) -> int | None:
    try:
        device = os.stat(folder).st_dev
        lines = Path("/proc/diskstats").read_text().splitlines()
    except OSError:
        return None
    wanted = [str(os.major(device)), str(os.minor(device))]
    rows = [line.split() for line in lines]
    return next(
        (int(row[FLUSH_COLUMN]) for row in rows if row[:2] == wanted and len(row) > FLUSH_COLUMN), None
    )


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that a folder is on, such as "ext4"; empty if the kernel does not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return ""
    return next((each[each.index("-") + 1] for each in mounts if each[2] == wanted), "")


def run_client(command: Sequence[str], load: Load, *, pids: Sequence[int], folder: Path) -> Measured:
    """Run a client to its end. Raises TooSlow, or LoadFailed with its last words.

    All earlier writes go to the disk first, so that no load pays for the load before.
    """
    os.sync()
    deadline = time.monotonic() + load.warmup_s + load.seconds + patient(OVERTIME_S)
    with Child(command, stdout=subprocess.PIPE, log_path=folder / "client.log") as child:
        reader = _Lines(child, deadline)
        reader.until("begin")
        before = usage_of(pids, folder)
        reader.until("end")
        used = usage_of(pids, folder).since(before)
        line = reader.until("{")
    try:
        answer = msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError as error:
        raise LoadFailed(f"the client answered {line[:200]!r}: {error}") from None
    return Measured(load, answer, used._replace(machine_s=max(0.0, used.machine_s - answer.client_s)))


class _Lines:
    """The lines that a child prints, up to a deadline."""

    def __init__(self, child: Child, deadline: float) -> None:
        self._child = child
        self._deadline = deadline
        self._rest = b""

    def until(self, start: str) -> str:
        """Return the next line that begins so. Raises TooSlow or LoadFailed."""
        while True:
            line = self._next()
            if line.startswith(start):
                return line

    def _next(self) -> str:
        while b"\n" not in self._rest:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0 or not readable([self._child.stdout], left_s):
                raise TooSlow("the client did not end in its time")
            came = os.read(self._child.stdout.fileno(), 1 << 16)
            if not came:
                raise LoadFailed(self._child.last_words() or "the client ended without a word")
            self._rest += came
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")
