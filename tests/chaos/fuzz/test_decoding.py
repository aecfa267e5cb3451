"""The decoders keep their law, and a breach of it is found."""

from __future__ import annotations

import pytest

from raftlog_chaos.fuzz import decoding
from raftlog_chaos.fuzz.decoding import decode, try_decoding
from raftlog_chaos.fuzz.findings import Finding, Slowest
from raftlog_chaos.fuzz.frames import Frames

METADATA = bytes.fromhex("0000000f0003000c00000001ffff0000000000")[:4] + bytes.fromhex(
    "0003000c00000001ffff0000000000"
)


def test_frames_are_understood_refused_or_none():
    """The broker's own decoders decide, without a broker."""
    assert decode(METADATA) == "understood"
    assert decode(METADATA[:-3]) == "no frame"  # its length is announced, the rest is still to come
    assert decode(b"\0\0\0\x08" + METADATA[4:12]) == "refused"
    assert decode(b"\xff\xff\xff\xff" + METADATA[4:]) == "no frame"
    assert decode(b"\0\0\0\x0a\x7f\xff\0\0\0\0\0\1\xff\xff") == "no schema"


def test_an_exception_of_another_kind_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    """Planted: a decoder that takes a missing name for granted."""

    def careless(*_: object) -> None:
        raise KeyError("topics")

    monkeypatch.setattr(decoding, "decode_request", careless)
    found = try_decoding(METADATA, "metadata v12", Slowest())
    assert isinstance(found, Finding)
    assert found.frames == (METADATA,) and found.what.startswith("KeyError")
    assert METADATA.hex() in found.text()


def test_two_thousand_frames_keep_the_law():
    """A sample of `make fuzz`, of which .ci/run sends ten times as many, with a seed of its own."""
    frames, slowest = Frames("a sample"), Slowest()
    found = [try_decoding(each.data, each.kind, slowest) for each in (frames.next() for _ in range(2_000))]
    assert [each for each in found if isinstance(each, Finding)] == []
    assert len(slowest.worst()) > 1
