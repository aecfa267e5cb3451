"""One scenario for every table: a fault at every call of its writer, and then each row is in the table once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from raftlog.tables.progress import Fenced
from raftlog.tables.table import Table
from raftlog.tables.writer import Unsettled
from tests.tables.in_memory import Fault, Faulty, Killed, Row, append_all, expected

FIRST = {0: 3, 1: 2}
"""The ends of a topic while the faulty writer runs."""
ENDS = {0: 5, 1: 4}
"""The ends afterwards."""


def check_every_fault(
    new: Callable[[], tuple[Callable[[], Table], Callable[[], list[Row]]]],
    faults: Iterator[Fault] | tuple[Fault, ...] = tuple(Fault),
    rows: Callable[[list[Row]], Any] = list,
) -> int:
    """Run the scenario for each fault and call; return how many runs there were.

    `new` makes a place for a table: it returns what opens the table there, and what reads its rows. `rows` makes
    rows of partitions and offsets.
    """
    runs = 0
    for fault in faults:
        for at in count():
            open_table, read = new()
            if not _run(open_table, at, fault, rows):
                break
            append_all(open_table(), ENDS, rows)
            assert sorted(read()) == expected(ENDS), f"{fault.value} call {at}"
            runs += 1
    return runs


def _run(open_table: Callable[[], Table], at: int, fault: Fault, rows: Callable[[list[Row]], Any]) -> bool:
    """Run a writer with a fault at its nth call; return whether there was such a call."""

    def rival() -> None:
        append_all(open_table(), FIRST, rows)

    faulty = Faulty(open_table(), at, fault, rival)
    try:
        append_all(faulty, FIRST, rows)
    except (Killed, Fenced, Unsettled):
        pass
    return faulty.calls > at
