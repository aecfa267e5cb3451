"""`raftlog config` alone: the table of settings, for people and machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final, Literal

from raftlog.base.config import GroupConfig, NodeConfig, Setting, TopicConfig, settings_of
from raftlog.base.config.kafka import KAFKA_SETTINGS
from raftlog.base.config.setting import INT_MAX, LONG_MAX

Form = Literal["text", "json", "markdown"]
Of = Literal["node", "topic", "group", "kafka"]

_TABLES: Final = {"node": NodeConfig, "topic": TopicConfig, "group": GroupConfig}


def print_table(of: Of, *, form: Form) -> None:
    """Print all settings of a node, of topics, or of groups, or Kafka's that raftlog lacks, to standard output."""
    if of == "kafka":
        rows = [each.row for _, each in sorted(KAFKA_SETTINGS.items())]
    else:
        rows = [row for _, row in settings_of(_TABLES[of]).values()]
    sys.stdout.writelines(line + "\n" for line in _FORMS[form](rows))


def _default(row: Setting) -> str:
    if row.default in (INT_MAX, LONG_MAX):
        return "unlimited"
    return row.format(row.default) or ""


def _text(rows: list[Setting]) -> Iterator[str]:
    """Yield two lines for each setting on a terminal, otherwise one, so that grep finds both the name and meaning."""
    width = max(len(row.name) for row in rows)
    if not sys.stdout.isatty():
        yield from (f"{row.name:<{width}}  {row.kind:<8}  {_default(row):<12}  {row.meaning}" for row in rows)
        return
    for row in rows:
        yield f"{row.name:<{width}}  {row.kind:<8}  {_default(row)}"
        yield f"{'':<{width}}  {row.meaning}"


def _json(rows: list[Setting]) -> Iterator[str]:
    import json

    yield json.dumps([_as_object(row) for row in rows], indent=2)


def _as_object(row: Setting) -> dict[str, Any]:
    return {
        "name": row.name,
        "type": row.kind,
        "default": row.format(row.default),
        "unit": row.unit,
        "scope": row.scope,
        "update": row.update,
        "applied": row.applied,
        "doc": row.meaning,
    }


def _markdown(rows: list[Setting]) -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| `{row.name}` | {row.kind} | {_default(row)} | {row.meaning} |"


_FORMS = {"text": _text, "json": _json, "markdown": _markdown}
