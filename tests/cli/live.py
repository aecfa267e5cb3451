"""The command line at a cluster that runs: in this process, which is fast, or as a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from typer.testing import CliRunner

from raftlog.cli.app import app
from tests.kit.waits import run, until

Rows = list[dict[str, Any]]


class Ran(NamedTuple):
    """The outcome of a command."""

    returncode: int
    out: bytes
    err: bytes

    @property
    def stdout(self) -> str:
        return self.out.decode()

    @property
    def stderr(self) -> str:
        return self.err.decode()


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Run a command that needs no cluster, in this process; returns (exit code, output, errors)."""
    ran = CliRunner().invoke(app, arguments, prog_name="raftlog", catch_exceptions=False)
    return ran.exit_code, ran.stdout, ran.stderr


class CommandLine:
    """`raftlog …` with the address of the cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run a command in this process. A traceback would be raised."""
        ran = CliRunner().invoke(
            app,
            [*arguments, "-b", self.bootstrap],
            input=stdin,
            catch_exceptions=False,
            prog_name="raftlog",
        )
        return Ran(ran.exit_code, ran.stdout_bytes, ran.stderr_bytes)

    def process(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run a command as a person does."""
        ran = run([sys.executable, "-m", "raftlog", *arguments, "-b", self.bootstrap], stdin=stdin)
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def rows(self, *arguments: str) -> Rows:
        """Return what a listing command prints; it must succeed."""
        ran = self(*arguments, "-o", "jsonl")
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def rows_once(self, holds: Callable[[Rows], object], *arguments: str) -> Rows:
        """Return what a listing command prints once that holds: any node is asked, and some hear of a change later."""
        found: list[Rows] = []

        def look() -> bool:
            ran = self(*arguments, "-o", "jsonl")
            found.append([json.loads(line) for line in ran.stdout.splitlines()])
            return ran.returncode == 0 and bool(holds(found[-1]))

        until(look, " ".join(arguments), seen=lambda: found[-1:])
        return found[-1]
