"""Jepsen's Kafka workload: processes that send, poll, assign and crash, and everything they saw, written down.

The same in the simulator and against real processes: it knows a recorder, ports and the running loop, nothing of what
lies behind them. It judges nothing but records that nobody can have sent.

Ordering law: an operation is invoked in the history before its first byte is sent and completed after its last answer
was taken. A process does one at a time; after `info` it never comes back, since what it began may still happen.

Careless processes write with acks=1, so that replicas' logs differ after failovers. Their acknowledged sends complete
as `info` without an offset, and each is a process of its own. That is sound: an acks=1 record may be lost with its
leader, so it is neither `ok`, nor may its offset, which another record can take, count as known; and nothing orders
two of them, since one may wait in a paused broker's socket. It is not toothless: once a poll returned such a record it
was committed, and then the checkers demand it of every later read as they do of any other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from raftlog.proof.history import Function, Outcome, Recorder
from raftlog.proof.workloads.generator import Generator, LogOptions, Operation, Poll, Send, Take
from raftlog.proof.workloads.port import (
    ClientPort,
    Damaged,
    Definite,
    Indefinite,
    Kind,
    Unsupported,
    split_key,
)

__all__ = ["LogOptions", "LogWorkload"]

RESTART_S: Final = 10.0
"""A final reader that saw nothing new for so long starts over."""
PAUSE_S: Final = 0.5
"""So often an idle process looks whether it is to stop."""
FINAL_PAUSE_S: Final = 0.2
"""Between two polls of the final phase that brought nothing."""

OpenPort = Callable[[int, Kind], ClientPort]
"""Opens the port of a process number; connects to nothing yet."""

Reads = dict[str, list[tuple[int, int]]]


class LogWorkload:
    """`start`, then `finish`, or `stop` and `close`. Takes all its chance from `chance`."""

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
        self.faults: list[str] = []
        """What was wrong at sight."""
        self.acked_count = 0
        self.polled_count = 0
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
        """Let each process end after what it is doing; returns at once."""
        self.stopping = True

    async def close(self) -> None:
        """Stop, and wait until every port is closed. Raises what went wrong inside a process."""
        self.stop()
        tasks, self._tasks = self._tasks, []
        await _all(tasks)

    async def finish(self, limit_s: float = 200.0) -> dict[str, int]:
        """Stop, then read every key from its beginning until all acknowledged offsets are reached.

        For a cluster that is well again. Returns the keys whose end was not reached by every reader within `limit_s`,
        with the offset that was due; nothing, if all is well.
        """
        await self.close()
        readers = [_FinalReader(self) for _ in range(self.options.final_readers)]
        await _all([each.run(limit_s) for each in readers])
        return {key: offset for each in readers for key, offset in each.missing().items()}

    async def provide_topics(self, port: ClientPort, keys: Iterable[str]) -> None:
        """Create the topics of these keys, as far as nobody did so yet. Raises Definite, Indefinite."""
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


class _Process:
    """One port and its number in the history; replaced by a new one whenever it must not go on."""

    def __init__(self, load: LogWorkload, kind: Kind, group: str = "") -> None:
        self.load = load
        self.kind = kind
        self.group = group
        self.reads: Reads = {}
        """What the last poll brought."""
        self.open()

    def open(self) -> None:
        self.number = self.load.recorder.new_process()
        self.port = self.load.open_port(self.number, self.kind)
        self.fresh = True
        if self.load.options.txn and not self.port.transactional:
            raise Unsupported("these clients have no transactions: run the workload without txn")

    def note(self, type: Outcome, function: Function, value: list[Any] | None, **rest: Any) -> None:
        self.load.recorder.note(self.number, type, function, value, **rest)

    async def crash(self) -> None:
        self.note("invoke", "crash", None)
        await self.port.abandon()
        self.note("info", "crash", None)
        self.open()

    async def replace(self) -> None:
        await self.port.abandon()
        self.open()

    # -- operations ---------------------------------------------------------------------------------------------

    async def carry_out(self, operation: Operation) -> None:
        if isinstance(operation, Send):
            outcome = await self._send(operation)
        elif isinstance(operation, Take):
            outcome = await self.take(operation)
        elif isinstance(operation, Poll):
            outcome = await self.poll()
        else:
            raise Unsupported("transactions cannot be carried out yet")
        if outcome == "info" and self.kind == "careless":
            self.number = self.load.recorder.new_process()
        elif outcome == "info" or self.port.spent:
            await self.replace()

    async def _send(self, operation: Send) -> Outcome:
        self.note("invoke", "send", [["send", key, value] for key, value in operation.writes])
        error = await _attempt(self.load.provide_topics(self.port, [key for key, _ in operation.writes]))
        if error is not None:  # whatever became of the topic, nothing was sent to it
            value = [["send", key, [None, value]] for key, value in operation.writes]
            self.note("fail", "send", value, error=str(error))
            return "fail"
        answers = [self.port.send(key, value) for key, value in operation.writes]
        results = await asyncio.gather(*answers, return_exceptions=True)
        careless = self.kind == "careless"
        offsets = [_offset(each) for each in results]
        if careless:
            offsets = [None] * len(offsets)
        for (key, _), offset in zip(operation.writes, offsets, strict=True):
            if offset is not None:
                self.load.generator.note_acked(key, offset)
                self.load.acked_count += 1
        value = [
            ["send", key, [offset, value]]
            for (key, value), offset in zip(operation.writes, offsets, strict=True)
        ]
        outcome = _outcome(results, careless=careless)
        self.note(outcome, "send", value, error=_first_error(results))
        return outcome

    async def take(self, operation: Take, *, seek_to_beginning: bool = False) -> Outcome:
        keys = list(operation.keys)
        function: Function = "subscribe" if self._subscribes(seek_to_beginning) else "assign"
        self.note("invoke", function, keys, seek_to_beginning=seek_to_beginning)
        error = await _attempt(self._take(operation.keys, seek_to_beginning=seek_to_beginning))
        outcome = _failure(error)
        if error is None:
            self.fresh = False
        self.note(outcome, function, keys, seek_to_beginning=seek_to_beginning, error=_text(error))
        return outcome

    def _subscribes(self, seek_to_beginning: bool) -> bool:
        return self.load.options.subscribe and not seek_to_beginning

    async def _take(self, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        await self.load.provide_topics(self.port, keys)
        if self._subscribes(seek_to_beginning):
            topics = tuple(dict.fromkeys(split_key(key)[0] for key in keys))
            await self.port.subscribe(topics, self.group)
        else:
            await self.port.assign(keys, seek_to_beginning=seek_to_beginning)

    async def poll(self) -> Outcome:
        self.reads = reads = {}
        self.note("invoke", "poll", [["poll"]])
        try:
            self.reads = reads = await self.port.poll()
            await self.port.commit()
            error: Exception | None = None
        except (Definite, Indefinite) as failure:
            error = failure
        except Damaged as failure:
            self.load.faults.append(str(failure))
            error = failure
        outcome = _failure(error)
        value = [["poll", {key: [list(each) for each in records] for key, records in reads.items()}]]
        rebalanced = self.port.take_rebalanced()
        if outcome == "ok":
            self.load.generator.note_polled(reads)
            self.load.polled_count += sum(map(len, reads.values()))
        elif outcome == "fail":
            await self.port.rewind({key: records[0][0] for key, records in reads.items() if records})
        self.note(outcome, "poll", value, rebalanced=rebalanced, error=_text(error))
        return outcome


class _Worker:
    """A line of processes of one kind: when one crashes, another follows."""

    def __init__(self, load: LogWorkload, number: int, kind: Kind) -> None:
        self.load = load
        self.kind = kind
        self.group = f"{load.options.prefix}-group-{number // load.options.members}"

    async def run(self) -> None:
        load, chance, loop = self.load, self.load.chance, asyncio.get_running_loop()
        process = _Process(load, self.kind, self.group)
        try:
            crash_at = loop.time() + self._life_s()
            while not load.stopping:
                await self._pause()
                if load.stopping:
                    break
                if loop.time() >= crash_at:
                    await process.crash()
                    crash_at = loop.time() + self._life_s()
                    continue
                await process.carry_out(load.generator.next(self.kind, fresh=process.fresh))
                if not load.options.rate:
                    await asyncio.sleep(chance.random() * 0.001)
        finally:
            await process.port.close()

    def _life_s(self) -> float:
        mean_s = self.load.options.crash_every_s
        return self.load.chance.expovariate(1 / mean_s) if mean_s else float("inf")

    async def _pause(self) -> None:
        """Keep the rate, but do not sleep through a stop."""
        options = self.load.options
        if options.rate:
            left_s = self.load.chance.expovariate(options.rate / len(options.kinds))
            while left_s > 0 and not self.load.stopping:
                await asyncio.sleep(min(left_s, PAUSE_S))
                left_s -= PAUSE_S


class _FinalReader:
    """Reads everything from the beginning, in as many lives as that takes."""

    def __init__(self, load: LogWorkload) -> None:
        self.load = load
        self.due = dict(load.generator.acked)
        self.reached: dict[str, int] = {}

    def missing(self) -> dict[str, int]:
        """Keys whose end was not reached, with the offset that is due."""
        return {key: offset for key, offset in self.due.items() if self.reached.get(key, -1) < offset}

    async def run(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        end_at = loop.time() + limit_s
        process = _Process(self.load, "reader")
        try:
            while self.missing() and loop.time() < end_at:
                outcome = await process.take(Take(tuple(self.due)), seek_to_beginning=True)
                if outcome == "ok":
                    outcome = await self._read(process, end_at)
                if outcome == "info":
                    await process.replace()
                elif self.missing():
                    await process.crash()
                await asyncio.sleep(FINAL_PAUSE_S)
        finally:
            await process.port.close()

    async def _read(self, process: _Process, end_at: float) -> Outcome:
        """Poll until all is reached, a poll fails, or nothing new has come for a while."""
        loop = asyncio.get_running_loop()
        news_at = loop.time()
        outcome: Outcome = "ok"
        while outcome == "ok" and self.missing() and loop.time() < min(news_at + RESTART_S, end_at):
            outcome = await process.poll()
            if outcome == "ok" and self._note(process.reads):
                news_at = loop.time()
            else:
                await asyncio.sleep(FINAL_PAUSE_S)
        return outcome

    def _note(self, reads: Reads) -> bool:
        """Whether any record was new to this reader."""
        news = False
        for key, records in reads.items():
            if records and records[-1][0] > self.reached.get(key, -1):
                self.reached[key] = records[-1][0]
                news = True
        return news


# -- outcomes -------------------------------------------------------------------------------------------------------


async def _all(actions: Sequence[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise what went wrong first."""
    for outcome in await asyncio.gather(*actions, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _attempt(action: Awaitable[object]) -> Exception | None:
    try:
        await action
    except (Definite, Indefinite) as error:
        return error
    return None


def _failure(error: Exception | None) -> Outcome:
    if error is None:
        return "ok"
    return "fail" if isinstance(error, Definite) else "info"


def _text(error: Exception | None) -> str | None:
    return None if error is None else str(error)


def _offset(result: int | BaseException) -> int | None:
    """Return the offset, None if it is not known; what is neither Definite nor Indefinite is a fault, and raised."""
    if isinstance(result, int):
        return result if result >= 0 else None
    if isinstance(result, Definite | Indefinite):
        return None
    raise result


def _outcome(results: Sequence[int | BaseException], *, careless: bool) -> Outcome:
    """Ok if all sends were acknowledged, fail if none was or will be, else info."""
    if all(isinstance(each, Definite) for each in results):
        return "fail"
    if careless or any(isinstance(each, BaseException) for each in results):
        return "info"
    return "ok"


def _first_error(results: Sequence[int | BaseException]) -> str | None:
    return next((str(each) for each in results if isinstance(each, BaseException)), None)
