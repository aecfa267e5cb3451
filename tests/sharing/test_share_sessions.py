"""Share sessions count the requests of a member, and end with its connection (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from raftlog.base.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from raftlog.sharing.share_sessions import (
    MAX_EPOCH,
    SharedPartition,
    ShareSession,
    ShareSessionKey,
    ShareSessions,
)

A, B, C = (ShareSessionKey("g", member_id) for member_id in "abc")
T = UUID(int=8)
WIRE, OTHER = object(), object()


def update(
    sessions: ShareSessions,
    session: ShareSession,
    added: Iterable[SharedPartition],
    forgotten: Iterable[SharedPartition] = (),
) -> None:
    """Forget partitions of a session, and add others."""
    for each in forgotten:
        sessions.forget(session, each)
    for each in added:
        sessions.add(session, each)


def test_each_request_has_the_next_epoch() -> None:
    """ShareFetch and ShareAcknowledge count together; after the last epoch comes 1."""
    sessions = ShareSessions(2_000, 400_000)
    opened = sessions.open(A, WIRE, acknowledges=False)
    assert sessions.advance(A, 1, WIRE) is opened
    assert sessions.advance(A, 2, WIRE) is opened
    for epoch in (2, 4, 0):
        with pytest.raises(InvalidShareSessionEpoch):
            sessions.advance(A, epoch, WIRE)
    opened.epoch = MAX_EPOCH
    sessions.advance(A, MAX_EPOCH, WIRE)
    assert opened.epoch == 1


def test_a_session_belongs_to_its_connection() -> None:
    """On another connection it is not found, and it ends with its own."""
    sessions = ShareSessions(2_000, 400_000)
    for key, connection in ((A, WIRE), (B, WIRE), (C, OTHER)):
        sessions.open(key, connection, acknowledges=False)
    for call in (lambda: sessions.advance(A, 1, OTHER), lambda: sessions.close(A, OTHER)):
        with pytest.raises(ShareSessionNotFound):
            call()
    assert {each.key for each in sessions.close_all(WIRE)} == {A, B}
    assert sessions.close_all(WIRE) == []
    assert sessions.close(C, OTHER).key == C
    assert len(sessions) == 0
    with pytest.raises(ShareSessionNotFound):
        sessions.advance(C, 1, OTHER)


def test_opening_again_takes_the_place_of_the_session() -> None:
    """Epoch 0 begins anew, on any connection. It has no acknowledgements."""
    sessions = ShareSessions(1, 400_000)
    update(sessions, sessions.open(A, WIRE, acknowledges=False), [(T, 0)])
    assert sessions.open(A, OTHER, acknowledges=False).partitions == []
    assert sessions.close_all(WIRE) == []
    with pytest.raises(InvalidRequest):
        sessions.open(A, OTHER, acknowledges=True)
    assert sessions.advance(A, 1, OTHER).key == A


def test_sessions_are_limited() -> None:
    """`group.share.max.share.sessions`: a session that ends makes room."""
    sessions = ShareSessions(1, 400_000)
    sessions.open(A, WIRE, acknowledges=False)
    with pytest.raises(ShareSessionLimitReached):
        sessions.open(B, WIRE, acknowledges=False)
    sessions.close(A, WIRE)
    sessions.open(B, WIRE, acknowledges=False)


def test_no_partition_starves_another() -> None:
    """What had records goes behind the others; partitions come and go with the requests."""
    sessions = ShareSessions(2_000, 400_000)
    session = sessions.open(A, WIRE, acknowledges=False)
    update(sessions, session, [(T, 0), (T, 1), (T, 2)])
    session.fetched([(T, 0), (T, 9)])
    assert session.partitions == [(T, 1), (T, 2), (T, 0)]
    update(sessions, session, [(T, 1), (T, 3)], [(T, 2)])
    assert session.partitions == [(T, 1), (T, 0), (T, 3)]


def test_a_partition_is_checked_once_while_it_stays() -> None:
    """An administrator sets offsets between sessions of members, or while they have no partitions."""
    sessions = ShareSessions(2_000, 400_000)
    session = sessions.open(A, WIRE, acknowledges=False)
    update(sessions, session, [(T, 0), (T, 1)])
    session.checked((T, 0))
    session.fetched([(T, 0)])
    update(sessions, session, [(T, 0)])
    assert [session.is_checked((T, each)) for each in range(2)] == [True, False]
    update(sessions, session, [], forgotten=[(T, 0)])
    session.checked((T, 0))
    update(sessions, session, [(T, 0)])
    assert not session.is_checked((T, 0))


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    """A session has at most a fourth of them. What a session gives up, and what it ends with, is room for others."""
    sessions = ShareSessions(2_000, most_partitions=8)
    a = sessions.open(A, WIRE, acknowledges=False)
    update(sessions, a, [(T, 0), (T, 1), (T, 0)])
    update(sessions, a, [(T, 2)], [(T, 0)])
    with pytest.raises(ShareSessionLimitReached):
        update(sessions, a, [(T, 1), (T, 3)])
    assert a.partitions == [(T, 1), (T, 2)]
    for number in range(3):
        key = ShareSessionKey("g", f"m{number}")
        update(sessions, sessions.open(key, WIRE, acknowledges=False), [(T, 0), (T, 1)])
    last = sessions.open(ShareSessionKey("g", "last"), WIRE, acknowledges=False)
    with pytest.raises(ShareSessionLimitReached):
        update(sessions, last, [(T, 0)])
    update(sessions, sessions.close(A, WIRE), [(T, 5)])
    update(sessions, last, [(T, 0), (T, 1)])
    with pytest.raises(ShareSessionLimitReached):
        update(sessions, last, [(T, 2)])


def test_a_group_has_sessions_until_its_last_member_ends_its_own() -> None:
    """Then what its leaders have in memory is read again when a member comes."""
    sessions = ShareSessions(2_000, 400_000)
    assert not sessions.has_group("g")
    sessions.open(A, WIRE, acknowledges=False)
    sessions.open(A, OTHER, acknowledges=False)
    sessions.open(B, OTHER, acknowledges=False)
    sessions.close(A, OTHER)
    assert sessions.has_group("g")
    sessions.close_all(OTHER)
    assert not sessions.has_group("g")
