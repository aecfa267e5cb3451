"""The host's book of one disk: the histories of the loads, the acknowledged operations, and the guests' findings.

It outlives every boot, so it is the yardstick of the next boot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raftlog_chaos.checkers import judge
from raftlog_chaos.checkers.verdict import Verdict
from raftlog_chaos.history import Header, HistoryFile, Op, StoredHistory
from raftlog_chaos.power_cut.loads import LOADS, QUEUE_TERMS
from raftlog_chaos.power_cut.words import Changed, Committed, Found, LoadState, Logged, Reached, Said, Word
from raftlog_chaos.runs.landmarks import violations

NS_PER_S: Final = 1_000_000_000
EXPECTED: Final = ()
"""Error events that a power cut makes nodes log."""
GAP_NS: Final = NS_PER_S
"""Between the last operation before a cut and the first operation after it, on the clock of the histories."""


class Book:
    """Takes every message of a guest."""

    def __init__(self, folder: Path, *, file_system: str, seed: int) -> None:
        self._folder = folder
        self.loads = {name: LoadState() for name in LOADS}
        self.committed: dict[str, dict[str, int]] = {}
        self.found: list[str] = []
        """Faults that guests found since the last `take_found`."""
        self.acked = self.read = self.commits = 0
        self.last_ns = 0
        self.changed = 0
        self._log = (folder / "nodes.log").open("a")
        self._histories = {
            name: HistoryFile(
                self._path(name),
                Header(
                    place=f"a guest on {file_system}",
                    workload=name,
                    seed=seed,
                    queue=QUEUE_TERMS if name == "queue" else None,
                ),
            )
            for name in LOADS
        }

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def take(self, word: Word) -> None:
        """Take note of a word."""
        if isinstance(word, Said):
            self._histories[word.load].keep(word.op)
            self._note(self.loads[word.load], word.op)
        elif isinstance(word, Reached):
            self._log.write(f"-- {word.phase} after {word.seconds:.1f} s\n")
            self._log.flush()
        elif isinstance(word, Committed):
            self.committed.setdefault(word.group, {}).update(word.offsets)
            self.commits += 1
        elif isinstance(word, Changed):
            self.changed = max(self.changed, word.number)
        elif isinstance(word, Found):
            self.found.append(word.text)
        elif isinstance(word, Logged):
            self._log.write(f"node {word.node_id} {word.line}\n")
            self.found += violations(word.node_id, [word.line], EXPECTED)

    def _note(self, state: LoadState, op: Op) -> None:
        state.lines = max(state.lines, op.index + 1)
        state.processes = max(state.processes, op.process)
        self.last_ns = max(self.last_ns, op.time_ns)
        if op.f not in ("send", "txn", "poll"):
            return
        for micro in op.value or ():
            if micro[0] == "send":
                self._note_send(state, op, micro[1], micro[2])
            elif op.type == "ok" and len(micro) > 1:
                self.read += sum(len(records) for records in micro[1].values())

    def _note_send(self, state: LoadState, op: Op, key: str, what: int | list[int | None]) -> None:
        offset, value = what if isinstance(what, list) else (None, what)
        assert value is not None
        state.written[key] = max(state.written.get(key, 0), value)
        # if an operation failed in part, a send's own answer counts; a transaction counts as a whole
        if offset is not None and (op.type == "ok" or (op.f == "send" and op.type == "info")):
            state.acked[key] = max(state.acked.get(key, -1), offset)
            self.acked += 1

    def take_found(self) -> list[str]:
        """Return what guests found wrong since this was asked last."""
        found, self.found = self.found, []
        return found

    def judge(self) -> dict[str, Verdict]:
        """Have the checkers judge all histories as they are now, as far as there is anything in them."""
        verdicts = {}
        for name, history in self._histories.items():
            history.flush()
            if self.loads[name].acked:
                stored = StoredHistory(self._path(name))
                verdicts[name] = judge(stored.header, stored)
        return verdicts

    def close(self) -> None:
        """Close the histories' files."""
        self._log.close()
        for each in self._histories.values():
            each.close()
