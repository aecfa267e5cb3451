"""Jepsen's Kafka workload: processes that send, poll, assign and crash, and a history of everything they saw.

It is the same in the simulator and against real processes. It uses a recorder, ports and the running loop, and knows
nothing else of either world. It only judges records that no process can have sent.

Ordering law: an operation is invoked in the history before its first byte is sent and completed after its last answer
was taken. A process runs one operation at a time; after `info` it never comes back, since the operation may still
happen.

Careless processes write with acks=1, so that replicas' logs differ after failovers. Their acknowledged sends complete
as `info` without an offset, and each is a process of its own. This is sound: an acks=1 record may be lost with its
leader, so it is not `ok`. Its offset is not known either, since another record can take it. And two of them have no
order, since one may wait in a paused broker's socket. It still proves something: once a poll returned such a record it
was committed. Then the checkers require it of every later read as they do of any other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, cast

from raftlog.testing.progress import Signs, Stalled, Wait, no_signs
from raftlog_chaos.history import Outcome, Recorder
from raftlog_chaos.workloads.generator import Generator, LogOptions, Take
from raftlog_chaos.workloads.port import ClientPort, Indefinite, Kind, TransactionalPort, split_key
from raftlog_chaos.workloads.process import Process

__all__ = ["LogOptions", "LogWorkload"]

RESTART_S: Final = 10.0
"""A final reader without a new record for so long starts over."""
PAUSE_S: Final = 0.5
"""How often an idle process checks whether it must stop."""
FINAL_PAUSE_S: Final = 0.2
"""Between two empty polls of the final phase."""

NewWait = Callable[..., Wait]
"""Makes a Wait with a description of the condition, and `seen`."""
OpenPort = Callable[[int, Kind], ClientPort]
"""Opens the port of a process number, without a connection yet."""


class LogWorkload:
    """`start`, then `finish`, or `stop` and `close`. `chance` is its only source of randomness."""

    def __init__(
        self,
        recorder: Recorder,
        open_port: OpenPort,
        chance: random.Random,
        options: LogOptions | None = None,
    ) -> None:
        self.recorder = recorder
        self.open_port = open_port
        self.options = options or LogOptions()
        self.chance = chance
        self.generator = Generator(self.options, chance)
        self.stopping = False
        self.draining = False
        """Only transformers go on."""
        self.faults: list[str] = []
        """The immediate violations."""
        self.acked_count = 0
        self.polled_count = 0
        self.ends: dict[str, int] = {}
        """Keyed by key: the offset to read up to, which is known once there are no more transactions."""
        self._tasks: list[asyncio.Task[None]] = []
        self._topics: set[str] = set()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that were ever used."""
        return tuple(self.generator.keys)

    def start(self) -> None:
        """Let the processes begin."""
        for number, kind in enumerate(self.options.kinds):
            worker = _Worker(self, number, kind)
            self._tasks.append(asyncio.ensure_future(worker.run()))

    def stop(self) -> None:
        """Make each process end after its present operation; returns at once."""
        self.stopping = True

    async def close(self) -> None:
        """Stop, and wait until every port is closed. Raises the errors inside processes."""
        self.stop()
        tasks, self._tasks = self._tasks, []
        await _all(tasks)

    async def finish(
        self, stall_s: float = 200.0, *, signs: Callable[[], Signs] = no_signs
    ) -> dict[str, int]:
        """Stop, then read every key from its beginning until all acknowledged offsets are reached.

        The cluster must be well again. A reader without progress gives up after `stall_s`; `signs` are the signs of
        life of the nodes. Returns the keys that some reader did not read to their end, with the expected offset; empty
        if all is well.
        """
        wait = partial(Wait, signs=signs, clock=asyncio.get_running_loop().time, stall_s=stall_s)
        if self.options.transformers:
            await self._drain(wait)
        await self.close()
        if self.options.transactional:
            self.ends = await self._settle(wait)
        readers = [_FinalReader(self) for _ in range(self.options.final_readers)]
        await _all([each.run(wait) for each in readers])
        return {key: offset for each in readers for key, offset in each.missing().items()}

    async def _drain(self, wait: NewWait) -> None:
        """Let transformers go on until they have processed all acknowledged records."""
        self.draining = True
        await self._until_still(
            wait, self._unprocessed, "the group stands at {0}, but there is work up to {1}"
        )

    async def _unprocessed(self, port: TransactionalPort) -> dict[str, tuple[int, int]]:
        due = {key: self.generator.acked[key] + 1 for key in self.keys if key in self.generator.acked}
        found = await port.committed(tuple(due), self.transforming_group)
        return {key: (found[key], due[key]) for key in due if found[key] < due[key]}

    async def _settle(self, wait: NewWait) -> dict[str, int]:
        """Wait until no transaction is open any more; no process writes. Returns each key's last offset."""
        await self._until_still(
            wait, self._unsettled, "the last stable offset is {0} of {1}: a transaction hangs"
        )
        return self.ends

    async def _unsettled(self, port: TransactionalPort) -> dict[str, tuple[int, int]]:
        keys = [f"{topic}-{index}" for topic in self._topics for index in range(self.options.partitions)]
        ends = await port.ends(keys)
        self.ends = {key: end.high_watermark - 1 for key, end in ends.items()}
        return {
            key: (end.last_stable_offset, end.high_watermark)
            for key, end in ends.items()
            if end.last_stable_offset < end.high_watermark
        }

    async def _until_still(
        self,
        new_wait: NewWait,
        look: Callable[[TransactionalPort], Awaitable[dict[str, tuple[int, int]]]],
        fault: str,
    ) -> None:
        """Check again and again until no offset is missing; offsets still missing when progress stops are a fault."""
        port = cast(TransactionalPort, self.open_port(self.recorder.new_process(), "reader"))
        lacks: dict[str, tuple[int, int]] = {"everything": (0, 0)}
        wait = new_wait("nothing is missing", seen=lambda: lacks)
        try:
            while lacks:
                wait.pause()
                try:
                    lacks = await look(port)
                except Indefinite as error:
                    lacks = {str(error): (0, 0)}
                await asyncio.sleep(FINAL_PAUSE_S)
        except Stalled:
            pass
        finally:
            await port.close()
        self.faults += [f"{key}: {fault.format(*both)}" for key, both in sorted(lacks.items())]

    @property
    def transforming_group(self) -> str:
        """The group of all transformers."""
        return f"{self.options.prefix}-transformers"

    def resume(self, written: Mapping[str, int], acked: Mapping[str, int]) -> None:
        """Go on where another run ended, with its topics and acknowledged records; call it before `start`."""
        self.generator.resume(written, acked)
        self._topics |= {split_key(key)[0] for key in acked}

    async def provide_topics(self, port: ClientPort, keys: Iterable[str]) -> None:
        """Create the missing topics of these keys. Raises Definite, Indefinite."""
        for topic in dict.fromkeys(split_key(key)[0] for key in keys):
            if topic not in self._topics:
                options = self.options
                await port.create_topic(
                    topic,
                    partitions=options.partitions,
                    replicas=options.replicas,
                    configs=options.topic_configs,
                )
                self._topics.add(topic)


