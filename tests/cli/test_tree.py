"""The tree of commands: how it fails, what it loads, what a shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raftlog.base import variables
from raftlog.cli import exits
from raftlog.cli.app import app
from raftlog.cli.cluster_command import COMPLETION_S
from raftlog.cli.commands import COMMANDS
from raftlog.cli.target import TIMEOUT_S
from raftlog.cli.tree import load
from tests.cli.live import CommandLine, invoke
from tests.kit.waits import run

ROOT = Path(__file__).parents[2]
PROMISED = (
    "demo dev server format cluster topic partition config broker quorum group produce consume "
    "sim chaos attack fuzz check bench version"
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tpic"], "raftlog: No such command 'tpic'. Did you mean 'topic'? (see raftlog --help)\n"),
        (
            ["topic", "lst"],
            "raftlog: No such command 'lst'. Did you mean 'list'? (see raftlog topic --help)\n",
        ),
        (["topic", "list", "--foo"], "raftlog: No such option: --foo (see raftlog topic list --help)\n"),
        (
            ["topic", "list", "--http", "h"],
            "raftlog: No such option: --http (see raftlog topic list --help)\n",
        ),
        (
            ["consume", "-t", "t", "-g", "g"],
            "raftlog: No such option: -g. Did you mean -G? (see raftlog consume --help)\n",
        ),
        (
            ["produce", "--compresion", "gzip"],
            "raftlog: No such option: --compresion. Did you mean --compression? (see raftlog produce --help)\n",
        ),
        (
            ["up"],
            "raftlog: No such command 'up'. Did you mean `raftlog dev`? (see raftlog --help)\n",
        ),
        (
            ["consume", "--share"],
            "raftlog: Option '--share' requires an argument (see raftlog consume --help)\n",
        ),
        (
            ["topic", "create", "-p"],
            "raftlog: Option '-p' requires an argument (see raftlog topic create --help)\n",
        ),
        (["sim", "--seed"], "raftlog: Option '--seed' requires an argument (see raftlog sim --help)\n"),
        (["topic", "create"], "raftlog: Missing argument 'TOPIC' (see raftlog topic create --help)\n"),
        (["dev", "--nodes", "many"], None),
        (["topic", "list", "-o", "xml"], None),
        (["topic", "list", "--timeout", "0"], None),
        (["consume", "-t", "t", "-c", "few"], None),
        (["sim", "--seed", "-1"], None),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_to_read_more(arguments: list[str], said: str | None) -> None:
    """Not a page of help, not a traceback."""
    code, out, err = invoke(*arguments)
    assert (code, out) == (exits.USAGE, "")
    assert err.startswith("raftlog: ") and err.endswith("--help)\n") and err.count("\n") == 1
    assert said is None or err == said


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["partition", "reassignments"], ["consume", "-t", "t"]]
)
@pytest.mark.parametrize("port", ["abc", "0", "65536", "", "-1"])
def test_port_that_is_none_is_named(command: list[str], port: str) -> None:
    """Not a timeout after ten seconds, whichever library would have asked."""
    ran = invoke(*command, "-b", f"localhost:9092, localhost:{port}")
    said = f"-b localhost:{port}: the port must be a number from 1 to 65535, but is {port!r}"
    assert ran == (exits.USAGE, "", f"raftlog: {said}\n")


@pytest.mark.parametrize("host", ["<host>", "${HOST}", "a b", "PLAINTEXT://user@a"])
def test_host_that_cannot_be_one_is_named(host: str) -> None:
    """A broker of that name is never found, and the library says that none answers."""
    code, _, err = invoke("topic", "list", "-b", f"localhost:9092,{host}:9092")
    bare = host.removeprefix("PLAINTEXT://")
    said = f"raftlog: -b {host}:9092: {bare!r} is neither a host name nor an IP address\n"
    assert (code, err) == (exits.USAGE, said)


def test_every_command_has_a_page_of_help_and_a_line_in_the_first_one() -> None:
    """Every listed command can be loaded; a group's own commands, too."""
    first = invoke("--help")[1]
    assert set(PROMISED.split()) <= set(COMMANDS)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in first and entry.help in first.replace("\n" + " " * 14, " ")
        if name == "server":
            continue
        code, page, _ = invoke(name, "--help")
        assert code == 0 and page.startswith(f"Usage: raftlog {name} "), page
        assert invoke(name, "-h")[1] == page


