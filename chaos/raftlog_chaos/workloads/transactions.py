"""One transaction of one client, from its invocation in the history to its completion, and all ways to end it.

The outcome is certain more often than of a plain send: only its own client can request the commit. So a transaction
that was given up, or lost its id before the request, is a `fail`, whatever the client got. If any of its records is
ever read, the checkers call it G1a. Only a commit without an answer is `info`.

A transformer polls before its transaction is invoked, since an invocation names all that it will write. The polled
records belong to the transaction all the same: the group's offsets are committed with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from raftlog_chaos.history import Outcome
from raftlog_chaos.workloads.generator import Ending, Transform, Txn
from raftlog_chaos.workloads.port import Damaged, Definite, Indefinite, TransactionalPort

if TYPE_CHECKING:
    from raftlog_chaos.workloads.process import Process

Reads = dict[str, list[tuple[int, int]]]
NEW_ID_RATE = 0.5
"""Share of clients that die in a transaction; the others' successors take their id, and end the transaction with it."""


async def write_and_poll(process: Process, operation: Txn) -> Outcome:
    """Carry out writes and polls in one transaction."""
    plan: list[list[Any]] = [["poll"] if step is None else ["send", *step] for step in operation.steps]
    return await _Transaction(process, plan, operation.ending).run()


async def transform(process: Process, operation: Transform) -> Outcome:
    """Poll, and write as many records as came, with their offsets. An empty poll neither writes nor records."""
    port = _port_of(process)
    try:
        reads = await port.poll()
    except (Definite, Indefinite):
        return "info"
    except Damaged as failure:
        process.load.faults.append(str(failure))
        return "info"
    if port.take_rebalanced():  # some of it may have another owner by now
        await port.poll_again()
        return "ok"
    sends = [process.load.generator.derive() for records in reads.values() for _ in records]
    if not sends:
        return "ok"
    plan: list[list[Any]] = [["poll"], *(["send", *each] for each in sends)]
    return await _Transaction(process, plan, operation.ending, polled=reads).run()


def _port_of(process: Process) -> TransactionalPort:
    return cast(TransactionalPort, process.port)


class _Transaction:
    """`plan` holds micro-operations as they are invoked. `polled`: what was polled for it already."""

    def __init__(
        self, process: Process, plan: list[list[Any]], ending: Ending, *, polled: Reads | None = None
    ) -> None:
        self._process = process
        self._load = process.load
        self._port = _port_of(process)
        self._plan = plan
        self._ending = ending
        self._polled = polled
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._reads: dict[int, Reads] = {}
        self._error: str | None = None

    async def run(self) -> Outcome:
        """Carry it out and return what carrying it out means for the process: of `info` it must not go on."""
        process = self._process
        group = process.group if self._polled is not None else ""
        process.note("invoke", "txn", self._plan, group=group)
        outcome: Outcome = "fail"
        successor: Process | None = None
        if await self._begun():
            outcome, successor = await self._ended()
        value = [self._completed(at, micro) for at, micro in enumerate(self._plan)]
        process.note(outcome, "txn", value, error=self._error, group=group)
        if outcome == "ok":
            self._count()
        else:
            await self._go_back()
        if successor is not None:
            await process.give_way(successor)
        return "info" if self._ending == "leave" else outcome

    # -- its course ---------------------------------------------------------------------------------------------

    async def _begun(self) -> bool:
        """Begin it and take its steps. Whether all of them succeeded."""
        keys = [micro[1] for micro in self._plan if micro[0] == "send"]
        try:
            await self._load.provide_topics(self._port, keys)
            await self._port.take_id(self._process.identity)
            await self._port.begin()
            late = self._late()
            for at, micro in enumerate(self._plan):
                if at != late:
                    await self._take_step(at, micro)
            await asyncio.gather(*self._answers.values())
        except (Definite, Indefinite) as error:
            self._error = str(error)
        except Damaged as failure:
            self._load.faults.append(str(failure))
            self._error = str(failure)
        if self._error is not None:
            await asyncio.gather(*self._answers.values(), return_exceptions=True)
            await self._port.abort_transaction()
        return self._error is None

    def _late(self) -> int | None:
        """Return a record that the client sends after another client took its id, or None."""
        sends = [at for at, micro in enumerate(self._plan) if micro[0] == "send"]
        return sends[-1] if self._ending == "usurp" and len(sends) > 1 else None

    async def _take_step(self, at: int, micro: list[Any]) -> None:
        if micro[0] == "send":
            self._answers[at] = self._port.send(micro[1], micro[2])
        elif self._polled is not None:
            self._reads[at] = self._polled
        else:
            self._reads[at] = await self._port.poll()

    async def _ended(self) -> tuple[Outcome, Process | None]:
        if self._ending == "leave":
            await self._leave()
        elif self._ending == "usurp" and self._answers:
            return "fail", await self._be_fenced()
        elif self._ending != "commit":
            self._error = "aborted"
            await self._port.abort_transaction()
        else:
            return await self._commit(), None
        return "fail", None

    async def _commit(self) -> Outcome:
        try:
            await self._port.commit_transaction()
        except Definite as error:
            self._error = str(error)
            await self._port.abort_transaction()
            return "fail"
        except Indefinite as error:
            self._error = str(error)
            return "info"
        return "ok"

    async def _leave(self) -> None:
        """Die in the middle. Either the next process takes the id, or the coordinator times the transaction out."""
        self._error = "left open"
        await self._port.abandon()
        if self._load.chance.random() < NEW_ID_RATE:
            self._process.new_identity()

    async def _be_fenced(self) -> Process | None:
        """Let another client take the id, then write and commit as before: none of it may ever be visible."""
        self._error = "fenced"
        successor = self._process.another()
        try:
            await _port_of(successor).take_id(self._process.identity)
        except Definite as error:  # the owner of the id is unknown
            self._error = str(error)
            await successor.port.close()
            await self._port.abort_transaction()
            return None
        late = self._late()
        if late is not None:
            await self._take_step(late, self._plan[late])
            await asyncio.gather(self._answers[late], return_exceptions=True)
        try:
            await self._port.commit_transaction()
        except (Definite, Indefinite):
            return successor
        self._error = "fenced, and yet its commit was acknowledged"
        self._load.faults.append(f"{self._process.identity}: {self._error}")
        return successor

    # -- what came of it ----------------------------------------------------------------------------------------

    def _completed(self, at: int, micro: list[Any]) -> list[Any]:
        if micro[0] == "send":
            return ["send", micro[1], [_offset_of(self._answers.get(at)), micro[2]]]
        reads = self._reads.get(at, {})
        return ["poll", {key: [list(each) for each in records] for key, records in reads.items()}]

    def _count(self) -> None:
        load = self._load
        for at, answer in self._answers.items():
            offset = _offset_of(answer)
            if offset is not None:
                load.generator.note_acked(self._plan[at][1], offset)
                load.acked_count += 1
        for reads in self._reads.values():
            load.generator.note_polled(reads)
            load.polled_count += sum(map(len, reads.values()))

    async def _go_back(self) -> None:
        """The polled records count as not polled."""
        if self._port.spent or self._ending == "leave":
            return
        if self._polled is not None:
            await self._port.poll_again()
            return
        first: dict[str, int] = {}
        for reads in self._reads.values():
            for key, records in reads.items():
                first.setdefault(key, records[0][0])
        await self._port.rewind(first)


def _offset_of(answer: asyncio.Future[int] | None) -> int | None:
    if answer is None or not answer.done() or answer.exception() is not None or answer.result() < 0:
        return None
    return answer.result()
