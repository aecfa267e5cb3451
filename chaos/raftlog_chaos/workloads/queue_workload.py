"""Workers that share the records of a workload as one share group, and a history of everything they saw.

It runs beside a LogWorkload, which writes. Most records are accepted. Some are released or rejected; now and then a
worker outstays its locks, stands still, or is killed with records in its hands. The ordering law is that of
`log_workload`. A record with a high delivery count is always accepted, so that none runs out of deliveries unless
workers die again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from raftlog.testing.progress import Signs, Stalled, Wait, no_signs
from raftlog_chaos.history import Function, Outcome, QueueTerms, Recorder
from raftlog_chaos.workloads.port import Damaged, Definite, Indefinite

PATIENT_COUNT: Final = 3
"""From this delivery count on, workers only accept."""
RELEASED: Final = 0.12
REJECTED: Final = 0.04
OUTSTAYED: Final = 0.03
"""The share of takings after which a worker lets its locks expire; half of these stand still meanwhile."""
OVER: Final = 1.3
"""How long a worker outstays, in lock durations."""
LOOK_S: Final = 0.5
"""How often the start offsets are asked for."""


class Acquired(NamedTuple):
    """A record that a member got."""

    key: str
    offset: int
    value: int
    delivery_count: int


class Said(NamedTuple):
    """An answer to a delivered record: accept, release or reject."""

    kind: str
    key: str
    offset: int


class QueuePort(Protocol):
    """One member of a share group. One call at a time."""

    async def acquire(self) -> list[Acquired]:
        """Return the records of one poll. Raises Indefinite, Damaged."""

    async def acknowledge(self, said: Sequence[Said]) -> dict[str, Outcome]:
        """Return the outcome of each key. Raises Indefinite."""

    def pause(self) -> None:
        """Stop the process, as a long garbage collection does."""

    def resume(self) -> None:
        """Let a paused process go on."""

    async def kill(self) -> None:
        """Kill the process, and wait until it is gone."""

    async def close(self) -> None:
        """Leave the group and end the process."""


class QueueAdminPort(Protocol):
    """An administrator of the group, see `queue_admin`."""

    async def begin_at_earliest(self, group: str) -> None:
        """Have a new group begin at the earliest record. Raises Definite."""

    async def start_offsets(self, group: str) -> dict[str, int]:
        """Return the start offsets by key. Raises Indefinite."""

    def close(self) -> None:
        """Close all connections."""


OpenQueuePort = Callable[[int, str, Sequence[str]], QueuePort]
"""Opens a member, from its process number, group and topics."""


class QueuePorts(NamedTuple):
    """The clients of a share group."""

    open_member: OpenQueuePort
    open_admin: Callable[[], QueueAdminPort]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """`keys`: all partitions of the topics that the workers read."""

    group: str
    keys: tuple[str, ...]
    workers: int
    terms: QueueTerms
    crash_every_s: float = 20.0
    """How long a worker lives on average; 0: for ever."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the keys."""
        return tuple(dict.fromkeys(key.rpartition("-")[0] for key in self.keys))


