"""Rules for text about the code: docstrings, test names, and what must not be in a repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import (
    CHAOS,
    PACKAGE,
    ROOT,
    TESTS,
    every_module,
    function_nodes,
    functions_of,
    imports_of,
    judge,
    modules_under,
    nodes_of,
    walk,
)

POINTLESS_NAMES = re.compile(r"(Manager|Helper|Utils?|Handler|Service|Impl|Support)$")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|farm|home/\w+|Users/\w+|tmp/\w+)/")
STANDS_ON_INSIDES = (
    "raftlog/quorum/pysyncobj_adapter.py",
    "chaos/raftlog_chaos/simulator/hosts.py",
    "chaos/raftlog_chaos/simulator/loop.py",
)
PUBLIC_ALL_THE_SAME = frozenset({"_asdict", "_exit", "_manager", "_replace", "_PARTITION_EOF"})
"""Of named tuples, os and librdkafka: documented, in spite of the underscore. `_manager` is kafka-python's only way to
send a request for which it has no method."""
SHORT_LINES = 5
UNDOCUMENTED: frozenset[str] = frozenset(
    {
        "raftlog/protocol/primitives.py:write_compact_string",
        "raftlog/protocol/primitives.py:write_legacy_string",
    }
)
"""Functions without a sentence; the list only shrinks."""
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
REGISTRY_HOSTS = re.compile(
    r"--(extra-)?index-url|index-url\s*=|https?://[\w.:-]*(pypi|simple|proxy|mirror)[\w.:-]*/"
)


def test_every_module_says_its_duty():
    """A room can be understood from the first lines of its files."""
    missing = [module.name for module in every_module() if not ast.get_docstring(module.tree)]
    assert not missing


def test_every_public_function_says_what_it_does():
    """A docstring says what the signature cannot: units, bounds, errors, source. Methods with a clear name need none,
    nor does `handle`: the handler's module describes it.
    """
    missing = [
        function.label
        for module in every_module()
        for function in functions_of(module)
        if function.public and not function.in_class and not ast.get_docstring(function.node)
        if function.lines > SHORT_LINES and function.node.name != "handle"
    ]
    judge(set(missing), UNDOCUMENTED)


def test_no_class_has_a_name_that_says_nothing():
    """Managers, helpers and services are where unrelated things collect."""
    found = [
        f"{module.name}:{node.lineno} {node.name}"
        for module in every_module()
        for node in nodes_of(module.tree, ast.ClassDef)
        if POINTLESS_NAMES.search(node.name)
    ]
    assert not found, "\n".join(found)


def test_every_test_states_its_claim():
    """A name is the claim, one line says it again with its source."""
    missing = [
        function.label
        for module in modules_under(TESTS)
        for function in functions_of(module)
        if function.node.name.startswith("test_") and not ast.get_docstring(function.node)
    ]
    assert not missing, "\n".join(missing)


def test_names_of_tests_are_claims():
    """A name of one or two words is what the test is about (an API, a noun), and does not say what holds."""
    nouns = [
        function.label
        for module in modules_under(TESTS)
        for function in functions_of(module)
        if re.fullmatch(r"test_[a-z0-9]+(_[a-z0-9]+)?", function.node.name)
    ]
    assert not nouns, "\n".join(nouns)


def test_no_test_sleeps_and_none_mocks():
    """A test waits for a condition, or its time is virtual; a mock agrees with every call."""
    found = []
    for module in modules_under(TESTS):
        polling = _inside_condition_loops(module.tree)
        virtual = "raftlog_chaos.simulator" in module.text
        for node in nodes_of(module.tree, ast.Call):
            if _sleeps(node) and id(node) not in polling and not (virtual and "asyncio" in ast.unparse(node)):
                found.append(f"{module.name}:{node.lineno} sleeps")
        found += [f"{module.name}:{each.line} mocks" for each in imports_of(module) if "mock" in each.module]
    assert not found, "\n".join(found)


def _sleeps(call: ast.Call) -> bool:
    """Whether a call waits for time to pass; a sleep of 0 only lets others run."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name != "sleep" or ast.unparse(call.func) not in ("sleep", "time.sleep", "asyncio.sleep"):
        return False
    return not (call.args and ast.unparse(call.args[0]) == "0")


def _inside_condition_loops(tree: ast.Module) -> set[int]:
    """Return the nodes inside `while <condition>` loops, where a short sleep is only the pace of looking."""
    return {
        id(inner)
        for loop in nodes_of(tree, ast.While)
        if not isinstance(loop.test, ast.Constant)
        for inner in walk(loop)
    }


def test_no_module_uses_a_private_name_of_another():
    """A private part can be changed by reading one file. Libraries' insides have their own rooms: the quorum's adapter
    (pysyncobj) and the simulator (asyncio)."""
    found = [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in every_module()
        if not module.name.startswith(STANDS_ON_INSIDES)
        for node in nodes_of(module.tree, ast.Attribute)
        if _is_private(node.attr) and node.attr not in PUBLIC_ALL_THE_SAME
        if ast.unparse(node.value) not in ("self", "cls") and node.attr not in _own_privates(module.tree)
    ]
    assert not found, "\n".join(found)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own_privates(tree: ast.Module) -> set[str]:
    """Return the private names that a module defines itself: its functions, methods, slots and attributes of self."""
    own = {node.name for node in function_nodes(tree)}
    own |= {node.value for node in nodes_of(tree, ast.Constant) if isinstance(node.value, str)}
    own |= {
        node.attr
        for node in nodes_of(tree, ast.Attribute)
        if isinstance(node.ctx, ast.Store) and ast.unparse(node) == f"self.{node.attr}"
    }
    return own


def test_ids_come_from_unpredictable_chance():
    """`Env.unguessable`: an id of a member, a session or a topic that can be guessed can be abused."""
    found = [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in modules_under(PACKAGE)
        for node in nodes_of(module.tree, ast.Attribute)
        if node.attr in ("getrandbits", "randbytes")
        if ast.unparse(node.value).endswith(".random")
    ]
    assert not found, "\n".join(found)


def test_no_except_is_bare():
    """A bare except also catches what must end the process."""
    found = [
        f"{module.name}:{node.lineno}"
        for module in every_module()
        for node in nodes_of(module.tree, ast.ExceptHandler)
        if node.type is None
    ]
    assert not found


def test_nothing_waits_by_select():
    """select(2) fails in a process with more than 1,024 open files; `raftlog.base.readable` does not."""
    found = [
        f"{module.name}:{node.lineno}"
        for module in (*every_module(), *modules_under(TESTS))
        for node in nodes_of(module.tree, ast.Attribute)
        if node.attr == "select" and ast.unparse(node.value) == "select"
    ]
    assert not found


def test_nothing_of_one_machine_and_nothing_unfinished_is_in_the_tree():
    """A clone must work anywhere, and what is written is done."""
    found = []
    for path in _tracked_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        broken = [rule for rule in (MACHINE_PATHS, REGISTRY_HOSTS, UNFINISHED) if rule.search(text)]
        for number, line in enumerate(text.splitlines() if broken else (), 1):
            for rule in broken:
                if rule.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


def _tracked_files() -> Iterator[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        names = listed.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for top in (PACKAGE, CHAOS, TESTS) for path in top.rglob("*.py")]
    for name in names:
        path = ROOT / name
        if path.is_file() and path.suffix in {
            "",
            ".py",
            ".md",
            ".toml",
            ".yml",
            ".yaml",
            ".properties",
            ".sh",
        }:
            yield path
