"""Claims about what all pages show: commands and their options exist, files and lines of Python are right."""

from __future__ import annotations

import ast
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from raftlog.base.config import load_config
from raftlog.base.config.files import parse_toml
from raftlog.cli.commands import COMMANDS
from raftlog.cli.tree import load
from raftlog_chaos.checkers import judge
from raftlog_chaos.history import read_history
from tests.docs.pages import Block, blocks_of
from tests.house.source import ROOT
from tests.kit.waits import run

PAGES = sorted((ROOT / "docs" / "pages").rglob("*.md"))
OF_ITS_OWN = "server"
"""It parses its arguments without typer, which would be slow to load."""


def every(language: str) -> list[Any]:
    """Return the blocks of one language on all pages that are not generated, as parameters."""
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        if page.stem not in ("cli", "configuration", "http", "metrics") or page.parent.name != "reference"
        for number, block in enumerate(blocks_of(page))
        if block.language == language
    ]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of raftlog, without environment, pipes and comments."""
    for line in text.replace("\\\n", " ").splitlines():
        if "raftlog " not in line:
            continue
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "|"]:
            if word in ("|", "||", "&&", ";", ">"):
                if words[:1] == ["raftlog"]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def faults_of(words: list[str]) -> list[str]:
    """Return what is wrong with a command: a name or an option that does not exist."""
    name, *rest = words
    if name.startswith("-") or name == OF_ITS_OWN:
        return []
    if name not in COMMANDS:
        return [name]
    command = load(COMMANDS[name], name)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        return [rest[0]]
    context = typer.Context(command, info_name=name)
    known = {
        each
        for parameter in command.get_params(context)
        for each in (*parameter.opts, *parameter.secondary_opts)
    }
    return [each for each in rest if each.startswith("--") and each.partition("=")[0] not in known]


@pytest.mark.parametrize("block", every("bash"))
def test_commands_and_their_options_exist(block: Block) -> None:
    """A guide that shows an option that is gone would send its reader astray."""
    assert [fault for words in commands(block.text) for fault in faults_of(words)] == []


@pytest.mark.parametrize("block", every("python"))
def test_python_can_be_parsed_and_imports_what_exists(block: Block) -> None:
    """Fragments, too: what is made elsewhere is said in the text."""
    for each in ast.walk(ast.parse(block.text)):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("raftlog"):
            try:
                exec(ast.unparse(each), {})
            except ModuleNotFoundError as error:  # of an extra, which is not installed everywhere
                assert error.name is not None
                assert not error.name.startswith("raftlog")
                assert {alias.name for alias in each.names} <= _defined_in(each.module or "")


def _defined_in(module: str) -> set[str]:
    """Return the classes and functions of a module that cannot be imported."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    return {each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.parametrize("name", ["connect", "faststream", "flink", "quix", "tables"])
def test_an_example_on_a_page_is_its_file(name: str) -> None:
    """The tests of the example run the file."""
    (page,) = (each for each in PAGES if each.stem == name and each.parent.name == "howto")
    shown = {block.title: block.text for block in blocks_of(page) if block.title}
    folder = ROOT / "deploy" / "examples" / name
    assert shown and shown == {title: (folder / title).read_text() for title in shown}


def examples_of_tests() -> Iterator[Any]:
    """Yield the tests and programs of the README and the guide about tests, but for the simulated workload."""
    for page in (ROOT / "README.md", ROOT / "docs" / "pages" / "howto" / "testing.md"):
        for number, block in enumerate(blocks_of(page)):
            is_example = block.title.startswith("test_") or (page.stem == "testing" and not block.title)
            if block.language == "python" and is_example and "simulate(" not in block.text:
                yield pytest.param(block, id=f"{page.stem}-{number}")


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize("block", list(examples_of_tests()))
def test_examples_of_tests_run_as_they_stand(block: Block, tmp_path: Path) -> None:
    """Without a line of the reader's own, by pytest or by Python."""
    name = block.title or "example.py"
    (tmp_path / name).write_text(block.text)
    by_pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis"] if block.title else []
    environment = {each: value for each, value in os.environ.items() if not each.startswith("PYTEST_")}
    ended = run([sys.executable, *by_pytest, name], cwd=tmp_path, env=environment, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not by_pytest or "1 passed" in ended.stdout


@pytest.mark.taste
@pytest.mark.nightly
def test_the_simulated_workload_that_is_shown_runs() -> None:
    """To its last line: what it wrote is there."""
    (page,) = (each for each in PAGES if each.stem == "testing")
    (block,) = (each for each in blocks_of(page) if "simulate(" in each.text)
    shown: dict[str, Any] = {}
    exec(compile(block.text, str(page), "exec"), shown)
    assert shown["run"].result > 0


@pytest.mark.parametrize("block", every("toml"))
def test_configurations_start_a_node(block: Block) -> None:
    """All settings are known, and fit together."""
    assert load_config(parse_toml(block.text), environment={}, flags={}, hostname="one.example")


def test_the_history_that_is_shown_is_valid_and_its_half_is_not() -> None:
    """As the guide says of it: without the poll the value was acknowledged and never read."""
    (block,) = (each.values[0] for each in every("json") if not each.values[0].title)
    lines = block.text.splitlines()
    assert judge(*read_history(lines)).valid
    assert not judge(*read_history(lines[:2])).valid


def test_a_command_that_does_not_exist_is_found() -> None:
    """The rule can fail: on a command, on a verb, on an option."""
    shown = (
        "seq 3 | raftlog produce --no-such x # raftlog nothing\nraftlog nothing\nraftlog topic nothing orders"
    )
    assert [faults_of(words) for words in commands(shown)] == [["--no-such"], ["nothing"], ["nothing"]]
