"""What listing commands print: rows as a table for people, as JSON, or as a JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]


class Form(StrEnum):
    """How rows are printed. JSON Lines suit long lists: each line stands for itself."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def print_rows(rows: Iterable[Row], form: Form, columns: Sequence[str] | None = None) -> None:
    """Print rows to standard output; a table shows only `columns` (default: those of the first row), JSON all."""
    rows = list(rows)
    if form is Form.JSON:
        print(json.dumps(rows))
    elif form is Form.JSONL:
        for row in rows:
            print(json.dumps(row))
    elif rows or columns:
        print_table(rows, columns or list(rows[0]))


def print_table(rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Print a heading and a line per row; numbers stand right-aligned."""
    rows = list(rows)
    lines = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *lines, strict=True)]
    right = [bool(rows) and all(_is_number(row.get(column)) for row in rows) for column in columns]
    for line in ([column.replace("_", " ") for column in columns], *lines):
        cells = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


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
        return ",".join(map(str, value)) or "-"
    return str(value)


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
