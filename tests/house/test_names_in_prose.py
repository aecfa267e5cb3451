"""Names in docstrings, comments and ARCHITECTURE.md exist: what they point to was perhaps renamed.

A name that exists somewhere is not enough. A bare name is a name of its own module, or one that a reader finds at once:
a module, or a class, function or constant on the level of a module. A method or an attribute of a class elsewhere has
the class before it (`Log.read`). A name that a docstring explains belongs to its function or class.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import keyword
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from tests.house.source import (
    PACKAGE,
    ROOT,
    TESTS,
    Module,
    every_module,
    function_nodes,
    modules_under,
    nodes_of,
    walk,
)
from tests.house.wording import prose_of

BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"_*[a-z]\w*(?:\.\w+)*(?:\(\))?|_*[A-Z]\w*(?:\.\w+)*(?:\(\))?")
CONSTANT = re.compile(r"(?<![\w`.\-{$/])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?![\w*\-]|\.\w)")
EXPLAINED = re.compile(r"(?:^|[.;]\s+)`([a-z]\w*)`(?=: | is | are )")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
RAISED = re.compile(r"\bRaises? ((?:[A-Z][a-z]\w+)(?:(?:, or |, | or | and )(?:[A-Z][a-z]\w+))*)")
NAMES: Sequence[tuple[type[ast.AST], str]] = (
    (ast.Name, "id"),
    (ast.Attribute, "attr"),
    (ast.arg, "arg"),
    (ast.keyword, "arg"),
    (ast.FunctionDef, "name"),
    (ast.AsyncFunctionDef, "name"),
    (ast.ClassDef, "name"),
    (ast.alias, "name"),
    (ast.alias, "asname"),
)
PYTHON = frozenset(
    (*keyword.kwlist, *dir(builtins), *dir(asyncio.AbstractEventLoop), *sys.stdlib_module_names)
)
OTHERS = frozenset(
    {
        "CAP_SYS_ADMIN",
        "INVALID_VOTER_KEY",
        "IOCB_CMD_FDSYNC",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG_DIRS",
        "KAFKA_NUM_PARTITIONS",
        "LastProducerEpoch",
        "OPEN_MAX",
        "String.hashCode",
        "THROTTLING_QUOTA_EXCEEDED",
        "UIO_MAXIOV",
        "UNSTABLE_OFFSET_COMMIT",
        "UnifiedLog.maybeIncrementFirstUnstableOffset",
        "_spark_metadata",
        "creq_ts_timeout",
        "dom.js",
        "emptyDir",
        "foreachBatch",
        "io_submit",
        "nft",
        "ps",
        "s0",
        "s6",
        "sni_callback",
    }
)
"""Names of Kafka, of other programs, and of operating systems."""


def sources() -> tuple[Module, ...]:
    """Return the modules with names that count: the repository's, and the tools of its documents."""
    tests = (each for each in modules_under(TESTS) if each.room != "tests/house")
    return (*every_module(), *tests, *modules_under(ROOT / "pyspark_raftlog"))


@cache
def code_words() -> frozenset[str]:
    """Return the names in the code, and the words of its strings that are no docstrings."""
    found = set(PYTHON)
    for module in sources():
        found.update(module.name.removesuffix(".py").split("/"))
        found |= words_of(module)
    return frozenset(found)


@cache
def words_of(module: Module) -> frozenset[str]:
    """Return the names in a module's code, and the words of its strings that are no docstrings."""
    found: set[str] = set()
    for kind, attribute in NAMES:
        found.update(filter(None, (getattr(node, attribute) for node in nodes_of(module.tree, kind))))
    found.update(filter(None, (node.module for node in nodes_of(module.tree, ast.ImportFrom))))
    prose = set(prose_of(module))
    for node in nodes_of(module.tree, ast.Constant):
        if isinstance(node.value, str) and node.value not in prose:
            found.update(re.findall(r"\w+", node.value))
    return frozenset(word for each in found for word in each.split("."))


def words_near(module: Module) -> frozenset[str]:
    """Return the words of a module, with what its classes inherit, and the landmarks of its package.

    It is not kept: the landmarks alone take half a megabyte for each module.
    """
    inherited = (members()[node.name] for node in nodes_of(module.tree, ast.ClassDef))
    return words_of(module).union(landmarks(module.name.split("/")[0]), *inherited)


@cache
def landmarks(package: str) -> frozenset[str]:
    """Return the names that a reader finds without knowing where: of modules, and on the level of a module.

    In raftlog these are raftlog's own; in chaos they are all.
    """
    found = set(PYTHON)
    for module in modules_under(PACKAGE) if package == PACKAGE.name else every_module():
        found.update(module.name.removesuffix(".py").split("/"))
        for statement in module.tree.body:
            match statement:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Assign(value=value) | ast.AnnAssign(value=value):
                    nodes = walk(statement)
                    found.update(each.id for each in nodes if isinstance(each, ast.Name))
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found.add(value.value)
    return frozenset(found)


