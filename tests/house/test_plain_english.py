"""Docstrings and comments are ordinary English: they name their subjects, and sentences are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import TESTS, Module, every_module, modules_under
from tests.house.wording import Rates, count_words, prose_of, rates_by_room, rates_of

CEILING = Rates(who=0.6, tell=0.1, one=1.5, nobody=0.5, those=0.4)
"""The rates per 1,000 words, below twice the rates of trio, structlog, aiokafka, anyio and aiohttp. They only get
lower.
"""
LONG_WORDS = 25
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def test_prose_names_its_subjects() -> None:
    """The rates of `who`, `tell`, `one`, `nobody` and `those that` stay below a ceiling in each room, also of tests."""
    found = [
        f"{room}: {count} {family} in 1,000 words, allowed are {allowed}"
        for room, rates in rates_by_room((*every_module(), *modules_under(TESTS))).items()
        for family, count, allowed in zip(Rates._fields, rates, CEILING, strict=True)
        if count > allowed
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("The client who asks.", "who"),
        ("It is told so.", "tell"),
        ("The one of b, or ones (like one).", "one one one"),
        ("One broker, one more offset, one by one, `one.`", ""),
        ("Nobody and somebody see nothing.", "nobody nobody nobody"),
        ("Those that, those of, those\n    in, those here.", "those those those"),
    ],
)
def test_each_family_is_counted(text: str, family: str) -> None:
    """A pronoun counts, also across lines; a number before a noun, and code in backticks, do not."""
    counts = count_words([text])
    del counts["all"]
    assert sorted(counts.elements()) == family.split()


def test_docstrings_of_constants_and_comments_are_counted() -> None:
    """Pragmas are no prose, and a room's rate is rounded up."""
    text = '"""One."""\nA = 1  # noqa: S1\n"""Who."""\n# It tells\n# those of b.\n'
    module = Module("x.py", "x", text, ast.parse(text))
    assert list(prose_of(module)) == ["One.", "Who.", "It tells those of b."]
    assert rates_of({"all": 3_000, "who": 1}) == Rates(0.4, 0, 0, 0, 0)


def long_sentences_in(module: Module) -> Iterator[str]:
    """Yield the sentences of more than `LONG_WORDS` words; lists, tables and code are none."""
    for text in prose_of(module):
        for paragraph in re.split(r"\n\s*\n", text):
            if not re.search(r"^ {4,}(\S.*=|def )|^\s*[-|*\x08] ?|:$", paragraph, re.MULTILINE):
                sentences = SENTENCE_END.split(" ".join(paragraph.split()))
                yield from (each for each in sentences if len(each.split()) > LONG_WORDS)


def test_no_sentence_is_long() -> None:
    """A reader should not need to read a sentence twice."""
    found = [f"{each.name}: {sentence}" for each in every_module() for sentence in long_sentences_in(each)]
    assert not found, "\n".join(found)
