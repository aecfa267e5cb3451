"""What produce and consume say at a terminal, where a silent command looks stuck."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine
from tests.kit.waits import PATIENCE_S

pytestmark = pytest.mark.slow


class Terminal:
    """A command with a terminal as its standard input and error."""

    def __init__(self, command: subprocess.Popen[bytes], ours: int) -> None:
        self.command, self.ours = command, ours
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read what the terminal shows until a text comes."""
        while text not in self.shown:
            poller = select.poll()
            poller.register(self.ours, select.POLLIN)
            assert poller.poll(PATIENCE_S * 1000), f"{text!r} did not come: {self.shown!r}"
            self.shown += os.read(self.ours, 4096).decode()

    def rest(self) -> str:
        """Return what it shows until the command has ended."""
        shown = b""
        with suppress(OSError):  # the other end is closed
            while piece := os.read(self.ours, 4096):
                shown += piece
        return shown.decode()


@contextmanager
def at_terminal(raftlog: CommandLine, *words: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "raftlog", *words, "-b", raftlog.bootstrap],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(command, ours)
    finally:
        command.kill()
        command.communicate()
        os.close(ours)


def test_produce_says_that_it_reads_and_how_that_ends(raftlog: CommandLine, ten: str) -> None:
    """Not with a pipe, and not with -q."""
    hint = "reading records from this terminal, one per line; Ctrl-D ends"
    with at_terminal(raftlog, "produce", "-t", ten, "-p", "0") as terminal:
        terminal.read_until(hint)
        os.write(terminal.ours, b"one\n\x04")
        terminal.read_until("1 record sent: 1 to partition 0")
        assert terminal.command.wait(PATIENCE_S) == exits.OK
    assert hint not in raftlog.process("produce", "-t", ten, "-p", "0", stdin=b"two\n").stderr
    with at_terminal(raftlog, "produce", "-t", ten, "-p", "0", "-T", "-q") as terminal:
        os.write(terminal.ours, b"three\n\x04")
        assert terminal.command.wait(PATIENCE_S) == exits.OK
        assert terminal.rest() == "three\r\n"  # the terminal's own echo


def test_consume_says_that_it_waits_for_a_first_record(raftlog: CommandLine, ten: str) -> None:
    """Once, when all partitions are at their end, and only before the first record. Not with -e."""
    hint = "waiting for new records; Ctrl-C ends"
    with at_terminal(raftlog, "consume", "-t", ten, "-o", "end") as terminal:
        terminal.read_until(hint)
        terminal.command.send_signal(signal.SIGINT)
        assert terminal.command.wait(PATIENCE_S) == exits.INTERRUPTED
        assert terminal.shown.count(hint) == 1
    for words in (("-o", "end", "-e"), ("-p", "1", "-c", "10"), ("-o", "end", "-e", "-q")):
        with at_terminal(raftlog, "consume", "-t", ten, *words) as terminal:
            assert terminal.command.wait(PATIENCE_S) == exits.OK
            assert terminal.rest() == ""


def test_an_offset_beyond_the_end_is_said_to_be(raftlog: CommandLine, ten: str) -> None:
    """The command would be silent. Of many partitions the first is named; with -q none."""
    whole = ("consume", "-t", ten, "-e", "-o")
    ran = raftlog(*whole, "99", "-p", "1")
    said = f"raftlog: {ten} 1 ends at offset 10, before 99: reading from there\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (exits.OK, "", said)
    assert (
        f"{ten} 0 ends at offset 0, before 11, and so do 1 more: reading from there"
        in raftlog(*whole, "11").stderr
    )
    for words in (("10", "-p", "1"), ("-99",), ("99", "-q"), ("end",)):
        assert raftlog(*whole, *words).stderr == ""