def test_the_page_of_the_command_line_names_every_command() -> None:
    """docs/pages/howto/cli.md has an item for each noun, with its verbs as `--help` lists them, and all others."""
    page = (ROOT / "docs/pages/howto/cli.md").read_text()
    items = re.findall(r"^- `([\w-]+)`: (.*?)(?=\n- |\n\n)", page, re.MULTILINE | re.DOTALL)
    verbs_of = {noun: re.findall(r"`([a-z][a-z-]*)`", words) for noun, words in items}
    for name in COMMANDS:
        listed = invoke(name, "--help")[1].partition("Commands:")[2].partition("Exit codes:")[0]
        assert verbs_of.get(name, []) == re.findall(r"^  ([a-z][a-z-]*)  ", listed, re.MULTILINE), name
        assert f"`{name}`" in page, name


def test_help_fits_80_columns_and_names_every_exit_code() -> None:
    """Also where it is no terminal."""
    page = invoke("--help")[1]
    assert max(map(len, page.splitlines())) <= 80
    for code, meaning in exits.TABLE:
        assert f"  {code} " in page and meaning in page


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "server"])
def test_help_of_a_group_cuts_no_sentence_short(name: str) -> None:
    """Each of its commands has its whole first sentence, on as many lines as it needs."""
    page = invoke(name, "--help")[1]
    commands = page.partition("Commands:")[2].partition("Exit codes:")[0]
    assert "..." not in commands and max(map(len, page.splitlines())) <= 80
    assert all(each.endswith(".") for each in re.split(r"\n  (?=\S)", commands.rstrip())[1:]), commands


