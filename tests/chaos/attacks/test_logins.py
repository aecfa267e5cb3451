"""Invalid logins are encoded as intended: only the intended part is wrong."""

from __future__ import annotations

import pytest

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.security.scram import MIN_ITERATIONS, ScramServer, credential
from raftlog.security.scram_client import ScramClient
from raftlog_chaos.attacks.logins import NONCE, SCRAM, with_nonce
from raftlog_chaos.attacks.target import LOGIN_PASSWORD, LOGIN_USERS


@pytest.mark.parametrize(
    ("said", "gets_in"), [(f"{NONCE}server", True), (NONCE, False), (NONCE + "x", False)]
)
def test_another_nonce_comes_with_the_right_proof(said: str, gets_in: bool) -> None:
    """So that a node can only refuse the nonce."""
    kept = credential(SCRAM, LOGIN_PASSWORD, b"salt" * 4, MIN_ITERATIONS)
    server = ScramServer(SCRAM, lambda *_: kept, lambda: "server")
    final = with_nonce(server.first(ScramClient(SCRAM, LOGIN_USERS[0], "", nonce=NONCE).first()), said)
    if gets_in:
        assert server.final(final)[1].user == LOGIN_USERS[0]
    else:
        with pytest.raises(SaslAuthenticationFailed):
            server.final(final)