@cache
def members() -> Mapping[str, frozenset[str]]:
    """Return the attributes of each class by its name. Classes with the same name are merged, and base classes
    included.
    """
    own: defaultdict[str, set[str]] = defaultdict(set)
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for module in sources():
        for node in nodes_of(module.tree, ast.ClassDef):
            bases[node.name].update(ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
            own[node.name].update(_attributes(node))
    return {name: frozenset(_inherited(name, own, bases)) for name in list(own)}


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for inner in walk(node):
        match inner:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Constant(value=str(name)):
                yield name


def _inherited(name: str, own: Mapping[str, set[str]], bases: Mapping[str, set[str]]) -> set[str]:
    found = set(own.get(name, ()))
    for base in bases.get(name, ()):
        if base not in (name, "NamedTuple", "Protocol", "Generic", "ABC"):
            found |= _inherited(base, own, bases) if base in own else {"*"}
    return found


def unresolved(texts: Iterable[str], near: frozenset[str] | None = None) -> Iterator[str]:
    """Yield the names in backticks, constants and raised errors that are nowhere in the code.

    `near`: where alone a bare name is looked for.
    """
    words = code_words()
    for text in texts:
        for name in BACKTICKS.findall(text):
            bare = name.removesuffix("()")
            if DOTTED.fullmatch(name) and not _is_constant(bare, OTHERS):
                is_near = near is None or "." in bare or bare in near
                if not (is_near and _resolves(bare, words)):
                    yield name
        yield from (name for name in CONSTANT.findall(text) if not _is_constant(name, words))
        for names in RAISED.findall(" ".join(text.split())):
            yield from (name for name in re.findall(r"[A-Z]\w+", names) if name not in words)


def _is_constant(name: str, words: frozenset[str]) -> bool:
    """Return whether a name in capitals is in the code, an error of Kafka, or an environment variable."""
    error = "".join(part.capitalize() for part in name.split("_"))
    return name in words or error in words or name in OTHERS or name.startswith("RAFTLOG_")


def _resolves(name: str, words: frozenset[str]) -> bool:
    parts = name.split(".")
    if not all(part in words or part.isdigit() for part in parts):
        return False
    known = members().get(parts[0])
    return len(parts) != 2 or known is None or parts[1] in known or "*" in known


def unexplained(module: Module) -> Iterator[str]:
    """Yield the names that a docstring explains, although its function or class does not have them."""
    for node in (*function_nodes(module.tree), *nodes_of(module.tree, ast.ClassDef)):
        explained = EXPLAINED.findall(ast.get_docstring(node) or "")
        if explained:
            own = set(members()[node.name]) if isinstance(node, ast.ClassDef) else set()
            for each in walk(node):
                own.update(str(getattr(each, attribute)) for kind, attribute in NAMES if type(each) is kind)
            yield from (f"{node.name}: {name}" for name in explained if name not in own)


def test_names_in_docstrings_and_comments_exist() -> None:
    """A name in backticks, a constant, and an error after `Raise` are names of the code."""
    found = [
        f"{each.name}: {name}"
        for each in every_module()
        for name in unresolved(prose_of(each), words_near(each))
    ]
    assert not found, "\n".join(found)


def test_docstrings_explain_names_of_their_function_or_class() -> None:
    """A parameter or attribute that a docstring explains is there: it was perhaps renamed."""
    found = [f"{each.name}: {name}" for each in every_module() for name in unexplained(each)]
    assert not found, "\n".join(found)


def test_names_in_architecture_exist() -> None:
    """ARCHITECTURE.md and the pages about the inside name what is in the code."""
    pages = (PACKAGE / "ARCHITECTURE.md", *sorted((ROOT / "docs/pages/explanation/inside").glob("*.md")))
    found = [
        f"{page.name}: {name}" for page in pages for name in unresolved([FENCED.sub("", page.read_text())])
    ]
    assert not found, "\n".join(found)


def test_a_stale_name_is_seen() -> None:
    """Names that were renamed are found; names of files, settings and shells are not looked up."""
    text = "`no_such_name`, `Log.no_such`, `Log.read`, NO_SUCH_NAME. Raise NoSuchError or KeyError. `raftlog log`"
    assert list(unresolved([text])) == ["no_such_name", "Log.no_such", "NO_SUCH_NAME", "NoSuchError"]


def test_a_name_of_another_module_is_seen() -> None:
    """A bare name is of its own module, or a landmark; an attribute elsewhere needs its class."""
    text = "`check_marker`, `ProducerState.check_marker`, `own`, `leader_role`, `LeaderRole`, `open()`"
    module = Module("raftlog/own.py", "", "own", ast.parse("own"))
    assert list(unresolved([text], words_near(module))) == ["check_marker"]


def test_an_explained_name_of_another_function_is_seen() -> None:
    """A docstring that explains a parameter under its former name is found."""
    text = """
class Group:
    def members(self, offers):
        '''Put them in. `members` are its; `offers`: all. If `that` is so. `protocols` are old.'''
"""
    module = Module("raftlog/group.py", "", text, ast.parse(text))
    assert list(unexplained(module)) == ["members: protocols"]
