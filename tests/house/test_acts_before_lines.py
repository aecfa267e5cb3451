"""House rule: a node acts before it writes the line about it, so that no trouble with the log keeps it from acting.

`raftlog.base.log` never raises. This is the second net: where a line is written in a block of statements, no act
follows it there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain, pairwise

from tests.house.source import PACKAGE, modules_under, nodes_of

ROOMS_LEFT_OUT = ("cli", "pipeline", "testing")
"""Commands, jobs and tests: they print for their user."""

LEVELS = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
WITH_BLOCKS: tuple[type[ast.AST], ...] = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.ExceptHandler,
    ast.match_case,
)
"""Nodes that hold statements."""
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Pass)

BEFORE_A_WAIT = {
    "node_stopping": "an operator has to see that it is stopping while it does, which may take a minute",
    "dead_letters_failed": "the next attempt may be long after",
    "broker_unregistered": "the broker waits for ever from then on",
    "compaction_found_damage": "the read that follows says what it found",
}
"""Events that are written before an act, with the reason."""


def is_line(statement: ast.stmt) -> bool:
    """Whether a statement writes a line of the log."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    called = statement.value.func
    if not (isinstance(called, ast.Attribute) and called.attr in LEVELS):
        return False
    return ast.unparse(called.value).rpartition(".")[2].strip("_") in {"log", "limited"}


def event_of(statement: ast.stmt) -> str:
    """Return the event that a line is about."""
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return ast.unparse(statement.value.args[0]).strip("'\"")


def acts_after_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line number, event) of each line of the log after which its block acts."""
    for node in chain.from_iterable(nodes_of(tree, kind) for kind in WITH_BLOCKS):
        for field in ("body", "orelse", "finalbody"):
            for line, following in pairwise(getattr(node, field, ())):
                if is_line(line) and not is_line(following) and not isinstance(following, LEAVES):
                    yield line.lineno, event_of(line)


def test_acts_come_before_their_lines() -> None:
    """A last net that logs first is none where the log is in trouble."""
    found = {
        f"{module.name}:{line}": event
        for module in modules_under(PACKAGE)
        if module.room not in ROOMS_LEFT_OUT
        for line, event in acts_after_lines(module.tree)
    }
    assert {where: event for where, event in found.items() if event not in BEFORE_A_WAIT} == {}
    assert set(found.values()) == set(BEFORE_A_WAIT), "an exception that is not needed any more"


def test_a_line_before_an_act_is_found() -> None:
    """In a function and in the handler of an exception alike."""
    source = """
def crash(self):
    try:
        work()
    except Exception:
        self._log.exception("crashed")
        self.close()
    log.info("said")
    return 1
"""
    assert list(acts_after_lines(ast.parse(source))) == [(6, "crashed")]
