"""The second pass: each completion with what it read and sent, in terms of the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raftlog_chaos.checkers.evidence import DATA, Evidence, KeyLog
from raftlog_chaos.history import Op


class Step(NamedTuple):
    """One line. `reads` and `sends` hold values' numbers by key, in the order of the operation; none if it began."""

    op: Op
    position: int
    number: int
    reads: dict[KeyLog, list[int]]
    sends: dict[KeyLog, list[int]]


NOTHING: dict[KeyLog, list[int]] = {}


def steps(history: Iterable[Op], evidence: Evidence) -> Iterator[Step]:
    """Yield every line of the history that the evidence was taken from."""
    numbers = evidence.op_of_line
    for position, op in enumerate(history):
        if op.type == "invoke" or op.f not in DATA or not op.value:
            yield Step(op, position, numbers[position], NOTHING, NOTHING)
        else:
            yield Step(op, position, numbers[position], *_resolve(op, evidence.keys))


def _resolve(op: Op, keys: dict[str, KeyLog]) -> tuple[dict[KeyLog, list[int]], dict[KeyLog, list[int]]]:
    reads: dict[KeyLog, list[int]] = {}
    sends: dict[KeyLog, list[int]] = {}
    for micro in op.value or ():
        if micro[0] == "send":
            log, what = keys[micro[1]], micro[2]
            value = what[1] if isinstance(what, list | tuple) else what
            sends.setdefault(log, []).append(log.numbers[value])
        elif len(micro) > 1 and micro[1]:
            for name, pairs in micro[1].items():
                if pairs:
                    log = keys[name]
                    numbers = log.numbers
                    values = [numbers[value] for _, value in pairs]
                    reads[log] = reads[log] + values if log in reads else values
    return reads, sends
