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
        self,
        process: int,
        schema: int,
        found: tuple[int, int] | None = None,
        subject: str = "s",
        type: str | None = None,
    ) -> SchemaHistory:
        """Register a schema; `found`: id and version, None without a response."""
        value = ["register", subject, schema]
        self.line(process, "invoke", "register", [value])
        completed = [*value, found] if found else value
        self.line(process, type or ("ok" if found else "info"), "register", [completed])
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


def answered(asked: list[object], *found: object) -> SchemaHistory:
    """A registration, and a response that does not fit it."""
    told = history()
    told.line(BOB, "invoke", "register", [["register", *asked]])
    told.line(BOB, "ok", "register", [["register", *found]])
    return told


def seen_in_part(*rows: Row) -> SchemaHistory:
    """A schema without a response. The first and the last node have it in the end; the second has these rows."""
    told = history().registers(BOB, 8).sees(FIRST, SECOND, f="read-schemas", node=1)
    return told.sees(*rows, f="read-schemas", node=2).sees(FIRST, SECOND, f="read-schemas", node=3)


FIRST = ("s", 1, 1, 7)
SECOND = ("s", 2, 2, 8)


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        (history().ends(FIRST), set()),
        (history().registers(BOB, 7, (1, 1)).sees(("", 0, 1, 7)).sees().ends(FIRST), set()),
        (history().registers(BOB, 7, (1, 1), "t").ends(FIRST, ("t", 1, 1, 7)), set()),
        (history().registers(BOB, 8).ends(FIRST), set()),
        (history().registers(BOB, 8).ends(FIRST, SECOND), set()),
        (history().registers(BOB, 8, type="fail").registers(BOB, 8).ends(FIRST, SECOND), set()),
        (
            history()
            .registers(BOB, 8)
            .registers(ANN, 9, (3, 3))
            .registers(BOB, 8, (2, 2))
            .ends(FIRST, SECOND, ("s", 3, 3, 9)),
            set(),
        ),
        # an id, or a version of a subject, has one schema
        (history().registers(BOB, 8, (1, 2)).ends(FIRST, ("s", 2, 1, 8)), {"id-of-two-schemas"}),
        (history().registers(BOB, 9).sees(("", 0, 1, 9)).ends(FIRST), {"id-of-two-schemas", "lost-schema"}),
        (history().registers(BOB, 8, (2, 1)).ends(FIRST), {"version-of-two-schemas", "lost-schema"}),
        (
            history().registers(BOB, 8).sees(("s", 1, 2, 8)).ends(FIRST),
            {"version-of-two-schemas", "lost-schema"},
        ),
        # a schema has one id, and is one version of a subject
        (history().registers(BOB, 7, (2, 1), "t").ends(FIRST, ("t", 1, 2, 7)), {"schema-of-two-ids"}),
        (history().registers(BOB, 8).ends(FIRST, SECOND, ("s", 3, 2, 8)), {"schema-twice"}),
        (
            history().registers(BOB, 7, (2, 2)).ends(FIRST, ("s", 2, 2, 7)),
            {"schema-of-two-ids", "schema-twice"},
        ),
        (
            history().registers(BOB, 7, (2, 2)).ends(FIRST),
            {"schema-of-two-ids", "schema-twice", "lost-schema"},
        ),
        (history().registers(BOB, 7, (1, 2)).ends(FIRST), {"schema-twice", "lost-schema"}),
        (
            history().registers(BOB, 8).sees(SECOND).registers(BOB, 8, (3, 3)).ends(FIRST, ("s", 3, 3, 8)),
            {"schema-of-two-ids", "schema-twice", "lost-schema", "missing-version"},
        ),
        # what was shown is in every later reading, whether acknowledged or not
        (history().ends(), {"lost-schema"}),
        (history().ends(FIRST, nodes=2).sees(f="read-schemas", node=3), {"lost-schema"}),
        (history().ends(("s", 2, 1, 7)), {"lost-schema", "schema-twice", "missing-version"}),
        (history().registers(BOB, 8).sees(SECOND).ends(FIRST), {"lost-schema"}),
        (history().registers(BOB, 8).sees(("", 0, 2, 8)).ends(FIRST), {"lost-schema"}),
        (seen_in_part(FIRST, SECOND), set()),
        (seen_in_part(FIRST), {"lost-schema"}),
        (seen_in_part(FIRST, ("s", 2, 3, 8)), {"schema-of-two-ids", "lost-schema"}),
        # only what a client registers is there
        (history().ends(FIRST, ("s", 2, 2, 9)), {"unregistered-schema"}),
        (history().ends(FIRST, ("t", 1, 1, 7)), {"unregistered-schema"}),
        (history().sees(("", 0, 99, 55)).ends(FIRST), {"unregistered-schema", "lost-schema"}),
        (history().sees(SECOND).registers(BOB, 8).ends(FIRST, SECOND), {"unregistered-schema"}),
        (history().registers(BOB, 8, type="fail").ends(FIRST, SECOND), {"unregistered-schema"}),
        # ids and versions grow, without gaps in a subject
        (history().registers(BOB, 8).ends(FIRST, ("s", 9, 2, 8)), {"missing-version"}),
        (
            SchemaHistory()
            .registers(ANN, 7, (1, 2))
            .registers(BOB, 8, (2, 1))
            .ends(("s", 2, 1, 7), ("s", 1, 2, 8)),
            {"schema-order"},
        ),
        (
            SchemaHistory()
            .registers(ANN, 7, (2, 1))
            .registers(BOB, 8, (1, 2))
            .ends(("s", 1, 2, 7), ("s", 2, 1, 8)),
            {"schema-order"},
        ),
        # each node is read once all is acknowledged
        (history(), {"unread-schemas"}),
        (history().sees(FIRST, node=2).ends(FIRST, nodes=1), {"unread-schemas"}),
        (history().ends(FIRST).registers(BOB, 8, (2, 2)), {"unread-schemas"}),
        # a response has an id, a version, and the schema of its request
        (answered(["s", 7], "s", 7).ends(FIRST), {"unusable-response"}),
        (
            answered(["s", 8], "s", 8, (0, 2)).ends(FIRST, ("s", 2, 0, 8)),
            {"unusable-response", "schema-order"},
        ),
        (
            answered(["s", 8], "t", 9, (5, 1)).ends(FIRST, ("t", 1, 5, 9)),
            {"unusable-response", "unregistered-schema"},
        ),
    ],
)
def test_a_history_breaks_the_laws_that_it_shows(told: SchemaHistory, broken: set[str]):
    """Lost responses may be there or not. A look-up may miss a schema, and never contradicts."""
    assert told.broken() == broken


