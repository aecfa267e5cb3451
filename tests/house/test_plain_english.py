"""Docstrings are ordinary English: the subject comes first. Old sentences that do not keep to it are counted.

A sentence that begins with a clause ("Who is silent is fenced") makes its reader wait for the subject. The counts below
only shrink: a test fails as well when a count is too high by now.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.house.source import TESTS, Module, every_module, modules_under

CLAUSE = re.compile(r"(Who|What|Whoever|Whatever|Whose|That|Where)\b")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

COUNTS: dict[str, int] = {
    "admin": 56,
    "base": 29,
    "broker": 92,
    "cli": 39,
    "control": 1,
    "controller": 16,
    "coordinator": 114,
    "facts": 1,
    "faults": 8,
    "metadata": 9,
    "node": 1,
    "pipeline": 37,
    "process": 3,
    "protocol": 14,
    "quorum": 15,
    "raftlog_chaos": 173,
    "records": 8,
    "replication": 12,
    "storage": 30,
    "testing": 11,
}
"""Sentences that begin with a clause, by room; a room that is not named has none."""


def clauses_in(module: Module) -> Iterator[str]:
    """Yield the sentences of a module's docstrings, and of those of its constants, that begin with a clause."""
    for text in docstrings_of(module.tree):
        for sentence in SENTENCE_END.split(text.strip()):
            if CLAUSE.match(sentence) and not sentence.endswith("?"):
                yield sentence


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Yield every string that stands alone as a statement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def test_sentences_that_begin_with_a_clause_become_fewer() -> None:
    """A reader who does not know the project understands a sentence at first reading."""
    modules = (*every_module(), *modules_under(TESTS))
    found = Counter(_room(each) for each in modules for _ in clauses_in(each))
    assert dict(found) == COUNTS


def _room(module: Module) -> str:
    return "tests" if module.name.startswith("tests/") else module.room


def test_a_sentence_that_begins_with_a_clause_is_seen() -> None:
    """A question is none, and neither is a word that only begins like one."""
    tree = ast.parse('"""Return it. Who asks waits. Where is it? Whatsoever."""')
    assert list(clauses_in(Module("x.py", "x", "", tree))) == ["Who asks waits."]
