"""Runs of the fuzzer are repeatable, can go on where they were interrupted, and end even if a frame does not."""

from __future__ import annotations

import pytest

from raftlog_chaos.fuzz import campaign, decoding
from raftlog_chaos.fuzz.campaign import Summary, run_campaign, run_chunk
from raftlog_chaos.fuzz.findings import Finding, Slowest
from raftlog_chaos.fuzz.stuck import Stuck, bounded

FRAMES = 200


def summed(frames: int, first: int = 0) -> Summary:
    summary = Summary()
    run_campaign(summary, frames, seed=7, jobs=1, first=first, on_progress=lambda _summary, _new: None)
    return summary


def test_a_chunk_is_the_same_in_every_run():
    """It depends on the seed and on its number alone, so that a finding can be brought about again."""
    once, again = run_chunk("7/3", FRAMES, 20), run_chunk("7/3", FRAMES, 20)
    assert (once.outcomes, once.handled, once.answered) == (again.outcomes, again.handled, again.answered)
    assert run_chunk("7/4", FRAMES, 20).outcomes != once.outcomes


def test_a_run_can_begin_at_any_chunk():
    """It then does what an uninterrupted run does there, and it says which chunk is next."""
    summary = summed(FRAMES, first=3)
    alone = run_chunk("7/3", FRAMES, FRAMES // 10)
    assert (summary.outcomes, summary.handled, summary.answered) == (
        alone.outcomes,
        alone.handled,
        alone.answered,
    )
    assert summary.next_chunk == 4


def test_an_interrupted_run_has_what_was_finished(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C comes after the first chunk: the sum and the next chunk are known."""
    monkeypatch.setattr(campaign, "CHUNK", FRAMES)
    monkeypatch.setattr(campaign, "HANDLED", FRAMES // 10)
    summary = Summary()

    def interrupt(_summary: Summary, _new: list[Finding]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign(summary, 2 * FRAMES, seed=7, jobs=1, on_progress=interrupt)
    assert summary.frames >= FRAMES and summary.next_chunk == 1


def test_a_frame_that_is_never_done_with_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    """Planted: a decoder that goes round for ever; processor time counts, so that a busy machine is no finding."""

    def forever(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(decoding, "decode", forever)
    monkeypatch.setattr(decoding, "STUCK_S", 0.05)
    found = decoding.try_decoding(b"\0\0\0\1x", "planted", Slowest())
    assert isinstance(found, Finding) and found.what.startswith("Stuck: not done after 0.05 s")
    assert found.frames == (b"\0\0\0\1x",)


def test_the_bound_ends_with_its_block():
    """Later work has no bound of this kind."""
    with bounded(0.02):
        pass
    sum(range(3_000_000))
    with pytest.raises(Stuck), bounded(0.02):
        while True:
            pass