def test_the_page_shows_the_registrations_and_rows_of_a_finding():
    """A row is a version and its schema; of a long reading, the rows of the schema that the finding is about."""
    many = [("s", number, number, 100 + number) for number in range(3, 60)]
    told = history().registers(BOB, 7, (2, 2))
    for _, _, _, schema in many:
        told.registers(BOB, schema)
    lines = judge(Header(), told.ends(FIRST, *many).ops).text()
    assert "s ← 7 as id 2, version 2" in lines
    assert "node 1 → s 1:7(id 1) (58 schemas)" in lines
    assert "schema 7 as version 1, and then schema 7 as version 2" in lines


@pytest.mark.parametrize(("type", "rows"), [("ok", []), ("info", [[FIRST]])])
def test_a_reading_in_part_does_not_count(type: str, rows: list[object]):
    """A node counts as read once all its rows are in the history."""
    told = history()
    told.line(READER, "invoke", "read-schemas", [["read-schemas", 1]])
    told.line(READER, type, "read-schemas", [["read-schemas", 1, *rows]])
    assert "unread-schemas" in told.broken()


def test_a_registration_during_a_reading_need_not_be_in_it():
    """The reading may have passed its subject."""
    told = history()
    told.line(READER, "invoke", "read-schemas", [["read-schemas", 1]])
    told.registers(BOB, 8, (2, 2))
    told.line(READER, "ok", "read-schemas", [["read-schemas", 1, [FIRST]]])
    assert told.broken() == {"unread-schemas"}
    assert told.ends(FIRST).broken() == {"lost-schema"}


def test_a_registry_that_never_answers_shows_nothing():
    """A run in which each registration fails has tested none."""
    assert SchemaHistory().registers(ANN, 7).broken() == {"never-ok", "unread-schemas"}


@pytest.mark.parametrize(
    "value",
    [["register", "s"], ["register", "s", "x"], ["register", "s", 1, [1]], ["look-up", 1, [["s", 1]]]],
)
def test_a_line_that_is_no_operation_of_a_registry_is_refused(value: list[object]):
    """`raftlog check` takes files of anybody."""
    line = {"index": 0, "time_ns": 0, "process": 1, "type": "ok", "f": value[0], "value": [value]}
    with pytest.raises(HistoryError):
        decode_op(json.dumps(line), 1)
