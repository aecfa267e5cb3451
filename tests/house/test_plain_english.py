"""Docstrings and comments are ordinary English: they name their subjects, and sentences are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import (
    TESTS,
    Function,
    Module,
    every_module,
    functions_of,
    modules_under,
    nodes_of,
)
from tests.house.wording import Rates, count_words, prose_of, rates_by_room, rates_of

CEILING = Rates(who=0.6, tell=0.1, one=1.5, nobody=0.5, those=0.4)
"""The rates per 1,000 words, below twice the rates of trio, structlog, aiokafka, anyio and aiohttp. They only get
lower.
"""
LONG_WORDS = 25
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

NO_VERB = re.compile(
    r"(A|After|All|An|As|Both|By|Each|Every|Everything|For|From|How|If|In|It|Its|Like|More|Never|No|None|Of|On|One|Only"
    r"|Other|Some|Sometimes|That|The|There|These|They|This|Those|To|Two|Under|Until|What|When|Where|Whether|Which|While"
    r"|Who|Why|With|Without|(?!Bring|Ping|Feed|Need).*([^s]s|ing|ed))"
)
"""Articles, conjunctions and the like; plurals, the third person and participles by their endings."""
IMPERATIVE = re.compile("[A-Z][a-z]+(-[a-z]+)?")
CLAUSE = re.compile(r"(What|How|Those|That|Where|Whether|Who|When|Which|Why|If|(All|Everything) that)\b")
CLAIMS = (
    "chaos/raftlog_chaos/attacks/",
    "chaos/raftlog_chaos/conformance/subjects/",
    "chaos/raftlog_chaos/scenarios/",
)
"""Functions there are attacks, histories and scenarios: like a test, each states a claim, which is shown to users."""


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
    """A reader should not need to read a sentence twice, nor the claim of a test."""
    modules = (*every_module(), *modules_under(TESTS))
    found = [f"{each.name}: {sentence}" for each in modules for sentence in long_sentences_in(each)]
    assert not found, "\n".join(found)


def test_public_functions_begin_with_a_verb() -> None:
    """A docstring says what a call does: "Return the offset", "Raise X if". A property may be described by a noun."""
    found = [
        function.label
        for module in every_module()
        for function in functions_of(module)
        if function.public and not is_property(function) and not states_a_claim(function)
        if has_no_verb(ast.get_docstring(function.node) or "Return")
    ]
    assert not found, "\n".join(found)


def test_modules_and_classes_begin_with_no_clause() -> None:
    """ "Which segments a log may delete" makes its reader wait for a verb: a docstring says what a thing is or does."""
    found = [
        name
        for module in every_module()
        for name, node in ((module.name, module.tree), *classes_of(module))
        if CLAUSE.match(ast.get_docstring(node) or "")
    ]
    assert not found, "\n".join(found)


def classes_of(module: Module) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of a module, each with its name as in lists of exceptions."""
    return ((f"{module.name}:{each.name}", each) for each in nodes_of(module.tree, ast.ClassDef))


def has_no_verb(docstring: str) -> bool:
    """Return whether the first word of a docstring cannot be an imperative: also a value, a code, or "Leader:"."""
    first = docstring.split(maxsplit=1)[0].rstrip(",;.")
    return bool(NO_VERB.fullmatch(first)) or not IMPERATIVE.fullmatch(first)


def is_property(function: Function) -> bool:
    """Return whether a function is read like an attribute."""
    return any("property" in ast.unparse(each) for each in function.node.decorator_list)


def states_a_claim(function: Function) -> bool:
    """Return whether a function is a case by itself: its docstring says what must hold."""
    return not function.in_class and function.label.startswith(CLAIMS)


@pytest.mark.parametrize(
    ("docstring", "is_refused"),
    [
        ("Return the offset.", False),
        ("Stop, and wait.", False),
        ("Pass a frame on.", False),
        ("Bring it back.", False),
        ("Feed every record.", False),
        ("Re-evaluate the ISR.", False),
        ("The offset.", True),
        ("Whether it runs.", True),
        ("Offsets by partition.", True),
        ("Raises KafkaError.", True),
        ("Ascending.", True),
        ("Called once.", True),
        ("Leader: shrink the ISR.", True),
        ("SIGTERM; returns at once.", True),
        ("OffsetFetch of a group.", True),
        ("`None` if it is gone.", True),
        ("409 if it is gone.", True),
        ("Kafka's offset.", True),
    ],
)
def test_nouns_articles_and_values_are_no_verbs(docstring: str, *, is_refused: bool) -> None:
    """The check knows a noun by its form, since it has no dictionary."""
    assert has_no_verb(docstring) is is_refused
