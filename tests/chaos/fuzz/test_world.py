"""Frames through whole nodes: valid frames pass, and planted mistakes are found with the frames that show them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from raftlog.broker.handlers import list_groups
from raftlog.broker.network.server import BrokerServer
from raftlog.protocol.apis import ApiKey
from raftlog_chaos.attacks.target import framed, head, legacy, raw
from raftlog_chaos.fuzz.campaign import Summary, reduced, run_chunk
from raftlog_chaos.fuzz.draw import KnownValues
from raftlog_chaos.fuzz.findings import Finding, read_regression, write_regression
from raftlog_chaos.fuzz.frames import Frame, Frames
from raftlog_chaos.fuzz.wire import Tally, answer_due, frame_end
from raftlog_chaos.fuzz.world import Plan, play, replay
from tests.broker.rows import change_row

ALONE, THREE = 0, 2
"""Seeds of worlds of one node and of three."""
HEARTBEAT = raw(12, 0, legacy("group-a") + b"\0\0\0\1" + legacy("nobody"))
LIST_GROUPS = raw(16, 0, b"")


def sent(*frames: bytes, seed: int = ALONE) -> Tally:
    return replay("kafka", frames, seed=seed)


@pytest.mark.parametrize("seed", [ALONE, THREE])
def test_right_frames_are_answered_and_nothing_is_found(seed: int):
    """In worlds of one node and of three."""
    tally = sent(HEARTBEAT, LIST_GROUPS, seed=seed)
    assert (tally.frames, tally.answered, tally.findings) == (2, 2, [])


def test_a_malformed_frame_closes_its_connection_for_a_counted_reason():
    """And the next frame has a new connection."""
    tally = sent(framed(head(12, 0) + b"\xff"), LIST_GROUPS)
    assert (tally.closed, tally.answered, tally.findings) == (1, 1, [])


def test_a_handler_that_raises_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: an unforeseen exception, which closes the connection and fails the simulation."""

    def careless(*_: object) -> None:
        raise IndexError("no such member")

    change_row(monkeypatch, ApiKey.HEARTBEAT, handle=careless)
    tally = sent(LIST_GROUPS, HEARTBEAT)
    (found,) = tally.findings
    assert "IndexError" in found.what and found.frames == (LIST_GROUPS, HEARTBEAT)
    assert reduced(found, ALONE).frames == (HEARTBEAT,)


def test_an_unguarded_callback_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: the handler is done, but what it left to the loop raises."""
    right = list_groups.handle

    def later(broker: SimpleNamespace, request: SimpleNamespace, message: object) -> object:
        request.connection.server.loop.call_soon(lambda: {}["nothing"])
        return right(broker, request, message)  # type: ignore[arg-type]

    change_row(monkeypatch, ApiKey.LIST_GROUPS, handle=later)
    (found,) = sent(LIST_GROUPS).findings
    assert found.where == "uncaught" and "KeyError" in found.what


def test_an_answer_that_never_comes_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: the response is forgotten, so that all behind it wait."""

    async def forgetful(*_: object) -> None:
        import asyncio

        await asyncio.get_running_loop().create_future()

    change_row(monkeypatch, ApiKey.LIST_GROUPS, handle=forgetful)
    (found,) = sent(LIST_GROUPS).findings
    assert found.what == "list_groups v0: no answer"


def test_an_answer_to_another_question_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: a response in the place of its predecessor."""

    def twice(_broker: object, request: SimpleNamespace, _message: object) -> None:
        request.connection.responses.add((b"\0\0\0\x04\0\0\0\x63",))

    change_row(monkeypatch, ApiKey.LIST_GROUPS, handle=twice)
    (found,) = sent(LIST_GROUPS).findings
    assert found.what == "list_groups: an answer to 99, not to 1"


def test_a_connection_that_is_closed_for_no_reason_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: it is cut without a line in the counts."""

    def cut(_broker: object, request: SimpleNamespace, _message: object) -> None:
        request.connection.abort()

    change_row(monkeypatch, ApiKey.LIST_GROUPS, handle=cut)
    (found,) = sent(LIST_GROUPS).findings
    assert found.what == "a connection was closed for no counted reason"


def test_a_node_that_ends_is_found(monkeypatch: pytest.MonkeyPatch):
    """Planted: a client's connection takes the node with it."""

    def fatal(server: BrokerServer, _connection: object) -> None:
        server.broker.replicas.on_directory_failed()
        server.broker.replicas.logs.online.clear()

    monkeypatch.setattr(BrokerServer, "connection_closed", fatal)
    tally = sent(framed(head(12, 0) + b"\xff"))
    assert tally.findings


@pytest.mark.parametrize("seed", [ALONE, THREE])
def test_a_sample_of_chance_finds_nothing(seed: int):
    """Some hundred frames, of which most reach a handler."""
    known = KnownValues()
    frames = Frames("a sample", known)
    tally = play(Plan(iter(frames.next, None), 400, known, greeted=0.0), seed=seed)
    assert [each.text() for each in tally.findings] == []
    assert tally.answered > 100 and tally.errors[0] > 50


def test_a_chunk_counts_its_frames():
    """A share of its frames goes through whole nodes."""
    chunk = run_chunk("a sample", frames=300, handled=40)
    assert sum(chunk.outcomes.values()) == 260 and chunk.handled >= 40
    summary = Summary()
    summary.add(chunk)
    assert summary.frames == 260 + chunk.handled


def test_the_smallest_of_findings_alike_is_kept():
    """Findings at the same place are alike, whatever their bytes."""
    one = Finding("decoding", "KeyError: 'a' (codec.py:7 decode)", "x", (b"abcdef",))
    other = one._replace(what="KeyError: 'b' (codec.py:7 decode)", frames=(b"ab",))
    summary = Summary()
    empty = run_chunk("a sample", frames=4, handled=0)
    assert summary.add(empty._replace(findings=[one])) == [one]
    assert summary.add(empty._replace(findings=[other])) == []
    assert [finding for _, finding in summary.findings.values()] == [other]


def test_kept_frames_are_read_as_they_were_written(tmp_path):
    """One line each, with the port in the name of the file."""
    finding = Finding("handlers", "no answer", "metadata v12", (b"\0\1", b"\2"), port="controller")
    path = write_regression(tmp_path, "seed-1", finding, "1/0")
    assert read_regression(path) == ("controller", (b"\0\1", b"\2"))


def test_the_client_knows_which_answers_are_due():
    """None for acks=0 and for a frame cut off; a frame ends where its length says."""
    nothing = raw(0, 9, b"\0" + b"\0\0" + b"\0\0\0\1" + b"\1" + b"\0")
    leader = raw(0, 9, b"\0" + b"\0\1" + b"\0\0\0\1" + b"\1" + b"\0")
    assert answer_due(memoryview(nothing)[4:]) is None
    assert answer_due(memoryview(leader)[4:]) == (0, 9, 1)
    assert answer_due(memoryview(b"\0\1")) is None
    assert frame_end(bytearray(LIST_GROUPS + b"rest")) == len(LIST_GROUPS)
    assert frame_end(bytearray(LIST_GROUPS[:-1])) is None
    assert Frame(LIST_GROUPS, "").data == LIST_GROUPS
