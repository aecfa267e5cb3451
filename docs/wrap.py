"""Wrap Markdown files at 120 columns: `python docs/wrap.py CHANGELOG.md ...`. Code, short tables and headings stay.

A table with a row that is too long becomes a list, since a row cannot be wrapped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap

COLUMNS = 120
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"(\s*)([-*+]|\d+\.) +")
ALONE = re.compile(r"\s*(#|<|>|\[[^\]]+\]:|!!!|===|---|:::|\$)|\s*$")


def wrapped(text: str) -> str:
    """Return the text with all lines of paragraphs and lists within COLUMNS."""
    lines: list[str] = []
    for number, block in groupby(_marked(text.splitlines()), key=lambda each: each[0]):
        found = [line for _, line in block]
        if number > 0 and any(len(line) > COLUMNS for line in found):
            found = list(_table_as_list(found) if found[0].lstrip().startswith("|") else _filled(found))
        lines.extend(found)
    return "\n".join(lines) + "\n"


def _marked(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield (number of its block, line). Paragraphs, list items and tables are blocks; lines below zero stay."""
    number, kind, fenced = 0, "", False
    for line in lines:
        fence = FENCE.match(line)
        if fence or fenced or ALONE.match(line) or (line.startswith("    ") and kind in ("", "code")):
            now = "code" if line.startswith("    ") and not fenced else ""
        elif line.lstrip().startswith("|"):
            now = "table"
        else:
            now = "text"
        if now != kind or now in ("", "code") or ITEM.match(line):
            number += 1
        kind = now
        fenced ^= bool(fence)
        yield (-number if now in ("", "code") else number), line


def _filled(block: list[str]) -> Iterator[str]:
    item = ITEM.match(block[0])
    first = item[0] if item else re.match(r"\s*", block[0])[0]  # type: ignore[index]
    rest = " " * len(first)
    text = " ".join(line.strip() for line in block)[len(first.strip()) :].strip()
    # a line may not begin with what would make it a list item or a heading
    pieces = wrap(
        re.sub(r" (-|\*|\+|#+|\d+\.) ", lambda found: f"\0{found[1]} ", text),
        COLUMNS - len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for number, piece in enumerate(pieces):
        yield (rest if number else first) + piece.replace("\0", " ")


def _table_as_list(block: list[str]) -> Iterator[str]:
    header, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in block)
    for row in rows:
        more = [
            f"{name.capitalize()}: {cell}" if name and number > 1 else cell
            for number, (name, cell) in enumerate(zip(header, row, strict=True))
            if number and cell
        ]
        yield from _filled([f"- {row[0]}: {'. '.join(more)}"])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(wrapped(path.read_text(encoding="utf-8")), encoding="utf-8")
