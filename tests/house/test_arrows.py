"""Imports run downward only, and the core knows no clock, chance, thread, socket or file."""

from __future__ import annotations

import ast
import sys

from tests.house.source import PACKAGE, Import, Module, every_module, imports_of, nodes_of

ARROWS: dict[str, frozenset[str]] = {
    "__init__": frozenset(),
    "__main__": frozenset({"cli"}),
    "base": frozenset(),
    "records": frozenset({"base"}),
    "protocol": frozenset({"base"}),
    "schemas": frozenset({"base", "records"}),
    "sharing": frozenset({"base"}),
    "storage": frozenset({"base", "records"}),
    "security": frozenset({"base"}),
    "metadata": frozenset({"base", "security"}),
    "controller": frozenset({"base", "metadata", "security"}),
    "replication": frozenset({"base", "metadata", "records", "storage"}),
    "coordinator": frozenset({"base", "metadata", "records", "security", "sharing"}),
    "quorum": frozenset({"base", "metadata"}),
    "broker": frozenset(
        {
            "base",
            "coordinator",
            "metadata",
            "protocol",
            "records",
            "replication",
            "schemas",
            "security",
            "sharing",
            "storage",
        }
    ),
    "loop_watch": frozenset({"base"}),
    "control": frozenset({"base", "broker", "controller", "loop_watch", "metadata", "quorum"}),
    "clock_watch": frozenset({"base"}),
    "node": frozenset({"base", "broker", "clock_watch", "control", "metadata", "security", "storage"}),
    "admin": frozenset({"", "base", "metadata", "protocol", "records", "schemas", "security"}),
    "facts": frozenset({"admin", "base", "node", "replication"}),
    "process": frozenset({"admin", "base", "facts", "node"}),
    "faults": frozenset({"base", "records", "storage"}),
    "testing": frozenset({"base", "client", "faults", "metadata", "process", "security"}),
    "raftlog_chaos": frozenset(
        {
            "",
            "admin",
            "base",
            "broker",
            "controller",
            "faults",
            "metadata",
            "node",
            "process",
            "protocol",
            "quorum",
            "records",
            "replication",
            "schemas",
            "security",
            "storage",
            "testing",
        }
    ),
    "client": frozenset({"base", "protocol", "records", "security"}),
    "pipeline": frozenset({"base", "client", "protocol", "records", "tables"}),
    "tables": frozenset({"base", "client", "records", "schemas"}),
    "cli": frozenset(
        {
            "",
            "base",
            "client",
            "faults",
            "metadata",
            "pipeline",
            "process",
            "protocol",
            "quorum",
            "raftlog_chaos",
            "records",
            "schemas",
            "security",
            "storage",
            "tables",
            "testing",
        }
    ),
}
"""The imports that each room under raftlog/ may have, and the package `raftlog_chaos` as a whole. "" is raftlog's
version.
"""

CORE = frozenset(
    {
        "base",
        "records",
        "schemas",
        "security",
        "sharing",
        "storage",
        "metadata",
        "controller",
        "replication",
        "coordinator",
    }
)
PORTS = frozenset(
    {
        f"raftlog/base/{port}.py"
        for port in ("audit_file", "disk", "env", "forks", "kernel_syncs", "log", "log_output", "turns")
    }
)
"""The modules of base that touch the world, so that the rest of the core does not have to."""
WORLD = frozenset({"asyncio", "os", "random", "socket", "threading", "time"})

HOMES: dict[str, frozenset[str]] = {
    "pysyncobj": frozenset({"quorum"}),
    "kio": frozenset({"protocol"}),
    "typer": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "confluent_kafka": frozenset({"cli", "pipeline", "raftlog_chaos"}),
    "kafka": frozenset({"cli", "raftlog_chaos"}),
    "structlog": frozenset({"base"}),
    "re2": frozenset({"base"}),
    "aiohttp": frozenset({"admin", "broker"}),
    "cryptography": frozenset({"broker", "raftlog_chaos", "testing"}),
    "joserfc": frozenset({"security"}),
    "avro": frozenset({"schemas"}),
    "jsonschema": frozenset({"schemas"}),
    "proto_schema_parser": frozenset({"schemas"}),
    "uvloop": frozenset({"cli"}),
    "py4j": frozenset({"pipeline"}),
    "pyspark": frozenset({"pipeline"}),
    "pyarrow": frozenset({"pipeline", "tables"}),
    "deltalake": frozenset({"tables"}),
    "fastavro": frozenset({"tables"}),
    "google": frozenset({"schemas", "tables"}),
    "pyiceberg": frozenset({"tables"}),
    "sqlalchemy": frozenset({"tables"}),
    "pydantic": frozenset({"tables"}),
    "requests": frozenset({"tables"}),
    "numpy": frozenset({"pipeline"}),
}
"""Libraries that one room hides from the others."""


