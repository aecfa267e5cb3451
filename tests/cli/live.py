"""A cluster that runs and the command line as a process, as a person has them."""

from __future__ import annotations

import subprocess
import sys


class CommandLine:
    """`raftlog …` as a process, told where the cluster is."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run a command; what it prints must be UTF-8."""
        ran = self.bytes(*arguments, stdin=stdin)
        return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def bytes(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command."""
        return subprocess.run(
            [sys.executable, "-m", "raftlog", *arguments, "-b", self.bootstrap],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        """Return what a listing command prints; it must succeed."""
        import json

        ran = self(*arguments, "-o", "jsonl")
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]
