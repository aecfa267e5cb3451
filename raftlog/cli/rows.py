"""The output of listing commands: rows as a table for people, as JSON, or as a JSON object per line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from shutil import get_terminal_size
from typing import Any, Final

from raftlog.cli.printable import printable

Row = Mapping[str, Any]
GAP: Final = "  "
INDENT: Final = "    "
WIDEST: Final = 64
"""Characters of a cell that other rows make room for; a longer cell is not cut, and shifts only its own row."""


class Form(StrEnum):
    """The output formats of rows. JSON Lines suit long lists: each line stands for itself."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def print_rows(
    rows: Iterable[Row], form: Form, columns: Sequence[str] | None = None, *, fold: bool = False
) -> None:
    """Print rows to standard output; a table shows only `columns` (default: the first row's), JSON all.

    `fold`: at a terminal, a last column that is too long for the line continues below.
    """
    if form is Form.JSONL:
        for row in rows:
            print(json.dumps(row))
        return
    rows = list(rows)
    if form is Form.JSON:
        print(json.dumps(rows))
    elif rows or columns:
        width = get_terminal_size().columns if fold and sys.stdout.isatty() else None
        print_table(rows, columns or list(rows[0]), width=width)


def print_table(rows: Iterable[Row], columns: Sequence[str], *, width: int | None = None) -> None:
    """Print a heading and a line per row; numbers stand right-aligned. See `print_rows` for `width`."""
    print(*table_lines(rows, columns, width=width), sep="\n")


def table_lines(rows: Iterable[Row], columns: Sequence[str], *, width: int | None = None) -> list[str]:
    """Return the lines of `print_table`."""
    rows = list(rows)
    lines = [[_cell(row.get(column)) for column in columns] for row in rows]
    below: list[list[str]] = [[] for _ in lines]
    if width is not None:
        below = _put_below(lines, width)
    widths = [
        max([len(column), *(len(cell) for cell in cells if len(cell) <= WIDEST)])
        for column, *cells in zip(columns, *lines, strict=True)
    ]
    right = [bool(rows) and all(_is_number(row.get(column)) for row in rows) for column in columns]
    headings = [column.replace("_", " ") for column in columns]
    found = []
    for line, more in zip((headings, *lines), ([], *below), strict=True):
        cells = (
            cell.rjust(size) if is_number else cell.ljust(size)
            for cell, size, is_number in zip(line, widths, right, strict=True)
        )
        found.append(GAP.join(cells).rstrip())
        found += [INDENT + each for each in more]
    return found


def _put_below(lines: list[list[str]], width: int) -> list[list[str]]:
    """Empty the last cells that have no room; returns their pieces, which break behind commas where they can."""
    others = (
        [max((len(line[at]) for line in lines), default=0) for at in range(len(lines[0]) - 1)]
        if lines
        else []
    )
    room = width - sum(others) - len(GAP) * len(others)
    below: list[list[str]] = []
    for line in lines:
        pieces: list[str] = []
        if len(line[-1]) > room:
            pieces = _broken(line[-1], max(1, width - len(INDENT)))
            line[-1] = ""
        below.append(pieces)
    return below


def _broken(text: str, width: int) -> list[str]:
    pieces = []
    while len(text) > width:
        end = text.rfind(",", 0, width) + 1 or width
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text]


def print_object(found: Row, form: Form) -> None:
    """Print one thing: a line per field for people, else one JSON object."""
    if form is not Form.TABLE:
        print(json.dumps(found))
        return
    width = max(len(name) for name in found)
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<{width}}  {_cell(value)}".rstrip())


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value))) or "-"
    return printable(str(value))


def in_time(duration_ms: int) -> str:
    """Return a duration for people: whole seconds up to two minutes, then minutes, hours, days."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if duration_ms >= 2 * length_ms:
            return f"{duration_ms // length_ms} {unit}"
    return f"{duration_ms // 1000} s"


def in_bytes(count: int | None) -> str:
    """Return a number of bytes for people: three digits and a unit."""
    if count is None or count < 0:
        return "-"
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
