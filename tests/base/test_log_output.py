"""Claims about the place that lines of the log go to: writing never raises and never waits, whatever becomes of it."""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from raftlog.base import log_output
from raftlog.base.log import BEFORE_LINE, LOGGERS, configure_log, get_logger, log_state, separate_log
from raftlog.base.log_output import BEHIND, MAX_WAITING_BYTES, DescriptorOutput, LogOutput, Lost, output_of
from tests.kit.waits import until


class Pipe:
    """A pipe with a reader that may stall or close. `output` writes to it."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.output = DescriptorOutput(writer)
        os.close(writer)
        self.lost: list[Lost] = []
        self.output.on_recovery = self.lost.append

    def read(self, count: int) -> bytes:
        """Read this many bytes."""
        received = b""
        while len(received) < count:
            received += os.read(self.reader, count - len(received))
        return received

    def close_reader(self) -> None:
        """Close the reading end; a second call has no effect."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    found = Pipe()
    yield found
    found.close_reader()
    found.output.close()


@pytest.fixture(autouse=True)
def _fresh_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    LOGGERS.start("INFO")


def test_lines_arrive_in_their_order(pipe: Pipe) -> None:
    """A thread writes them."""
    for number in range(100):
        pipe.output.write(f"line {number}")
    assert pipe.read(790).decode().splitlines() == [f"line {number}" for number in range(100)]
    assert (pipe.output.reason, pipe.output.lines_lost) == ("", 0)


def test_closed_pipe_raises_nothing_and_is_named(pipe: Pipe) -> None:
    """The reader of standard error has died."""
    pipe.close_reader()
    pipe.output.write("unheard")
    until(
        lambda: pipe.output.reason == "Broken pipe", "the failure is noted", seen=lambda: pipe.output.reason
    )


