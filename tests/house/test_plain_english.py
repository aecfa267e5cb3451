"""Docstrings are ordinary English: the subject comes first, and sentences are short.

A sentence that begins with a clause ("Who is silent is fenced") makes its reader wait for the subject.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.source import TESTS, Module, every_module, modules_under, nodes_of

CLAUSE = re.compile(r"(Who|What|Whoever|Whatever|Whose|That|Where)\b")
LONG_WORDS = 30
LONG_SENTENCES = 64
"""Sentences of more words in the docstrings of both packages, of nine thousand. The number may only shrink."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def clauses_in(module: Module) -> Iterator[str]:
    """Yield the sentences of a module's docstrings, and of those of its constants, that begin with a clause."""
    for text in docstrings_of(module.tree):
        for sentence in SENTENCE_END.split(text.strip()):
            if CLAUSE.match(sentence) and not sentence.endswith("?"):
                yield sentence


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Yield every string that stands alone as a statement."""
    for node in nodes_of(tree, ast.Expr):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def test_no_sentence_begins_with_a_clause() -> None:
    """A reader who does not know the project understands a sentence at first reading."""
    modules = (*every_module(), *modules_under(TESTS))
    found = [f"{each.name}: {sentence}" for each in modules for sentence in clauses_in(each)]
    assert not found, "\n".join(found)


def long_sentences_in(module: Module) -> Iterator[str]:
    """Yield the sentences of more than `LONG_WORDS` words; lists, tables and code are none."""
    for text in docstrings_of(module.tree):
        for paragraph in re.split(r"\n\s*\n", text):
            if not re.search(r"^ {4,}\S.*=|^\s*[-|*] |:$", paragraph, re.MULTILINE):
                sentences = SENTENCE_END.split(" ".join(paragraph.split()))
                yield from (each for each in sentences if len(each.split()) > LONG_WORDS)


def test_long_sentences_get_fewer() -> None:
    """A reader should not need to read a sentence twice."""
    found = [f"{each.name}: {sentence}" for each in every_module() for sentence in long_sentences_in(each)]
    assert len(found) <= LONG_SENTENCES, "\n".join(found)


def test_a_sentence_that_begins_with_a_clause_is_seen() -> None:
    """A question is none, and neither is a word that only begins like one."""
    tree = ast.parse('"""Return it. Who asks waits. Where is it? Whatsoever."""')
    assert list(clauses_in(Module("x.py", "x", "", tree))) == ["Who asks waits."]
