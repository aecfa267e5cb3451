"""House rule: a function inside another does not call itself.

Such a function is a reference cycle. It keeps its variables alive until the next garbage collection: a stream of
records once held a hundred megabytes this way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import FunctionNode, every_module, function_nodes, judge, walk


def circles_in(tree: ast.Module) -> Iterator[FunctionNode]:
    """Yield the functions inside others that name themselves."""
    functions = function_nodes(tree)
    for inner in functions:
        is_inside = any(
            outer is not inner and outer.lineno <= inner.lineno <= (outer.end_lineno or outer.lineno)
            for outer in functions
        )
        names = (node.id for each in inner.body for node in walk(each) if isinstance(node, ast.Name))
        if is_inside and inner.name in names:
            yield inner


def test_no_function_inside_another_calls_itself() -> None:
    """A loop over what is left to do takes its place."""
    found = {f"{module.name}: {each.name}" for module in every_module() for each in circles_in(module.tree)}
    judge(found, frozenset())


def test_a_function_that_calls_itself_is_seen() -> None:
    """It reports neither a cycle at the top level nor a cycle through a call."""
    source = "def top():\n  def circle():\n    return circle()\n  def other():\n    return top()\n"
    assert [each.name for each in circles_in(ast.parse(source))] == ["circle"]
