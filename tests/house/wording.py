"""Counts of words that English technical prose hardly uses, in docstrings and comments.

A sentence with a pronoun for its subject ("who asks", "the one that", "nobody") makes its reader find the noun. trio,
h11, structlog and aiokafka name the thing. `python -m tests.house.wording` prints the counts of every folder.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.house.source import Module, every_module, nodes_of

WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
CODE = re.compile(r"``?[^`]*``?|\"[^\"\n]*\"")
PRAGMA = re.compile(r"#\s*(noqa|type:|ruff:|pragma|mypy:|fmt:|!)")
FUNCTION_WORDS = (
    r"a|about|after|against|all|already|also|an|and|anyway|are|as|at|be|been|before|below|"
    r"beside|but|by|can|could|do|does|during|every|except|exists|for|from|had|has|have|if|in|"
    r"into|is|it|its|itself|may|might|must|needs|no|nor|not|of|on|only|or|out|over|per|"
    r"shall|should|since|so|than|that|the|their|them|then|there|these|they|this|those|through|"
    r"to|too|under|until|was|were|what|when|where|whether|which|while|who|whom|whose|will|with|"
    r"within|without|would|yet"
)
FAMILIES: Mapping[str, re.Pattern[str]] = {
    "who": re.compile(r"\b(who|whom|whose|whoever)\b", re.IGNORECASE),
    "tell": re.compile(r"\b(tell|tells|told|telling)\b", re.IGNORECASE),
    "one": re.compile(
        rf"\bones\b|(?<![\w-])one(?= (?:{FUNCTION_WORDS})\b|'s|\s*(?:$|[^\w\s'*`\"-]|- ))",
        re.IGNORECASE,
    ),
    "nobody": re.compile(r"\b(nobody|somebody|nothing)\b", re.IGNORECASE),
    "those": re.compile(r"\bthose (that|of|in)\b", re.IGNORECASE),
}
"""`one` is a pronoun if no noun follows: before punctuation, at the end, or before a function word.

Examples are "the one of b" and "one is left". Otherwise it is a number ("one broker", "one more offset"), and "one by
one" is an adverb.
"""


class Rates(NamedTuple):
    """Words of the five families per 1,000 words of prose."""

    who: float
    tell: float
    one: float
    nobody: float
    those: float


@cache
def prose_of(module: Module) -> tuple[str, ...]:
    """Return the docstrings of a module, including the docstrings of constants, and its comments; without pragmas."""
    return (*docstrings_of(module.tree), *comments_of(module))


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Yield every string that stands alone as a statement."""
    for node in nodes_of(tree, ast.Expr):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def comments_of(module: Module) -> Iterator[str]:
    """Yield the comments of a module; lines without code that follow each other are one comment.

    A `#` begins one unless it is inside a string, which the syntax tree shows faster than a tokenizer.
    """
    strings: defaultdict[int, list[Any]] = defaultdict(list)
    for kind in (ast.Constant, ast.JoinedStr):
        for node in nodes_of(module.tree, kind):
            if kind is ast.JoinedStr or isinstance(getattr(node, "value", None), str):
                place = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
                for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    strings[number].append(place)
    block: list[str] = []
    last = 0
    for number, line in enumerate(module.text.split("\n"), 1):
        comment = _comment_of(line, number, strings.get(number, [])) if "#" in line else ""
        if not comment or PRAGMA.match(comment):
            continue
        if block and number != last + 1:
            yield " ".join(block)
            block = []
        block.append(comment.lstrip("# "))
        last = number if line.lstrip().startswith("#") else 0
    if block:
        yield " ".join(block)


def _comment_of(line: str, number: int, strings: list[Any]) -> str:
    for sign in re.finditer("#", line):
        place = (number, len(line[: sign.start()].encode()))
        if not any(begin <= place < end for begin, end in strings):
            return line[sign.start() :]
    return ""


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Return how many words there are (`all`), and how many of each family, without code and quotations."""
    found: Counter[str] = Counter()
    for text in texts:
        plain = " ".join(CODE.sub("``", text).split()).replace("one by one", "singly")
        found["all"] += len(WORD.findall(plain))
        for family, pattern in FAMILIES.items():
            found[family] += len(pattern.findall(plain))
    return found


def rates_of(counts: Mapping[str, int]) -> Rates:
    """Return the rates of counted words, rounded up to tenths."""
    words = max(counts["all"], 1)
    return Rates(*(-(-counts.get(family, 0) * 10_000 // words) / 10 for family in FAMILIES))


@cache
def rates_by_room(modules: tuple[Module, ...]) -> Mapping[str, Rates]:
    """Return the rates of each room: the folder, or module, right under a package. Modules beside the folders of
    `raftlog_chaos` are a room together.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        counts[_room_of(module)] += count_words(prose_of(module))
    return {room: rates_of(found) for room, found in sorted(counts.items())}


def _room_of(module: Module) -> str:
    parts = module.name.split("/")
    return f"raftlog_chaos/{parts[2]}" if module.room == "raftlog_chaos" and len(parts) > 3 else module.room


def _foreign(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        if not {"tests", "_tests", "test"} & set(path.parts):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield Module(str(path), folder.name, text, ast.parse(text))


def _print_rates(folders: list[str]) -> None:
    modules = tuple(each for folder in folders for each in _foreign(Path(folder))) or every_module()
    print(f"{'':30}" + "".join(f"{family:>8}" for family in FAMILIES))
    for room, rates in rates_by_room(modules).items():
        print(f"{room:30}" + "".join(f"{rate:8.1f}" for rate in rates))


if __name__ == "__main__":
    _print_rates(sys.argv[1:])
