"""The screen of `raftlog top`: tables of brokers, topics and groups, cut to the size of a terminal.

A cut table loses whole columns and whole rows, the least important first, and says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.cli.cluster_view import ClusterView, GroupLine, Rates, named_brokers
from raftlog.cli.rows import table_lines

LINES: Final = 200
"""The most topics, and the most groups."""
FOOTER: Final = "q ends it"
NOT_VITAL: Final = (
    "leaders",
    "type",
    "controller",
    "partitions",
    "in sync",
    "records",
    "leads",
    "state",
)
"""Columns that a narrow terminal does without, in this order."""
GAP: Final = "  "
Line = tuple[str, str]
"""A line and its style."""


def screen(view: ClusterView, rates: Rates, *, internal: bool, width: int, height: int) -> list[Line]:
    """Return the lines of a screen, each within the width, and no more than the height."""
    lines = [(each, "red" if view.leaderless else "bold") for each in _packed(heading(view, rates), width)]
    missing = [(_cut(f"missing: {each}", width), "yellow") for each in view.missing]
    whole = tables(view, rates, internal=internal)
    room = height - len(lines) - len(missing) - 1 - 2 * len(whole)
    dropped: list[str] = []
    for (columns, rows), count in zip(whole, _shares([len(rows) for _, rows in whole], room), strict=True):
        lines += _table(columns, rows, count, width, dropped)
    lines += missing
    notes = [FOOTER, *([f"too narrow for: {', '.join(dropped)}"] if dropped else [])]
    if len(lines) >= height:
        lines = lines[: max(0, height - 1)]
        notes.insert(1, "too low for all")
    return [*lines, (_cut("; ".join(notes), width), "dim")]


def _table(
    columns: Sequence[str], rows: list[dict[str, Any]], count: int, width: int, dropped: list[str]
) -> list[Line]:
    """Return the lines of a table with so many lines below its heading; add the columns that had no room."""
    shown = rows if len(rows) <= count else rows[: max(0, count - 1)]
    kept, found = list(columns), table_lines(shown, columns)
    for each in NOT_VITAL:
        if max(map(len, found)) <= width:
            break
        if each in kept:
            kept.remove(each)
            dropped.append(f"{each} of {columns[0]}s")
            found = table_lines(shown, kept)
    head, *below = (_cut(line, width) for line in found)
    styles = ["yellow" if row.get("state") == "fenced" else "" for row in shown]
    lines = [("", ""), (head, "bold"), *zip(below, styles, strict=True)]
    if hidden := len(rows) - len(shown):
        lines.append((_cut(f"… {hidden} more {columns[0]}{'s' if hidden > 1 else ''}", width), "dim"))
    return lines


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """Share out lines: each table gets at least one, and what a small table leaves goes to the others."""
    shares = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda each: wanted[each])
    for position, each in enumerate(order):
        shares[each] = max(1, min(wanted[each], room // (len(order) - position)))
        room -= shares[each]
    return shares


def _packed(parts: Sequence[str], width: int) -> list[str]:
    """Return the parts on as few lines as they fit on."""
    lines = [parts[0]]
    for each in parts[1:]:
        if len(lines[-1]) + len(GAP) + len(each) <= width:
            lines[-1] += GAP + each
        else:
            lines.append(each)
    return [_cut(each, width) for each in lines]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def heading(view: ClusterView, rates: Rates) -> list[str]:
    """Return the parts of the head line."""
    down = f" (fenced: {named_brokers(view.fenced)})" if view.fenced else ""
    return [
        time.strftime("%H:%M:%S"),
        f"cluster {view.cluster_id}",
        f"{sum(rates.topics.values()):,.0f} records/s",
        f"{len(view.brokers)} brokers{down}",
        f"{len(view.leaderless)} partitions without a leader",
        f"{len(view.under_replicated)} under-replicated",
    ]


Table = tuple[tuple[str, ...], list[dict[str, Any]]]


def tables(view: ClusterView, rates: Rates, *, internal: bool) -> list[Table]:
    """Return the tables of brokers, topics and groups, columns and rows each, the busiest first."""
    brokers = [
        {
            "broker": each["broker"],
            "state": each["state"],
            "leads": each["leads"],
            "in sync": f"{each['in_sync']}/{each['replicas']}",
            "records/s": _rate(rates.leaders.get(int(each["broker"]))),
            "controller": "yes" if each["controller"] else "",
        }
        for each in view.brokers
    ]
    return [
        (("broker", "state", "leads", "in sync", "records/s", "controller"), brokers),
        (
            ("topic", "partitions", "leaders", "records/s", "records"),
            _topic_rows(view, rates, internal=internal),
        ),
        (("group", "state", "type", "lag"), _group_rows(view)),
    ]


def _topic_rows(view: ClusterView, rates: Rates, *, internal: bool) -> list[dict[str, Any]]:
    names = sorted(
        {each.topic for each in view.partitions if internal or each.topic not in INTERNAL_TOPICS},
        key=lambda name: (-rates.topics.get(name, 0.0), name),
    )[:LINES]
    rows = []
    for name in names:
        leaders = Counter(each.leader for each in view.partitions if each.topic == name)
        known = [end for (topic, _), end in view.ends.items() if topic == name]
        rows.append(
            {
                "topic": name,
                "partitions": sum(leaders.values()),
                "leaders": " ".join(
                    f"{leader if leader >= 0 else 'none'}:{count}"
                    for leader, count in sorted(leaders.items())
                ),
                "records/s": _rate(rates.topics.get(name)),
                "records": f"{sum(known):,}" if known else "-",
            }
        )
    return rows


def _group_rows(view: ClusterView) -> list[dict[str, Any]]:
    def order(each: GroupLine) -> tuple[int, str]:
        return -(each.lag or 0), each.group

    return [
        {
            "group": each.group,
            "state": each.state,
            "type": each.type,
            "lag": "-" if each.lag is None else f"{each.lag:,}",
        }
        for each in sorted(view.groups, key=order)[:LINES]
    ]


def _rate(found: float | None) -> str:
    return "-" if found is None else f"{found:,.0f}"