def test_full_pipe_holds_up_no_writer_and_its_lines_are_counted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled reader is like a closed reader. When it reads on, the gap is reported."""
    monkeypatch.setattr(log_output, "STALLED_S", 0.0)
    line = "x" * 999
    fit = MAX_WAITING_BYTES // 1000
    for _ in range(fit + 200):
        pipe.output.write(line)
    until(lambda: pipe.output.reason, "the stall is noted")
    assert pipe.output.reason == BEHIND
    lost = pipe.output.lines_lost
    assert 0 < lost <= 200
    pipe.read((fit + 200 - lost) * 1000)
    until(lambda: pipe.lost, "the lines that were lost are reported")
    assert [each.lines for each in pipe.lost] == [lost]
    pipe.output.write("after")
    assert pipe.read(6) == b"after\n"
    until(lambda: not pipe.output.reason, "all is well again")


def test_pipe_that_another_program_made_non_blocking_loses_nothing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag belongs to the open file, shared with all processes that inherited it; a shell or node.js sets it."""
    monkeypatch.setattr(log_output, "RETRY_S", 1e6)
    flags = fcntl.fcntl(pipe.output._descriptor, fcntl.F_GETFL)
    fcntl.fcntl(pipe.output._descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for _ in range(200):
        pipe.output.write("x" * 999)
    assert pipe.read(200_000).count(b"\n") == 200
    assert pipe.output.lines_lost == 0


def test_full_disk_is_named_and_its_lines_wait() -> None:
    """/dev/full refuses every write, as a file on a full disk does."""
    with open("/dev/full", "w") as full:
        output = output_of(full)
        output.write("unwritten")
        until(lambda: output.reason == "No space left on device", "it is noted", seen=lambda: output.reason)
        assert output.lines_lost == 0
        output.close()


def test_line_that_a_full_disk_took_in_part_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line does not run into it."""
    taken: list[bytes] = []
    room = [5]

    def write_some(_descriptor: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written, room[0] = content[: room[0]], room[0] - len(content[: room[0]])
        taken.append(written)
        return len(written)

    with open(os.devnull, "w") as stream:
        output = output_of(stream)
    monkeypatch.setattr(log_output.os, "write", write_some)
    output.write("first line")
    until(lambda: output.reason, "there is no room")
    room[0] = 1000
    output.write("second line")
    output.flush()
    until(lambda: b"".join(taken).endswith(b"second line\n"), "both are written")
    assert b"".join(taken) == b"first line\nsecond line\n"
    monkeypatch.undo()
    output.close()


def test_descriptor_that_its_owner_closes_is_never_another_files(tmp_path: Path) -> None:
    """The number would be given to the next file that is opened: a segment, say."""
    with open(tmp_path / "log", "w") as stream:
        output = output_of(stream)
        number = stream.fileno()
    with open(tmp_path / "segment", "w") as segment:
        assert segment.fileno() == number
        output.write("a line")
        output.close()
    assert ((tmp_path / "log").read_text(), (tmp_path / "segment").read_text()) == ("a line\n", "")


def test_closed_output_counts_its_lines(pipe: Pipe) -> None:
    """Its copy of the descriptor is closed by then."""
    pipe.output.close()
    pipe.output.write("too late")
    assert pipe.output.lines_lost == 1


def test_forked_process_ends_without_the_log(pipe: Pipe) -> None:
    """The thread does not exist there, and may have held the lock: the process does not wait for it."""
    pipe.output.write("parent")
    with pipe.output._changed:
        pid = os.fork()
        if not pid:
            pipe.output.write("child")
            pipe.output.flush()
            pipe.output.close()
            os._exit(pipe.output.lines_lost)
    assert pipe.read(7) == b"parent\n"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_process_without_standard_error_counts_its_lines() -> None:
    """Python has no stream then."""
    output = output_of(None)
    output.write("unheard")
    assert (output.lines_lost, output.reason) == (1, "standard error is closed")


class Broken(io.StringIO):
    """A stream with writes that fail on request."""

    fails = True

    def write(self, text: str) -> int:
        if self.fails:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def test_logger_never_raises_over_its_stream_and_says_how_many_lines_were_lost() -> None:
    """Every walk of a node goes on; the gap in the log is one line of it."""
    stream = Broken()
    configure_log(stream=stream)
    log = get_logger("node")
    log.info("unheard")
    log.error("unheard", exc_info=ValueError("of a request"))
    assert log_state()[:2] == ("Broken pipe", 2)
    stream.fails = False
    log.info("heard")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "heard"
    assert {
        "event": "log_lines_lost",
        "lines": 2,
        "reason": "Broken pipe",
        "level": "warning",
    }.items() <= second.items()
    assert log_state()[:2] == ("", 2)


def test_logger_never_raises_over_what_makes_its_lines() -> None:
    """A line that a processor fails to make is counted."""
    stream = io.StringIO()
    configure_log(stream=stream)

    def fail() -> None:
        raise RecursionError("too deep")

    token = BEFORE_LINE.set(fail)
    try:
        get_logger("node").info("unheard")
        get_logger("node").exception("unheard")
    finally:
        BEFORE_LINE.reset(token)
    assert log_state()[:2] == ("RecursionError: too deep", 2)
    get_logger("node").info("heard")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "heard",
        "log_lines_lost",
    ]


class Unspeakable:
    """A fact that cannot be written."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("fact", [Unspeakable(), "caf\udce9", [Unspeakable()], {"a": "\ud800"}, b"\xff"])
def test_fact_that_cannot_be_written_costs_no_line(format: str, fact: Any) -> None:
    """The event and its other facts are there."""
    stream = io.StringIO()
    configure_log(format=format, stream=stream)
    get_logger("node").warning("odd_request", path=fact, peer="client-7")
    assert "odd_request" in stream.getvalue() and "client-7" in stream.getvalue()
    assert log_state()[:2] == ("", 0)


def test_stream_that_has_no_such_letters_gets_them_escaped() -> None:
    """A terminal of another locale."""
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="ascii")
    configure_log(format="console", stream=stream)
    get_logger("node").info("topic_created", topic="café")
    assert b"caf\\xe9" in content.getvalue()


def test_exception_whose_text_raises_costs_no_line() -> None:
    """Its type and its place are logged."""
    stream = io.StringIO()
    configure_log(stream=stream)
    try:
        raise OddError
    except OddError as error:
        get_logger("node").error("crashed", reason=error, exc_info=error)
    assert "OddError" in stream.getvalue() and "crashed" in stream.getvalue()


class OddError(Exception):
    """An exception without a printable text."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


def test_separate_log_is_judged_by_itself() -> None:
    """Another node of this process may have a log without errors."""
    configure_log(stream=io.StringIO())
    with separate_log(Broken()):
        get_logger("node").info("unheard")
        assert log_state()[:2] == ("Broken pipe", 1)
    assert log_state()[:2] == ("", 0)


def test_lines_of_no_output_are_counted() -> None:
    """Before the log is set up there is none."""
    output = LogOutput()
    output.write("early")
    assert output.lines_lost == 1