class QueueWorkload:
    """`start`, then `finish`, or `stop` and `close`. `chance` is its only source of randomness."""

    def __init__(
        self, recorder: Recorder, ports: QueuePorts, chance: random.Random, options: QueueOptions
    ) -> None:
        self.recorder = recorder
        self.ports = ports
        self.chance = chance
        self.options = options
        self.stopping = False
        self.draining = False
        """Workers only accept."""
        self.faults: list[str] = []
        self.settled: set[tuple[str, int]] = set()
        """The records whose accept or reject was confirmed."""
        self.starts: dict[str, int] = {}
        """The last start offset of each key."""
        self._admin = ports.open_admin()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Let the workers begin, once the group is to begin at the earliest record."""
        self._tasks.append(asyncio.ensure_future(self._begin()))

    async def _begin(self) -> None:
        try:
            await self._admin.begin_at_earliest(self.options.group)
        except Definite as error:
            self.faults.append(str(error))
            return
        workers = [_Worker(self).run() for _ in range(self.options.workers)]
        await asyncio.gather(*workers, self._observe())

    def stop(self) -> None:
        """Make each worker end after its present operation; returns at once."""
        self.stopping = True

    async def close(self) -> None:
        """Stop, and wait until every worker has ended. Raises the errors inside workers."""
        self.stop()
        tasks, self._tasks = self._tasks, []
        try:
            await asyncio.gather(*tasks)
        finally:
            self._admin.close()

    async def finish(
        self, due: Mapping[str, int], stall_s: float = 200.0, *, signs: Callable[[], Signs] = no_signs
    ) -> dict[str, int]:
        """Let the workers accept the rest, until the group begins after the `due` offset of each key; then close.

        There is no writer any more. Returns what is missing of `due`; empty if all is well.
        """
        self.draining = True
        clock = asyncio.get_running_loop().time
        wait = Wait(
            "all records are settled",
            seen=lambda: (len(self.settled), dict(self.starts)),
            signs=signs,
            clock=clock,
            stall_s=stall_s,
        )
        with contextlib.suppress(Stalled):
            while self._missing(due) and not self.faults:
                wait.pause()
                await asyncio.sleep(LOOK_S)
        await self.close()
        return self._missing(due)

    def _missing(self, due: Mapping[str, int]) -> dict[str, int]:
        return {key: offset for key, offset in due.items() if self.starts.get(key, 0) <= offset}

    async def _observe(self) -> None:
        """Ask again and again where the group begins."""
        process = self.recorder.new_process()
        while not self.stopping:
            note = _Notes(self.recorder, process, self.options.group)
            note("invoke", "start-offsets", [["start-offsets"]])
            try:
                found = await self._admin.start_offsets(self.options.group)
            except Indefinite as error:
                # a read leaves nothing behind that could still happen
                note("fail", "start-offsets", None, error=str(error))
            else:
                note("ok", "start-offsets", [["start-offsets", found]])
                self.starts |= found
            await asyncio.sleep(LOOK_S)


class _Notes:
    """Writes lines of one process."""

    def __init__(self, recorder: Recorder, process: int, group: str) -> None:
        self._recorder = recorder
        self._process = process
        self._group = group

    def __call__(self, type: Outcome, function: Function, value: list[Any] | None, **rest: Any) -> None:
        self._recorder.note(self._process, type, function, value, group=self._group, **rest)


class _Worker:
    """A line of members: when one dies, another follows."""

    def __init__(self, load: QueueWorkload) -> None:
        self._load = load
        self._port: QueuePort
        self._note: _Notes

    def _open(self) -> None:
        load, options = self._load, self._load.options
        number = load.recorder.new_process()
        self._port = load.ports.open_member(number, options.group, options.topics)
        self._note = _Notes(load.recorder, number, options.group)
        self._note("invoke", "join", list(options.keys))
        self._note("ok", "join", list(options.keys))
        life_s = load.chance.expovariate(1 / options.crash_every_s) if options.crash_every_s else 0.0
        self._dies_at = asyncio.get_running_loop().time() + life_s if life_s else float("inf")

    async def run(self) -> None:
        self._open()
        try:
            while not self._load.stopping:
                try:
                    await self._turn()
                except Indefinite:
                    await self._die()
        finally:
            await self._port.close()

    async def _turn(self) -> None:
        """Take records and acknowledge them, or die with them. Raises Indefinite."""
        records = await self._acquire()
        if asyncio.get_running_loop().time() >= self._dies_at and not self._load.draining:
            await self._die()
        elif records:
            await self._outstay()
            await self._acknowledge(records)

    async def _acquire(self) -> list[Acquired]:
        self._note("invoke", "acquire", [["acquire"]])
        try:
            records = await self._port.acquire()
        except (Indefinite, Damaged) as error:
            self._note("info", "acquire", None, error=str(error))
            if isinstance(error, Damaged):
                self._load.faults.append(str(error))
                raise Indefinite(str(error)) from None
            raise
        found: dict[str, list[list[int]]] = {}
        for each in records:
            found.setdefault(each.key, []).append([each.offset, each.value, each.delivery_count])
        self._note("ok", "acquire", [["acquire", found]])
        return records

    async def _outstay(self) -> None:
        load = self._load
        drawn = load.chance.random()
        if load.draining or drawn >= OUTSTAYED:
            return
        stands_still = drawn < OUTSTAYED / 2
        if stands_still:
            self._port.pause()
        await asyncio.sleep(load.options.terms.lock_s * OVER)
        if stands_still:
            self._port.resume()

    async def _acknowledge(self, records: Sequence[Acquired]) -> None:
        said = [Said(self._kind(each), each.key, each.offset) for each in records]
        value = grouped(said)
        self._note("invoke", "acknowledge", value)
        try:
            outcomes = await self._port.acknowledge(said)
        except Indefinite as error:
            self._note("info", "acknowledge", [[*each, "info"] for each in value], error=str(error))
            raise
        value = [[kind, key, offsets, outcomes[key]] for kind, key, offsets in value]
        kinds = set(outcomes.values())
        outcome: Outcome = kinds.pop() if len(kinds) == 1 else "info"
        self._note(outcome, "acknowledge", value)
        self._load.settled |= {
            (each.key, each.offset) for each in said if each.kind != "release" and outcomes[each.key] == "ok"
        }
        if "info" in outcomes.values():
            raise Indefinite("an acknowledgement has no certain outcome")

    def _kind(self, record: Acquired) -> str:
        drawn = self._load.chance.random()
        if self._load.draining or record.delivery_count >= PATIENT_COUNT or drawn >= RELEASED + REJECTED:
            return "accept"
        return "release" if drawn < RELEASED else "reject"

    async def _die(self) -> None:
        self._note("invoke", "crash", None)
        await self._port.kill()
        self._note("info", "crash", None)
        self._open()


def grouped(said: Sequence[Said]) -> list[list[Any]]:
    """Return what is said as kind, key and offsets."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in said:
        found.setdefault((each.kind, each.key), []).append(each.offset)
    return [[kind, key, offsets] for (kind, key), offsets in found.items()]
