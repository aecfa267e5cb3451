"""Names in docstrings and comments exist: what they point to was perhaps renamed."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from tests.house.source import ROOT, TESTS, Module, every_module, modules_under, nodes_of, walk
from tests.house.wording import prose_of

BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"_*[a-z]\w*(?:\.\w+)*(?:\(\))?|_*[A-Z]\w*(?:\.\w+)*(?:\(\))?")
CONSTANT = re.compile(r"(?<![\w`.\-{$/])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?![\w*\-]|\.\w)")
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
OTHERS = frozenset(
    {
        "CAP_SYS_ADMIN",
        "INVALID_VOTER_KEY",
        "IOCB_CMD_FDSYNC",
        "LastProducerEpoch",
        "OPEN_MAX",
        "String.hashCode",
        "THROTTLING_QUOTA_EXCEEDED",
        "UIO_MAXIOV",
        "UNSTABLE_OFFSET_COMMIT",
        "creq_ts_timeout",
        "io_submit",
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
    found: set[str] = set(keyword.kwlist) | set(dir(builtins))
    for module in sources():
        found.update(module.name.removesuffix(".py").split("/"))
        for kind, attribute in NAMES:
            found.update(filter(None, (getattr(node, attribute) for node in nodes_of(module.tree, kind))))
        prose = set(prose_of(module))
        for node in nodes_of(module.tree, ast.Constant):
            if isinstance(node.value, str) and node.value not in prose:
                found.update(re.findall(r"\w+", node.value))
    return frozenset(word for each in found for word in each.split("."))


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


def unresolved(texts: Iterable[str]) -> Iterator[str]:
    """Yield the names in backticks, constants and raised errors that are nowhere in the code."""
    words = code_words()
    for text in texts:
        for name in BACKTICKS.findall(text):
            if (
                DOTTED.fullmatch(name)
                and name not in OTHERS
                and not _resolves(name.removesuffix("()"), words)
            ):
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


def test_names_in_docstrings_and_comments_exist() -> None:
    """A name in backticks, a constant, and an error after `Raise` are names of the code."""
    found = [f"{each.name}: {name}" for each in every_module() for name in unresolved(prose_of(each))]
    assert not found, "\n".join(found)


def test_a_stale_name_is_seen() -> None:
    """Names that were renamed are found; names of files, settings and shells are not looked up."""
    text = "`no_such_name`, `Log.no_such`, `Log.read`, NO_SUCH_NAME. Raise NoSuchError or KeyError. `raftlog log`"
    assert list(unresolved([text])) == ["no_such_name", "Log.no_such", "NO_SUCH_NAME", "NoSuchError"]
