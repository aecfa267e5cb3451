"""Bugs about what a fetch session knows of its partitions."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.handlers.fetch import PendingFetch
from raftlog.broker.handlers.shared.fetch_reader import FetchReader
from raftlog.broker.network.fetch_sessions import NO_SESSION, FetchSession
from raftlog.protocol.fetch import FetchRequest
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


def stay_dry_for_every_level(patch: pytest.MonkeyPatch) -> None:
    """A partition without news for read_committed is not read for read_uncommitted either."""
    want = FetchSession.want

    def want_at_one_level(session: FetchSession, request: FetchRequest) -> None:
        session.isolation_level = request.isolation_level
        want(session, request)

    patch.setattr(FetchSession, "want", want_at_one_level)


def park_once(patch: pytest.MonkeyPatch) -> None:
    """A fetch without a session that was woken in vain is not woken again, and waits for its deadline."""
    note = FetchReader._note_dry

    def note_without_parking(reader: FetchReader, entry: Any, read: Any) -> None:
        if reader.session.session_id != NO_SESSION or reader.session.fetch is None:
            note(reader, entry, read)
            return
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(FetchSession, "park", lambda session, each: None)
            note(reader, entry, read)

    patch.setattr(FetchReader, "_note_dry", note_without_parking)


PLANTS = [
    Plant("session-looks-too-early", "KIP-227 a record missed", fetch_sessions, look_before_the_wake),
    Plant(
        "dry-for-every-level",
        "KIP-227 a record missed",
        fetch_sessions,
        stay_dry_for_every_level,
        test=(
            "tests/broker/network/test_fetch_sessions.py"
            "::test_another_isolation_level_has_all_partitions_read_again"
        ),
    ),
    Plant(
        "woken-once",
        "fetch: a lost wake",
        fetch_sessions,
        park_once,
        test=(
            "tests/broker/handlers/test_fetch.py"
            "::test_a_fetch_that_is_woken_without_records_for_it_is_woken_again"
        ),
    ),
]
