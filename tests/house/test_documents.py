"""Documents that people read: short lines, and names of files and modules that exist."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from raftlog.base.config import NodeConfig, TopicConfig, settings_of
from tests.house.source import ROOT
from tests.house.wording import Rates, count_words, rates_of

COLUMNS = 120
CEILING = Rates(who=0.8, tell=0.4, one=5.1, nobody=0.6, those=0.2)
"""Words of the five families per 1,000 words of a room of documents; see `tests.house.wording`. It only gets lower."""
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
BACKTICKS = re.compile(r"`([^`]+)`")
PATH = re.compile(r"\.?[\w-]+(/[\w.-]+)*/?")
SUFFIXES = (".py", ".md", ".toml", ".sh", ".yml", ".yaml", ".js", ".svg")
MODULE = re.compile(r"(?:raftlog|raftlog_chaos|pyspark_raftlog|tests)(?:\.\w+)+")
TOPS = ("raftlog", "chaos", "docs", "tests", "deploy", "pyspark_raftlog", ".ci", ".github")
MADE_BY_USERS = frozenset(
    {
        "chaos-runs/",
        "lake.py",
        "places/",
        "power-cut-runs/",
        "raftlog.http.url",
        "raftlog.registry.url",
        "raftlog.metadata.version",
        "raftlog.mirror.source",
        "suites/",
    }
)
"""Names of files that readers make themselves, of a header of records, a setting of contexts, and a feature."""


def documents() -> list[Path]:
    """Return every Markdown file that is tracked, or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_lines_of_markdown_are_short() -> None:
    """120 columns at most, so that a difference between versions can be read; docs/wrap.py wraps them."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
        for path in documents()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not found, "\n".join(found)


def test_documents_name_their_subjects() -> None:
    """The rates of `who`, `tell`, `one`, `nobody` and `those that` stay below a ceiling in every room."""
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for path in documents():
        folder = path.relative_to(ROOT).parent
        rooms[str(folder) if "pages" in folder.parts[1:] else "documents"] += prose_in(path.read_text())
    found = [
        f"{room}: {count} {family} in 1,000 words, allowed are {allowed}"
        for room, texts in rooms.items()
        for family, count, allowed in zip(Rates._fields, rates_of(count_words(texts)), CEILING, strict=True)
        if count > allowed
    ]
    assert not found, "\n".join(found)


def prose_in(text: str) -> list[str]:
    """Return the paragraphs of a document, without code."""
    without_code = re.sub(r"^ {4}.*$", "", FENCED.sub("", text), flags=re.MULTILINE)
    return re.split(r"\n\s*\n", without_code)


def test_names_of_files_and_modules_resolve() -> None:
    """A path, a module or a setting of raftlog in backticks has to exist.

    A path is relative to the root, to raftlog/, or to the document's own folder. A file name alone is enough if
    the tree has a file of that name.
    """
    found = [
        f"{path.relative_to(ROOT)}: `{name}`"
        for path in documents()
        for name in _names(path.read_text(encoding="utf-8"))
        if not _resolves(name, path.parent)
    ]
    assert not found, "\n".join(found)


def _names(text: str) -> Iterator[str]:
    """Yield what looks like a path or a module."""
    for name in BACKTICKS.findall(FENCED.sub("", text)):
        if MODULE.fullmatch(name) or (PATH.fullmatch(name) and (name.endswith(SUFFIXES) or _is_folder(name))):
            yield name


def _is_folder(name: str) -> bool:
    """`broker/` is a folder; `/metrics` and `application/json` are not, but `tests/house` is."""
    return name.endswith("/") or ("/" in name and name.split("/", maxsplit=1)[0] in TOPS)


def _resolves(name: str, folder: Path) -> bool:
    if name in MADE_BY_USERS or name in settings_of(NodeConfig) or name in settings_of(TopicConfig):
        return True
    if MODULE.fullmatch(name):
        return _module_exists(name.split("."))
    if any((start / name).exists() for start in (ROOT, ROOT / "raftlog", ROOT / "chaos", folder)):
        return True
    return any(each == name.rstrip("/") or each.endswith(f"/{name.rstrip('/')}") for each in _tree())


def _module_exists(parts: list[str]) -> bool:
    """Return whether a dotted name is a module, or a name in a module: `raftlog_chaos.simulate`."""
    tops = (ROOT, ROOT / "chaos")
    for length in range(len(parts), 0, -1):
        for top in tops:
            path = top.joinpath(*parts[:length])
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if path.is_dir() and length == len(parts):
                return True
            if file.is_file():
                rest = parts[length:]
                return not rest or re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")) is not None
    return False


@cache
def _tree() -> tuple[str, ...]:
    """Return every tracked file and folder, from the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = listed.stdout.splitlines()
    folders = {str(parent) for name in files for parent in Path(name).parents}
    return (*files, *folders)


def test_code_in_documents_is_no_prose() -> None:
    """Fenced and indented lines are left out of the counts."""
    text = "They say.\n\n    tell who\n\n```\nnobody\n```\n\nWho is told?\n"
    assert rates_of(count_words(prose_in(text))) == Rates(who=200, tell=200, one=0, nobody=0, those=0)


def test_the_rules_can_fail() -> None:
    """It finds a path, a module and a folder that do not exist, and ignores text that only resembles a name."""
    text = "`no/such.py` `raftlog.no_such` `raftlog/nowhere` `nowhere/` `raftlog.testing.cluster` `GET /metrics` `a/b`"
    assert [name for name in _names(text) if not _resolves(name, ROOT)] == [
        "no/such.py",
        "raftlog.no_such",
        "raftlog/nowhere",
        "nowhere/",
    ]
