"""The code blocks of a Markdown page, run in order as a reader would run them, against a cluster on other ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.house.source import ROOT
from tests.kit.waits import ended, run, until

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
STARTS_CLUSTER = re.compile(r"raftlog dev\b(?! [a-z])(.*)")
INSTALLS = re.compile(r"python3 -m venv|\. \.venv/|pip install '\.\[(\w+)\]'$")
LOOKS = re.compile(r"raftlog (cluster health|partition list)|curl -s")
USUAL_PORTS = {"localhost:9092": "bootstrap", "localhost:9644": "http"}


class Block(NamedTuple):
    """A fence of a page: its language, the file that it is shown as, and its text."""

    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return all blocks of a page, in order."""
    return [Block(*each) for each in FENCE.findall(page.read_text(encoding="utf-8"))]


class Reader:
    """Follows the instructions of pages, in a folder of its own. The block must print the page's output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dev: subprocess.Popen[str] | None = None
        self._urls: dict[str, str] = {}
        self.printed = ""

    def close(self) -> None:
        """End the cluster, if a page started it."""
        if self._dev is not None:
            self._dev.terminate()
            ended(self._dev)
            self._dev.communicate()
            self._dev = None

    def follow(self, page: Path) -> None:
        """Run every block of a page. Raises AssertionError where it is not as shown."""
        last = Block("", "", "")
        for block in blocks_of(page):
            if block.language != "text":
                self._run(block)
                last = block
            elif LOOKS.match(last.text):
                self._look_until(last, block.text)
            else:
                assert shows(self.printed, block.text), f"{block.text}\nprinted:\n{self.printed}"

    def _look_until(self, block: Block, shown: str) -> None:
        """Repeat commands that only look, until they print what is shown: a cluster notices in its own time."""

        def is_shown() -> bool:
            self._run(block)
            return shows(self.printed, shown)

        until(is_shown, f"a cluster shows {shown}", seen=lambda: self.printed)

    def _run(self, block: Block) -> None:
        if block.language == "python":
            (self._folder / (block.title or "example.py")).write_text(self._here(block.text))
            if not block.title:
                self.printed = self._shell(f"{sys.executable} example.py")
            return
        assert block.language == "bash", f"a reader cannot run {block.language}"
        lines = [line for line in block.text.splitlines() if not checked_without_running(line)]
        started = [found for found in map(STARTS_CLUSTER.match, lines) if found]
        if started:
            assert len(lines) == 1, f"a cluster is started alone: {lines}"
            self._start(started[0][1].split("#")[0].split())
        elif lines:
            self.printed = self._shell("\n".join(lines))

    def _start(self, arguments: list[str]) -> None:
        if self._dev is not None:
            return
        command = [sys.executable, "-m", "raftlog", "dev", *arguments]
        self._dev = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, text=True)
        assert self._dev.stdout is not None
        self.printed = ""
        while "Ctrl-C" not in self.printed and (line := self._dev.stdout.readline()):
            self.printed += line
        kafka = re.search(r"Kafka +127\.0\.0\.1:(\d+)", self.printed)
        http = re.search(r"HTTP +http://127\.0\.0\.1:(\d+)", self.printed)
        assert kafka and http, self.printed
        self._urls = {"bootstrap": f"localhost:{kafka[1]}", "http": f"localhost:{http[1]}"}

    def _here(self, text: str) -> str:
        """Return a text with the ports of this reader's cluster."""
        for usual, place in USUAL_PORTS.items():
            text = text.replace(usual, self._urls.get(place, usual))
        return text

    def _shell(self, text: str) -> str:
        """Run commands, with this interpreter's programs first on the path, and return what they print."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAFTLOG_")}
        environment |= {
            "PATH": f"{self._programs()}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        }
        if self._urls:
            environment["RAFTLOG_BOOTSTRAP"] = self._urls["bootstrap"]
            environment["RAFTLOG_HTTP"] = f"http://{self._urls['http']}"
        found = run(
            ["bash", "-euo", "pipefail", "-c", self._here(text)],
            cwd=self._folder,
            env=environment,
            text=True,
        )
        assert found.returncode == 0, f"{text}\n{found.stdout}\n{found.stderr}"
        printed: str = found.stdout
        return printed

    def _programs(self) -> Path:
        """Return a folder with `raftlog`, `python` and `python3` as a virtual environment has them."""
        folder = self._folder / ".programs"
        if not folder.exists():
            folder.mkdir()
            for name, command in (("python", ""), ("python3", ""), ("raftlog", "-m raftlog")):
                program = folder / name
                program.write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
                program.chmod(0o755)
        return folder


def checked_without_running(line: str) -> bool:
    """Return whether a line installs something or runs a target of the Makefile, which is checked and not run."""
    if found := INSTALLS.match(line):
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert found[1] is None or found[1] in extras, line
        return True
    if line.startswith("make "):
        target = line.split("#", maxsplit=1)[0].split()[1]
        dry = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=False)
        assert dry.returncode == 0, line
        return True
    return not line.strip()


def shows(printed: str, shown: str) -> bool:
    """Return whether a command printed what a page shows: numbers may differ, and `...` stands for anything."""
    pieces = _without_numbers(shown.strip("\n")).split("...")
    pattern = ".*".join(map(re.escape, pieces))
    return re.match(pattern, _without_numbers(printed), re.DOTALL) is not None


def _without_numbers(text: str) -> str:
    text = re.sub(r"\d+([.,]\d+)*", "#", text)
    return re.sub(r"[ \t]+", " ", text)


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """Yield a reader; its cluster ends with the block."""
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.close()
