r"""House rule: the end of a text is `\Z` in a pattern, or the text is matched with `fullmatch`.

`$` also matches before a newline at the end. A text that is checked by it may have that newline, which its reader does
not expect. With MULTILINE, `$` is the end of each line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import every_module, nodes_of

ESCAPED_OR_CLASS = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
MULTILINE = re.compile(r"\(\?[a-z]*m")


def test_patterns_end_at_the_end_of_the_text() -> None:
    r"""`\Z` is used in place of `$`."""
    found = [
        f"{module.name}:{call.lineno}: {pattern}"
        for module in every_module()
        for call in nodes_of(module.tree, ast.Call)
        for pattern in patterns_of(call)
        if has_loose_end(pattern)
    ]
    assert not found, "\n".join(found)


def patterns_of(call: ast.Call) -> Iterator[str]:
    """Yield the patterns among the arguments of a call, unless they match line by line."""
    function = call.func
    is_of_re = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "re"
    named = [each.value for each in call.keywords if each.arg == "pattern"]
    given = [*named, *(call.args[:1] if is_of_re else [])]
    if given and any("MULTILINE" in ast.unparse(each) for each in call.args[1:]):
        return
    for each in given:
        if isinstance(each, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in each.values)
        elif isinstance(each, ast.Constant):
            yield each.value.decode("latin-1") if isinstance(each.value, bytes) else str(each.value)


def has_loose_end(pattern: str) -> bool:
    """Return whether a pattern has `$` as the end of the text."""
    return MULTILINE.search(pattern) is None and "$" in ESCAPED_OR_CLASS.sub("", pattern)


@pytest.mark.parametrize(
    ("call", "is_refused"),
    [
        ('re.compile("^a$")', True),
        ('re.search(f"{a}(,|$)", text)', True),
        ('Meta(pattern="^[0-9]+$")', True),
        (r're.compile(r"^a\Z")', False),
        (r're.compile(r"\$(\d+)")', False),
        ('re.compile("[$a]")', False),
        ('re.compile("(?im)a$")', False),
        ('re.compile("a$", re.MULTILINE)', False),
        ('text.split("$")', False),
    ],
)
def test_loose_ends_are_found(call: str, *, is_refused: bool) -> None:
    """In arguments of `re` and under the name `pattern`, but neither escaped nor in a class."""
    (found,) = (each for each in ast.walk(ast.parse(call)) if isinstance(each, ast.Call))
    assert any(has_loose_end(each) for each in patterns_of(found)) is is_refused
