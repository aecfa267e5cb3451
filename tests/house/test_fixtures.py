"""House rule: the fixture `cluster` is the cluster that modules share, and nodes of one module have another name."""

from __future__ import annotations

import ast

from tests.house.source import TESTS, FunctionNode, function_nodes, judge, modules_under

SHARED = "tests/kit/clusters.py"
OTHERS: frozenset[str] = frozenset(
    {
        "tests/admin/test_quorum_voters.py",
        "tests/cli/test_quorum_voters.py",
    }
)
"""Modules in which `cluster` is something else; the list only shrinks."""


def test_cluster_is_one_fixture() -> None:
    """Its name says which nodes and settings a test has. A folder may override `shared_cluster`."""
    found = {
        module.name
        for module in modules_under(TESTS)
        for function in function_nodes(module.tree)
        if function.name == "cluster" and is_fixture(function)
    }
    judge(found, OTHERS | {SHARED})


def is_fixture(function: FunctionNode) -> bool:
    """Return whether tests take a function's result by its name."""
    return any("fixture" in ast.unparse(each) for each in function.decorator_list)
