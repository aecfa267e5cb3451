"""House rule: few files count turns of the event loop. Long work is a generator, or parts that a function draws.

`each_part`, `in_slices` and `run_steps` (`raftlog/base/turns.py`) yield to the loop. A handler puts a generator in
place of an array of its response (`raftlog/broker/long_work/turns.py`).
"""

from __future__ import annotations

import ast

from tests.house.source import PACKAGE, Module, function_nodes, judge, modules_under, nodes_of

COUNTING = frozenset(
    {
        "raftlog/admin/native/records.py",  # its slices are of bytes, and it decompresses in a thread
        "raftlog/admin/route.py",  # the turns of a client end when the client leaves
        "raftlog/admin/samples.py",  # a sample is a part of every idle node's cost, down to single calls
        "raftlog/admin/view.py",  # the port
        "raftlog/base/env.py",  # the queue of a node
        "raftlog/base/turns.py",
        "raftlog/broker/coordination/shard.py",  # reads its log between two turns
        "raftlog/broker/dispatch.py",  # a first request imports its messages in a turn of its own
        "raftlog/broker/long_work/walked_records.py",  # its steps may be calls for a thread
        "raftlog/broker/long_work/turns.py",
        "raftlog/broker/network/connection.py",  # each connection has its turn
        "raftlog/process.py",  # wires the port
    }
)
"""Files that name the queue of turns. The list only shrinks."""
NAMES = frozenset({"TurnCounter", "TurnQueue"})


def _counts_turns(module: Module) -> bool:
    return (
        any(node.id in NAMES for node in nodes_of(module.tree, ast.Name))
        or any(node.attr == "turns" for node in nodes_of(module.tree, ast.Attribute))
        or any(node.arg == "turns" for node in nodes_of(module.tree, ast.keyword))
    )


def test_few_files_count_turns() -> None:
    """A request's handler should not need to think of the loop."""
    judge({each.name for each in modules_under(PACKAGE) if _counts_turns(each)}, COUNTING)


def test_no_function_takes_a_pace() -> None:
    """A parameter for turns spreads to every caller."""
    found = {
        f"{module.name}:{node.name}"
        for module in modules_under(PACKAGE)
        for node in function_nodes(module.tree)
        if any(
            each.annotation is not None and ast.unparse(each.annotation) == "TurnCounter"
            for each in node.args.args
        )
    }
    assert not found
