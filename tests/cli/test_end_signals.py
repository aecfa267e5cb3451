"""The signals that end `raftlog consume` and `produce`: SIGTERM costs no more than Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftlog.cli.end_signals import ended_by_signals
from tests.cli.live import CommandLine
from tests.kit.waits import ended

LINES = 5000


@contextmanager
def running(raftlog: CommandLine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "raftlog", *arguments, "-b", raftlog.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sigterm_is_an_interrupt_and_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    """Settings from before are set afterwards."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt), ended_by_signals():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.clients
@pytest.mark.slow
def test_a_group_knows_what_was_printed_before_sigterm_and_does_not_wait(
    raftlog: CommandLine, name: str
) -> None:
    """`timeout 60 raftlog consume -G ...`: offsets committed, membership given up."""
    raftlog("topic", "create", name, "-p", "1")
    raftlog("produce", "-t", name, stdin=b"one\ntwo\nthree\n")
    group = ["-G", f"group-{name}", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=60000"]
    with running(raftlog, "consume", *group, "-u", name) as reader:
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
        reader.send_signal(signal.SIGTERM)
        assert ended(reader) == 130
    described = json.loads(raftlog("group", "describe", f"group-{name}", "-o", "json").out)
    assert described["members"] == []
    again = raftlog("consume", *group, "-e", name).out
    assert again in (b"", b"three\n")  # the signal may have come between a record's print and the note of it


@pytest.mark.clients
@pytest.mark.slow
def test_what_was_read_before_sigterm_is_sent(raftlog: CommandLine, name: str) -> None:
    """Records that still waited for a batch to fill are not dropped."""
    raftlog("topic", "create", name, "-p", "1")
    with running(raftlog, "produce", "-t", name, "-T", "-X", "linger.ms=60000") as sender:
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdin.write(b"".join(b"%d\n" % number for number in range(LINES)))
        sender.stdin.flush()
        printed = sender.stdout.read(1)  # -T prints what was handed over, as kcat without delimiters
        sender.send_signal(signal.SIGTERM)
        printed += sender.stdout.read()
        assert ended(sender) == 130
    assert printed and raftlog("consume", "-t", name, "-e", "-f", "%s").out.startswith(printed)
