"""What ShareFetch and ShareAcknowledge have in common: the names that a broker remembers are short."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from raftlog.base.errors import InvalidGroupId, InvalidRequest
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.broker.handlers.shared.share_requests import session_key


def test_a_session_has_short_names() -> None:
    """Past deliveries have the member's id, so that 32,767 bytes for each would be hundreds of MB."""
    longest = "n" * NAME_MAX_CHARS
    assert session_key(SimpleNamespace(group_id=longest, member_id=longest)) == (longest, longest)
    with pytest.raises(InvalidRequest, match="member_id has at most 249 characters"):
        session_key(SimpleNamespace(group_id="g", member_id=longest + "n"))
    with pytest.raises(InvalidGroupId):
        session_key(SimpleNamespace(group_id=longest + "n", member_id="m"))