class _Worker:
    """A line of processes of one kind: when one crashes, another follows."""

    def __init__(self, load: LogWorkload, number: int, kind: Kind) -> None:
        self.load = load
        self.kind = kind
        self.group = f"{load.options.prefix}-group-{number // load.options.members}"
        if kind == "transformer":
            self.group = load.transforming_group
        self.identity = f"{load.options.prefix}-id-{number}"

    async def run(self) -> None:
        load, chance, loop = self.load, self.load.chance, asyncio.get_running_loop()
        process = Process(load, self.kind, self.group, self.identity)
        try:
            crash_at = loop.time() + self._life_s()
            while not self._over():
                await self._pause()
                if self._over():
                    break
                if loop.time() >= crash_at and not load.draining:
                    await process.crash()
                    crash_at = loop.time() + self._life_s()
                    continue
                await process.carry_out(load.generator.next(self.kind, fresh=self._is_behind(process)))
                if not load.options.rate:
                    await asyncio.sleep(chance.random() * 0.001)
        finally:
            await process.port.close()

    def _over(self) -> bool:
        return self.load.stopping or (self.load.draining and self.kind != "transformer")

    def _is_behind(self, process: Process) -> bool:
        """Whether it has to take keys: it has none, or there are new topics to transform."""
        if process.fresh or self.kind != "transformer":
            return process.fresh
        return process.topics != {split_key(key)[0] for key in self.load.keys}

    def _life_s(self) -> float:
        mean_s = self.load.options.crash_every_s
        return self.load.chance.expovariate(1 / mean_s) if mean_s else float("inf")

    async def _pause(self) -> None:
        """Keep the rate, but do not sleep through a stop."""
        options = self.load.options
        if options.rate:
            left_s = self.load.chance.expovariate(options.rate / len(options.kinds))
            while left_s > 0 and not self._over():
                await asyncio.sleep(min(left_s, PAUSE_S))
                left_s -= PAUSE_S


class _FinalReader:
    """Reads everything from the beginning, in as many lives as that takes."""

    def __init__(self, load: LogWorkload) -> None:
        self.load = load
        self.due = dict(load.ends or load.generator.acked)
        self.reached: dict[str, int] = {}

    def missing(self) -> dict[str, int]:
        """Return the keys that were not read to their end, with the expected offset."""
        return {key: offset for key, offset in self.due.items() if self.reached.get(key, -1) < offset}

    async def run(self, new_wait: NewWait) -> None:
        wait = new_wait("everything is read", seen=lambda: dict(self.reached))
        process = Process(self.load, "reader")
        try:
            while self.missing():
                wait.pause()
                outcome = await process.take(Take(tuple(self.due)), seek_to_beginning=True)
                if outcome == "ok":
                    outcome = await self._read(process, wait)
                if outcome == "info":
                    await process.replace()
                elif self.missing():
                    await process.crash()
                await asyncio.sleep(FINAL_PAUSE_S)
        except Stalled:
            pass
        finally:
            await process.port.close()

    async def _read(self, process: Process, wait: Wait) -> Outcome:
        """Poll until all is reached, a poll fails, or there was no new record for a while. Raises Stalled."""
        loop = asyncio.get_running_loop()
        news_at = loop.time()
        outcome: Outcome = "ok"
        while outcome == "ok" and self.missing() and loop.time() < news_at + RESTART_S:
            wait.pause()
            outcome = await process.poll()
            if outcome == "ok" and self._note(process):
                news_at = loop.time()
            else:
                await asyncio.sleep(FINAL_PAUSE_S)
        return outcome

    def _note(self, process: Process) -> bool:
        """Whether anything was new to this reader. The end of a transaction is no record, and yet reached."""
        last = {key: records[-1][0] for key, records in process.reads.items() if records}
        if self.load.options.transactional:
            ends = cast(TransactionalPort, process.port).reached
            last |= {key: end - 1 for key, end in ends.items()}
        news = {key: offset for key, offset in last.items() if offset > self.reached.get(key, -1)}
        self.reached |= news
        return bool(news)


async def _all(actions: Sequence[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise the first error."""
    for outcome in await asyncio.gather(*actions, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
