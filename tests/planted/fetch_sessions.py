"""Bugs about what a fetch session knows of its partitions."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.handlers.fetch import PendingFetch
from raftlog_chaos.scenarios.fetch_sessions import fetch_sessions
from tests.planted.plant import Plant


def look_before_the_wake(patch: pytest.MonkeyPatch) -> None:
    """A fetch in a session has what the session was woken for, and not what was committed since."""
    open_session = PendingFetch._open

    def open_asleep(pending: Any) -> Any:
        replicas = pending.connection.server.broker.replicas
        kept, replicas.to_wake = replicas.to_wake, []
        try:
            return open_session(pending)
        finally:
            replicas.to_wake = kept

    patch.setattr(PendingFetch, "_open", open_asleep)


PLANTS = [
    Plant("session-looks-too-early", "KIP-227 a record missed", fetch_sessions, look_before_the_wake),
]
