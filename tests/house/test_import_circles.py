"""House rule: modules do not import each other in a circle, not even for types only, so that each can be read alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.house.source import Module, every_module, imports_of, judge

CIRCLES = frozenset(
    {
        # A connection, its server, and the parts of both that look at connections.
        "raftlog.broker.network.admission",
        "raftlog.broker.network.connection",
        "raftlog.broker.network.idle_connections",
        "raftlog.broker.network.peer_handshake",
        "raftlog.broker.network.responses",
        "raftlog.broker.network.server",
        # A replica of a partition and the role that it has now.
        "raftlog.replication.follower_role",
        "raftlog.replication.leader_role",
        "raftlog.replication.partition",
        "raftlog.replication.replica_host",
        "raftlog.replication.role",
        # The simulated loop, its network and the hosts on it.
        "raftlog_chaos.simulator.connection",
        "raftlog_chaos.simulator.handles",
        "raftlog_chaos.simulator.hosts",
        "raftlog_chaos.simulator.loop",
        "raftlog_chaos.simulator.network",
        # A workload and the clients that it hands out.
        "raftlog_chaos.workloads.log_workload",
        "raftlog_chaos.workloads.process",
        "raftlog_chaos.workloads.transactions",
    }
)
"""Modules that hold each other for types only. The list may only shrink."""

ROOMS: Mapping[str, frozenset[str]] = {
    "long_work": frozenset(),
    "links": frozenset({"long_work"}),
    "replicas": frozenset({"links", "long_work"}),
    "coordination": frozenset({"links", "long_work", "replicas"}),
    "network": frozenset({"coordination", "links", "long_work", "replicas"}),
    "handlers": frozenset({"coordination", "links", "long_work", "network", "replicas"}),
}
"""The rooms of `raftlog/broker`, and those below each. Modules beside the rooms are free."""


def _dotted(module: Module) -> str:
    return module.name.removeprefix("chaos/").removesuffix(".py").replace("/", ".")


def _imports() -> dict[str, frozenset[str]]:
    modules = {_dotted(each): each for each in every_module() if not each.name.endswith("__init__.py")}
    return {
        name: frozenset(line.module for line in imports_of(module)) & modules.keys() - {name}
        for name, module in modules.items()
    }


def reached_from(names: Iterable[str], imports: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the modules that these import, directly or by way of others."""
    seen: set[str] = set()
    todo = [target for each in names for target in imports[each]]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imports[name]
    return seen


def circles_of(imports: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the modules that import themselves by way of others."""
    return frozenset(each for each in imports if each in reached_from([each], imports))


def test_no_module_imports_itself_by_way_of_others() -> None:
    """ARCHITECTURE.md, "Two floors, one direction", for modules as `test_arrows` has it for rooms."""
    judge(set(circles_of(_imports())), CIRCLES)


def test_a_circle_is_found() -> None:
    """And neither what leads to it nor what it leads to."""
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"d"}}
    assert circles_of({name: frozenset(each) for name, each in imports.items()}) == {"b", "c"}


def test_imports_between_the_rooms_of_the_broker_follow_the_table() -> None:
    """A room knows those below it, also by way of the modules beside the rooms, such as the context of handlers."""
    imports = _imports()
    for room, below in ROOMS.items():
        own = {each for each in imports if each.startswith(f"raftlog.broker.{room}.")}
        reached = reached_from(own, imports) - own
        met = {
            each.split(".")[2]
            for each in reached
            if each.startswith("raftlog.broker.") and each.count(".") > 2
        }
        assert met <= below, f"{room} may not import {sorted(met - below)}"
