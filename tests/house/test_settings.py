"""Every setting that is shown as in force is read by code that acts on it, or is marked as accepted without effect."""

from __future__ import annotations

import ast
from typing import Any

from raftlog.base.config import GroupConfig, NodeConfig, TopicConfig, settings_of
from raftlog.base.config.client_metrics import ClientMetricsConfig
from raftlog.base.config.setting import Setting
from tests.house.source import PACKAGE, modules_under, nodes_of

TABLES: tuple[type[Any], ...] = (NodeConfig, TopicConfig, GroupConfig, ClientMetricsConfig)
COMPUTED: frozenset[str] = frozenset(
    {
        f"group.{kind}.{end}.{rest}"
        for kind, _, rest in (name.partition(".") for name in settings_of(GroupConfig))
        for end in ("min", "max")
    }
)
"""Bounds of a group's own configs: `raftlog.base.config` makes their names from those."""


def words_in_code() -> set[str]:
    """Return every attribute that code reads and every text in it, but for the tables themselves.

    `config.resolve` works on a draft, whose values it asks for by attribute, as texts; its dotted names are faults and
    laws, which have no effect.
    """
    found: set[str] = set()
    for module in modules_under(PACKAGE):
        is_resolve = module.name.endswith("base/config/resolve.py")
        if module.name.startswith("raftlog/base/config") and not is_resolve:
            continue
        found.update(node.attr for node in nodes_of(module.tree, ast.Attribute))
        texts = {node.value for node in nodes_of(module.tree, ast.Constant) if isinstance(node.value, str)}
        found |= {text for text in texts if not is_resolve or "." not in text}
    return found


def rows() -> list[tuple[str, Setting]]:
    """Return (attribute, row) of all tables, without rows that only give a default for another table's row."""
    all_rows = [each for table in TABLES for each in settings_of(table).values()]
    defaults = {name for _, row in all_rows for name, _ in row.synonyms}
    return [(attribute, row) for attribute, row in all_rows if row.name not in defaults]


def test_every_setting_is_read_or_marked_as_accepted_without_effect() -> None:
    """DescribeConfigs and `raftlog config` show all settings; an operator expects that a change has an effect."""
    words = words_in_code()
    unread = {
        row.name
        for attribute, row in rows()
        if row.applied and not {attribute, row.name} & words and row.name not in COMPUTED
    }
    assert not unread


def test_no_setting_that_is_read_is_marked_as_without_effect() -> None:
    """Users see the mark and would leave the setting alone."""
    words = words_in_code()
    read = {row.name for attribute, row in rows() if not row.applied and {attribute, row.name} & words}
    assert not read


def test_the_mark_is_shown_wherever_a_setting_is_documented() -> None:
    """In the sentence itself, which DescribeConfigs, the command line and the reference page share."""
    for _, row in rows():
        assert row.meaning.endswith("(accepted, without effect)") != row.applied
