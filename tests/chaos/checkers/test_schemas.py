"""The laws of a schema registry: each has a history that breaks it, beside a history that does not."""

from __future__ import annotations

import json

import pytest

from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, HistoryError, decode_op
from tests.chaos.checkers.told_history import ToldHistory

ANN, BOB, READER = 1, 2, 9
Row = tuple[str, int, int, int]
"""Subject, version, id and schema."""


class SchemaHistory(ToldHistory):
    """Clients of a registry, and the last reading of its nodes."""

    def registers(
        self, process: int, schema: int, found: tuple[int, int] | None = None, subject: str = "s"
    ) -> SchemaHistory:
        """Register a schema; `found`: id and version, None without a response."""
        value = ["register", subject, schema]
        self.line(process, "invoke", "register", [value])
        self.line(process, "ok" if found else "info", "register", [[*value, found] if found else value])
        return self

    def sees(self, *rows: Row, f: str = "look-up", node: int = 1) -> SchemaHistory:
        self.line(READER, "invoke", f, [[f, node]])
        self.line(READER, "ok", f, [[f, node, rows]])
        return self

    def ends(self, *rows: Row, nodes: int = 3) -> SchemaHistory:
        """Each node has these rows at the end."""
        for node in range(1, nodes + 1):
            self.sees(*rows, f="read-schemas", node=node)
        return self

    def broken(self) -> set[str]:
        return set(judge(Header(), self.ops).anomalies)


def history() -> SchemaHistory:
    """A schema 7 that was registered as id 1, version 1."""
    return SchemaHistory().registers(ANN, 7, (1, 1))


FIRST = ("s", 1, 1, 7)


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        (history().ends(FIRST), set()),
        (history().registers(BOB, 7, (1, 1)).sees(("", 0, 1, 7)).sees().ends(FIRST), set()),
        (history().registers(BOB, 7, (1, 1), "t").ends(FIRST, ("t", 1, 1, 7)), set()),
        (history().registers(BOB, 8).ends(FIRST), set()),
        (history().registers(BOB, 8).ends(FIRST, ("s", 2, 2, 8)), set()),
        (history().registers(BOB, 8, (1, 2)).ends(FIRST, ("s", 2, 1, 8)), {"id-of-two-schemas"}),
        (history().sees(("", 0, 1, 9)).ends(FIRST), {"id-of-two-schemas"}),
        (history().registers(BOB, 8, (2, 1)).ends(FIRST), {"version-of-two-schemas", "lost-schema"}),
        (history().registers(BOB, 8).sees(("s", 1, 2, 8)).ends(FIRST), {"version-of-two-schemas"}),
        (history().ends(), {"lost-schema"}),
        (history().ends(FIRST, nodes=2).sees(f="read-schemas", node=3), {"lost-schema"}),
        (history().ends(("s", 2, 1, 7)), {"lost-schema"}),
        (history().registers(BOB, 8).ends(FIRST, ("s", 2, 2, 8), ("s", 3, 2, 8)), {"schema-twice"}),
        (history().ends(FIRST, ("s", 2, 2, 9)), {"unregistered-schema"}),
        (history().ends(FIRST, ("t", 1, 1, 7)), {"unregistered-schema"}),
    ],
)
def test_a_history_breaks_the_laws_that_it_shows(told: SchemaHistory, broken: set[str]):
    """Lost responses may be there or not. A look-up may find nothing yet, and never something else."""
    assert told.broken() == broken


def test_a_registration_during_a_reading_need_not_be_in_it():
    """The reading may have passed its subject."""
    told = history()
    told.line(READER, "invoke", "read-schemas", [["read-schemas", 1]])
    told.registers(BOB, 8, (2, 2))
    told.line(READER, "ok", "read-schemas", [["read-schemas", 1, [FIRST]]])
    assert told.broken() == set()
    assert told.ends(FIRST).broken() == {"lost-schema"}


def test_a_registry_that_never_answers_shows_nothing():
    """A run in which each registration fails has tested none."""
    assert SchemaHistory().registers(ANN, 7).broken() == {"never-ok"}


@pytest.mark.parametrize(
    "value",
    [["register", "s"], ["register", "s", "x"], ["register", "s", 1, [1]], ["look-up", 1, [["s", 1]]]],
)
def test_a_line_that_is_no_operation_of_a_registry_is_refused(value: list[object]):
    """`raftlog check` takes files of anybody."""
    line = {"index": 0, "time_ns": 0, "process": 1, "type": "ok", "f": value[0], "value": [value]}
    with pytest.raises(HistoryError):
        decode_op(json.dumps(line), 1)
