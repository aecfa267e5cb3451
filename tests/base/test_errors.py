"""raftlog.base.errors: what errors say."""

from __future__ import annotations

from raftlog.base.errors import MESSAGE_CHARS, InvalidRequest


def test_a_message_that_repeats_what_a_client_named_still_fits_into_an_answer() -> None:
    """A string of the protocol has 32,767 bytes at most: a longer one could not be encoded."""
    error = InvalidRequest("ü" * 100_000)
    assert error.message == str(error) == "ü" * MESSAGE_CHARS
    assert len(error.message.encode()) < 2**15
