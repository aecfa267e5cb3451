"""The project's own source as syntax trees, for the rules about it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from tests.kit.garbage import made_to_stay

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "raftlog"
CHAOS = ROOT / "chaos" / "raftlog_chaos"
TESTS = ROOT / "tests"

FIELDS_WITHOUT_NODES = frozenset(
    {"arg", "asname", "attr", "ctx", "id", "kind", "level", "module", "op", "ops"}
)
"""Fields with names and numbers, with contexts and with operators."""

FIELDS_WITH_STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


class Module(NamedTuple):
    """A source file. `name` is its path from the root; `room` the folder (or module) right under its package."""

    name: str
    room: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Lines of code, without lines that are comments alone: comments are free."""
        return sum(not _is_comment(line) for line in self.text.splitlines())


class Import(NamedTuple):
    """One imported module, by dotted name. `for_types_only`: it stands under `if TYPE_CHECKING`."""

    module: str
    line: int
    for_types_only: bool


@cache
def modules_under(folder: Path) -> tuple[Module, ...]:
    """Return every Python file below a folder.

    The trees of all files take half a gigabyte. They are kept, since nearly all rules look at them.
    """
    paths = [path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts]
    with made_to_stay():
        return tuple(_read(path) for path in paths)


def _read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    relative = path.relative_to(ROOT)
    if relative.parts[:2] == ("chaos", "raftlog_chaos"):
        room = "raftlog_chaos"
    elif relative.parts[0] == "tests":
        room = "/".join(relative.parts[: 2 if len(relative.parts) > 2 else 1])
    else:
        room = relative.parts[1].removesuffix(".py") if len(relative.parts) > 1 else ""
    return Module(str(relative), room, text, ast.parse(text, filename=str(relative)))


def every_module() -> tuple[Module, ...]:
    """Return the files of both packages: what runs in production, and what proves it."""
    return modules_under(PACKAGE) + modules_under(CHAOS)


def nodes_of(tree: ast.Module, kind: type[Node]) -> Sequence[Node]:
    """Return every node of exactly this class below a tree, which is walked once for all rules."""
    return cast("Sequence[Node]", _nodes_by_kind(tree).get(kind, ()))


def function_nodes(tree: ast.Module) -> tuple[FunctionNode, ...]:
    """Return every function below a tree."""
    return (*nodes_of(tree, ast.FunctionDef), *nodes_of(tree, ast.AsyncFunctionDef))


@cache
def _nodes_by_kind(tree: ast.Module) -> Mapping[type[ast.AST], Sequence[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    with made_to_stay():
        for node in walk(tree):
            found[type(node)].append(node)
    return found


def walk(tree: ast.AST) -> Sequence[ast.AST]:
    """Return a node and every node below it, in the order of `ast.walk`, at a third of its cost.

    Contexts (`ast.Load`) and operators (`ast.Add`) are left out: they have nothing below them, and are half of all.
    """
    found = [tree]
    for node in found:  # which grows meanwhile
        for name in _fields_with_nodes(type(node)):
            value = getattr(node, name, None)
            if value.__class__ is list:
                found += [each for each in cast("list[object]", value) if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


@cache
def _fields_with_nodes(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(each for each in kind._fields if each not in FIELDS_WITHOUT_NODES)


@cache
def imports_of(module: Module) -> tuple[Import, ...]:
    """Return every import of a module, also the imports inside functions; `from a import b` is a and a.b.

    A relative import is resolved to its absolute name.
    """
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[Import]:
    typing_only = {
        id(node)
        for guard in nodes_of(module.tree, ast.If)
        if isinstance(guard.test, ast.Name) and guard.test.id == "TYPE_CHECKING"
        for statement in guard.body
        for node in walk(statement)
    }
    for node in nodes_of(module.tree, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, id(node) in typing_only)
    for node_from in nodes_of(module.tree, ast.ImportFrom):
        origin = _origin(module, node_from)
        for name in (origin, *(f"{origin}.{alias.name}" for alias in node_from.names)):
            yield Import(name, node_from.lineno, id(node_from) in typing_only)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


class Function(NamedTuple):
    """A function with its name as written in exception lists: path:Class.function."""

    label: str
    node: FunctionNode
    in_class: bool
    public: bool
    lines: int
    """Without lines that are comments alone."""


@cache
def functions_of(module: Module) -> tuple[Function, ...]:
    """Return every function and method, nested functions too; `public` is False inside private or nested scopes."""
    source = module.text.splitlines()

    def with_lines(each: Function) -> Function:
        own = source[each.node.lineno - 1 : each.node.end_lineno]
        return each._replace(lines=sum(not _is_comment(line) for line in own))

    found = _functions(module.tree, module.name + ":", in_class=False, public=True)
    return tuple(map(with_lines, found))


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _functions(parent: ast.AST, prefix: str, *, in_class: bool, public: bool) -> Iterator[Function]:
    for node in _statements_of(parent):
        if isinstance(node, FunctionNode):
            seen = public and not node.name.startswith("_")
            yield Function(prefix + node.name, node, in_class, seen, lines=0)
            yield from _functions(node, f"{prefix}{node.name}.", in_class=False, public=False)
        elif isinstance(node, ast.ClassDef):
            seen = public and not node.name.startswith("_")
            yield from _functions(node, f"{prefix}{node.name}.", in_class=True, public=seen)
        else:
            yield from _functions(node, prefix, in_class=in_class, public=public)


def _statements_of(parent: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements right below a node, and its handlers and cases: no expression has a function inside."""
    for name in FIELDS_WITH_STATEMENTS:
        found = getattr(parent, name, ())
        if isinstance(found, list):
            yield from found


def judge(found: set[str], exceptions: frozenset[str]) -> None:
    """Every breach of a rule is a listed exception, and every listed exception still is a breach: the list only
    shrinks.
    """
    assert not found - exceptions, f"breaks the rule: {sorted(found - exceptions)}"
    assert not exceptions - found, (
        f"keeps the rule by now, take it off the list: {sorted(exceptions - found)}"
    )
