"""Claims about what counts as a message between voters."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    Message,
    RequestVote,
    VoteGranted,
    decode_message,
    encode_message,
)


@pytest.mark.parametrize(
    "message",
    [
        VoteGranted(-1),
        RequestVote(1 << 62, 0, 0),
        AppendEntriesResponse(1, -1, True, False),
        AppendEntries(1, 1, 1, 1, [(b"", 1 << 64 - 1, 1)]),
    ],
)
def test_a_number_that_the_journal_cannot_hold_is_no_message(message: Message) -> None:
    """It reached the journal, where packing it failed, which ended the voter."""
    with pytest.raises(msgspec.ValidationError):
        decode_message(encode_message(message))