def test_a_letter_means_one_thing() -> None:
    """The table of all letters, but for the commands that take those of another program: kcat's, or kafka-storage's."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for name, entry in COMMANDS.items():
        if name == "server":
            continue
        command = load(entry, name)
        for each in (command, *getattr(command, "commands", {}).values()):
            for option in each.params:
                long = [name.removeprefix("--") for name in option.opts if name.startswith("--")] or [
                    option.name
                ]
                for letter in (name[1] for name in option.opts if re.fullmatch("-[^-]", name)):
                    if LETTERS_OF_OTHERS.get(name, {}).get(letter) != long[0]:
                        meanings[letter].add(long[0])
    assert {letter: " ".join(sorted(names)) for letter, names in meanings.items()} == LETTERS


LETTERS = {
    "D": "delimiter",
    "E": "no-exit-on-error",
    "F": "command-config",
    "G": "group",
    "H": "header",
    "I": "initial-controllers",
    "J": "json",
    "K": "key-delimiter",
    "N": "no-initial-controllers",
    "S": "add-scram",
    "T": "tee",
    "X": "client setting",  # one meaning: a setting of the client library, which the Spark jobs call --client
    "Z": "null",
    "b": "bootstrap",
    "c": "config",
    "d": "dry-run",
    "e": "exit-when-healthy",
    "f": "format",
    "g": "ignore-formatted",
    "j": "jobs",
    "k": "key",
    "l": "lines",
    "m": "timeout",
    "n": "num",
    "o": "output",
    "p": "partition partitions port",  # kcat's and rpk's two, and that of `raftlog dev`, which has no partitions
    "q": "quiet",
    "r": "replicas",
    "t": "topic topics",
    "u": "user",
    "v": "verbose",
    "w": "watch",
    "z": "compression",
}
"""Each letter, and what it means: another meaning takes a long option alone."""
LETTERS_OF_OTHERS = {
    "consume": {
        "c": "count",
        "e": "exit-at-end",
        "o": "offset",
        "r": "registry",
        "s": "decode",
        "u": "unbuffered",
    },
    "produce": {"c": "count"},
    "format": {"s": "standalone", "t": "cluster-id"},
}
"""Letters that users of kcat and of kafka-storage.sh know, in the commands that they know."""


def test_a_group_alone_shows_its_help_on_standard_error() -> None:
    """It is wrong usage, all the same: a script must notice."""
    code, out, err = invoke("topic")
    assert (code, out) == (exits.USAGE, "") and err.startswith("Usage: raftlog topic ")


def test_a_command_is_loaded_alone() -> None:
    """`raftlog topic --help` needs no client library, and no other command's module."""
    code = """
import sys
sys.argv = ["raftlog", "topic", "--help"]
from raftlog.cli import main
try:
    main()
except SystemExit:
    pass
others = ("confluent_kafka", "kafka", "rich", "aiohttp", "asyncio", "raftlog.cli.group", "raftlog.testing.cluster")
sys.stderr.write(",".join(name for name in others if name in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "add-partitions" in ran.stdout and ran.stderr == ""


def asked_by_bash(words: str) -> dict[str, str]:
    """Return the environment in which bash asks for the completions of a line's last word."""
    position = str(len(words.split()) - 1)
    return {"_RAFTLOG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}


def complete(words: str) -> list[str]:
    """Return the completions of a line's last word."""
    ran = CliRunner().invoke(app, env=asked_by_bash(words), prog_name="raftlog", catch_exceptions=False)
    assert ran.stderr == ""
    return ran.stdout.split()


def test_commands_are_completed() -> None:
    """Without a request to a cluster; bash starts a process for it."""
    environment = {**os.environ, **asked_by_bash("raftlog pa")}
    ran = run([sys.executable, "-m", "raftlog"], text=True, env=environment)
    assert (ran.stdout.split(), ran.stderr) == (["partition"], "")
    assert complete("raftlog topic al") == ["alter"]


def test_topics_are_completed_from_the_cluster(raftlog: CommandLine, name: str) -> None:
    """As arguments and as values of -t; -b on the line counts."""
    raftlog("topic", "create", name, f"{name}-more")
    both = [name, f"{name}-more"]
    assert complete(f"raftlog topic describe -b {raftlog.bootstrap} {name}") == both
    assert complete(f"raftlog consume -b {raftlog.bootstrap} -t {name}") == both


def test_completion_from_a_cluster_that_is_not_there_is_empty_and_soon(monkeypatch) -> None:
    """A shell that waits for words is a shell that hangs: the client gives up long before its usual 10 s."""
    assert COMPLETION_S <= TIMEOUT_S / 4
    assert complete("raftlog topic describe -b 127.0.0.1:1 o") == []


def test_a_closed_pipe_ends_it_without_a_traceback(raftlog: CommandLine, name: str) -> None:
    """raftlog consume | head -1"""
    raftlog("topic", "create", name, "-p", "1")
    raftlog("produce", "-t", name, stdin=b"line\n" * 20_000)  # more than a pipe holds
    command = f"{sys.executable} -m raftlog consume -b {raftlog.bootstrap} -t {name} -e | head -1"
    ran = run(command, text=True)
    assert (ran.stdout, ran.stderr) == ("line\n", "")


def test_no_colour_and_no_progress_without_a_terminal(raftlog: CommandLine, name: str, tmp_path) -> None:
    """Neither of them belongs into a file."""
    raftlog("topic", "create", name)
    (tmp_path / "lines").write_bytes(b"x\n" * 1000)
    sent = raftlog.process("produce", "-t", name, "-l", str(tmp_path / "lines"))
    assert (sent.returncode, sent.out, sent.err) == (0, b"", b"")
    assert b"\x1b" not in raftlog.process("topic", "list").out


def test_each_variable_of_an_option_is_known_to_be_none_of_a_nodes_settings() -> None:
    """A node would warn of it. All commands are loaded and looked through."""
    waiting: list[Any] = [load(entry, name) for name, entry in COMMANDS.items()]
    found: set[str] = set()
    while waiting:
        command = waiting.pop()
        found |= {str(each.envvar) for each in command.params if each.envvar}
        waiting += getattr(command, "commands", {}).values()
    assert variables.BOOTSTRAP in found
    assert found <= variables.NOT_SETTINGS