def test_imports_between_rooms_follow_the_table():
    """ARCHITECTURE.md, "Two floors, one direction"."""
    found = [
        f"{module.name}:{each.line}: {module.room} may not import {each.module}"
        for module in every_module()
        for each in imports_of(module)
        if (target := _room(each.module)) is not None and target not in ARROWS[module.room] | {module.room}
    ]
    assert not found, "\n".join(found)


def _room(imported: str) -> str | None:
    """Return the room an import leads to, or None when it leads elsewhere or stops at the package."""
    parts = imported.split(".")
    if parts[0] == "raftlog_chaos":
        return parts[0]
    if parts[0] != "raftlog" or len(parts) == 1:
        return None
    return "" if parts[1].startswith("__") else parts[1]


def test_every_room_has_its_arrows_in_the_table_and_every_line_its_room():
    """A room without a place in the order has no rule, and a rule without a room is a leftover."""
    rooms = {module.room for module in every_module()}
    assert rooms <= set(ARROWS)
    assert set(ARROWS) <= rooms


def test_the_command_line_has_only_the_quorums_files():
    """It opens no journal and speaks to no voter: it has a module that reads, and a module that renames a copy."""
    found = {
        ".".join(each.module.split(".")[:3])
        for module in every_module()
        if module.room == "cli"
        for each in imports_of(module)
        if each.module.startswith("raftlog.quorum")
    }
    assert found == {"raftlog.quorum.stored_journal", "raftlog.quorum.rewritten_journal"}


def test_the_arrows_have_no_circle():
    """Downward means that there is an order."""
    placed: set[str] = {""}
    while waiting := set(ARROWS) - placed:
        free = {room for room in waiting if ARROWS[room] <= placed}
        assert free, f"circle among {sorted(waiting)}"
        placed |= free


def test_the_core_imports_nothing_of_the_world():
    """Without clock, chance, thread, socket or file, a simulation drives it exactly as production does."""
    found = [
        f"{module.name}:{each.line} imports {each.module}"
        for module in every_module()
        if module.room in CORE and module.name not in PORTS
        for each in imports_of(module)
        if each.module.split(".")[0] in WORLD
        and not each.for_types_only
        and not _is_random_type(module, each)
    ]
    assert not found, "\n".join(found)


def _is_random_type(module: Module, imported: Import) -> bool:
    """Whether only the class Random is imported, as the type of the chance that is handed in, and never called."""
    if not imported.module.startswith("random"):
        return False
    alone = any(
        node.lineno == imported.line and [a.name for a in node.names] == ["Random"]
        for node in nodes_of(module.tree, ast.ImportFrom)
    )
    called = any(ast.unparse(node.func) == "Random" for node in nodes_of(module.tree, ast.Call))
    return alone and not called


def test_each_library_stays_in_its_room():
    """A library that one room hides can be changed in one room."""
    found = [
        f"{module.name}:{each.line} imports {each.module}"
        for module in every_module()
        for each in imports_of(module)
        if module.room not in HOMES.get(each.module.split(".")[0], {module.room})
    ]
    assert not found, "\n".join(found)


def test_every_import_is_declared():
    """An imported library is a dependency in pyproject.toml, or it is missing on a fresh machine."""
    import tomllib

    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *project["dependencies"],
        *extras["demo"],
        *extras["spark"],
        *extras["table"],
        *extras["tls"],
        *extras["schema"],
        *extras["oauth"],
    ]
    declared = {_normal(requirement) for requirement in requirements} | {
        "kafka",
        "confluent_kafka",
        "raftlog",
        "raftlog_chaos",
        "re2",  # google-re2
        "google",  # protobuf
        "pytest",  # only pytest loads the module that imports it
    }
    found = {
        f"{module.name}:{each.line} imports {each.module}"
        for module in every_module()
        for each in imports_of(module)
        if (top := each.module.split(".")[0]) not in sys.stdlib_module_names and top not in declared
    }
    assert not found, "\n".join(sorted(found))


def _normal(requirement: str) -> str:
    name = requirement.split(";", maxsplit=1)[0]
    for mark in "<>=~![ ":
        name = name.split(mark)[0]
    return name.replace("-", "_").lower()
