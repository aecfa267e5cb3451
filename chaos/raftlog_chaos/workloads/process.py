"""One client of the workload: it carries out operations, and records their outcomes.

Ordering law: see `log`. It does not know how the next operation is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from raftlog_chaos.history import Function, Outcome
from raftlog_chaos.workloads.generator import Operation, Poll, Send, Take, Txn
from raftlog_chaos.workloads.port import Damaged, Definite, Indefinite, Kind, Unsupported, split_key
from raftlog_chaos.workloads.transactions import transform, write_and_poll

if TYPE_CHECKING:
    from raftlog_chaos.workloads.log_workload import LogWorkload

Reads = dict[str, list[tuple[int, int]]]


class Process:
    """One port and its number in the history; replaced by a new one whenever it must not go on."""

    def __init__(self, load: LogWorkload, kind: Kind, group: str = "", identity: str = "") -> None:
        self.load = load
        self.kind = kind
        self.group = group
        self.identity = identity
        """Its transactional id."""
        self.topics: frozenset[str] = frozenset()
        """The topics of the last assigned keys."""
        self.reads: Reads = {}
        """The records of the last poll."""
        self.open()

    def open(self) -> None:
        self.number = self.load.recorder.new_process()
        self.port = self.load.open_port(self.number, self.kind)
        self.fresh = True
        if self.load.options.transactional and not self.port.transactional:
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

    # -- the owner of the transactional id -------------------------------------------------------------------------

    def another(self) -> Process:
        """Open another client of this kind."""
        return Process(self.load, self.kind, self.group, self.identity)

    def new_identity(self) -> None:
        """Give the next process an id that was never used."""
        self.identity = f"{self.identity.partition('/')[0]}/{self.load.recorder.new_process()}"

    async def give_way(self, successor: Process) -> None:
        """Replace this process by its successor."""
        old, self.port, self.number = self.port, successor.port, successor.number
        self.fresh = True
        await old.close()

    # -- operations ---------------------------------------------------------------------------------------------

    async def carry_out(self, operation: Operation) -> None:
        if isinstance(operation, Send):
            outcome = await self._send(operation)
        elif isinstance(operation, Take):
            outcome = await self.take(operation)
        elif isinstance(operation, Poll):
            outcome = await self.poll()
        elif isinstance(operation, Txn):
            outcome = await write_and_poll(self, operation)
        else:
            outcome = await transform(self, operation)
        if outcome == "info" and self.kind == "careless":
            self.number = self.load.recorder.new_process()
        elif outcome == "info" or self.port.spent:
            await self.replace()

    async def _send(self, operation: Send) -> Outcome:
        self.note("invoke", "send", [["send", key, value] for key, value in operation.writes])
        error = await attempt(self.load.provide_topics(self.port, [key for key, _ in operation.writes]))
        if error is not None:  # whatever happened to the topic, no record was sent to it
            value = [["send", key, [None, value]] for key, value in operation.writes]
            self.note("fail", "send", value, error=str(error))
            return "fail"
        answers = [self.port.send(key, value) for key, value in operation.writes]
        results = await asyncio.gather(*answers, return_exceptions=True)
        careless = self.kind == "careless"
        offsets = [offset_of(each) for each in results]
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
        outcome = outcome_of(results, careless=careless)
        self.note(outcome, "send", value, error=first_error(results))
        return outcome

    async def take(self, operation: Take, *, seek_to_beginning: bool = False) -> Outcome:
        keys = list(operation.keys)
        function: Function = "subscribe" if self._subscribes(seek_to_beginning) else "assign"
        self.topics = frozenset(split_key(key)[0] for key in keys)
        group = self.group if self.kind == "transformer" else ""
        self.note("invoke", function, keys, seek_to_beginning=seek_to_beginning, group=group)
        error = await attempt(self._take(operation.keys, seek_to_beginning=seek_to_beginning))
        outcome = failure_of(error)
        if error is None:
            self.fresh = False
        told = {"error": text_of(error), "group": group}
        self.note(outcome, function, keys, seek_to_beginning=seek_to_beginning, **told)
        return outcome

    def _subscribes(self, seek_to_beginning: bool) -> bool:
        return (self.load.options.subscribe or self.kind == "transformer") and not seek_to_beginning

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
        outcome = failure_of(error)
        value = [["poll", {key: [list(each) for each in records] for key, records in reads.items()}]]
        rebalanced = self.port.take_rebalanced()
        if outcome == "ok":
            self.load.generator.note_polled(reads)
            self.load.polled_count += sum(map(len, reads.values()))
        elif outcome == "fail":
            await self.port.rewind({key: records[0][0] for key, records in reads.items() if records})
        self.note(outcome, "poll", value, rebalanced=rebalanced, error=text_of(error))
        return outcome


# -- outcomes -------------------------------------------------------------------------------------------------------


async def attempt(action: Awaitable[object]) -> Exception | None:
    """Return the failure, certain or not, or None."""
    try:
        await action
    except (Definite, Indefinite) as error:
        return error
    return None


def failure_of(error: Exception | None) -> Outcome:
    """Return the outcome of an operation that failed so, or did not."""
    if error is None:
        return "ok"
    return "fail" if isinstance(error, Definite) else "info"


def text_of(error: Exception | None) -> str | None:
    """Return the message of a failure."""
    return None if error is None else str(error)


def offset_of(result: int | BaseException) -> int | None:
    """Return the offset, None if it is not known; what is neither Definite nor Indefinite is a fault, and raised."""
    if isinstance(result, int):
        return result if result >= 0 else None
    if isinstance(result, Definite | Indefinite):
        return None
    raise result


def outcome_of(results: Sequence[int | BaseException], *, careless: bool) -> Outcome:
    """Return "ok" if all sends were acknowledged, "fail" if none was or will be, else "info"."""
    if all(isinstance(each, Definite) for each in results):
        return "fail"
    if careless or any(isinstance(each, BaseException) for each in results):
        return "info"
    return "ok"


def first_error(results: Sequence[int | BaseException]) -> str | None:
    """Return the message of the first failure."""
    return next((str(each) for each in results if isinstance(each, BaseException)), None)
