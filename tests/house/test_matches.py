"""House rule: a test recognizes an error by its type, code or fields, and a message by what it names.

`pytest.raises(..., match=)` with English words alone fails when the message is reworded. And it does not check the
setting, number or path that a user needs from the message.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import TESTS, Module, modules_under, nodes_of

NAME = re.compile(
    r"\d"
    r"|\w[.:]\w|_|\w-\w|(^|\W)--?\w"  # log.dirs, a_field, crc32c, --option
    r"|['\"`%/=<]\S"  # a quoted value, %k, a path, name=value
    r"|\b[A-Z]{2,}\b|[a-z][A-Z]"  # TLS, minBytes
    r"|^\^?\w+( \w+)?: "  # "topic: must …", "column key: is …"
)
ESCAPED = re.compile(r"\\([^\w\s])")
SYNTAX = re.compile(r"\(\?\w+\)|\.[*+?]")


def test_messages_are_matched_by_what_they_name() -> None:
    """The name of a setting or type, a number, a placeholder or a quoted value is in each pattern."""
    found = [
        f"{module.name}: {pattern}"
        for module in modules_under(TESTS)
        for pattern in literal_matches(module)
        if has_words_alone(pattern)
    ]
    assert not found, "\n".join(found)


def literal_matches(module: Module) -> Iterator[str]:
    """Yield the patterns of `pytest.raises` without placeholders."""
    for call in nodes_of(module.tree, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "raises":
            for each in call.keywords:
                if each.arg == "match" and isinstance(each.value, ast.Constant):
                    yield str(each.value.value)


def has_words_alone(pattern: str) -> bool:
    """Return whether a regular expression has no name, number or value."""
    return NAME.search(ESCAPED.sub(r"\1", SYNTAX.sub("", pattern))) is None


@pytest.mark.parametrize(
    ("pattern", "is_refused"),
    [
        ("must not be empty", True),
        ("(?i)data.?loss|offset", True),
        ("is gone, so: repeat it", True),
        (r"log\.dirs", False),
        (r"^voter 2: .* is a voter", False),
        ("topic: .*empty", False),
        ("not with --all", False),
        ("raftlog_history is", False),
        ("names '/srv/c'", False),
        ("failOnDataLoss", False),
        ("no listener has TLS", False),
    ],
)
def test_names_numbers_and_values_are_told_from_words(pattern: str, *, is_refused: bool) -> None:
    """The check knows a name by its form."""
    assert has_words_alone(pattern) is is_refused
