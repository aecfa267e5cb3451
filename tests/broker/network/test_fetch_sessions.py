"""raftlog.broker.network.fetch_sessions: slots, eviction, and a session's bookkeeping as a state machine."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from raftlog.base.memory import Account
from raftlog.broker.network.fetch_sessions import ENTRY_BYTES, EVICTION_S, FetchSession, FetchSessions
from raftlog.protocol.fetch import FetchPartition, FetchRequest
from raftlog.replication.replica_host import PartitionRead

VERSION = 12


def request(
    partitions: int = 1, *, session: tuple[int, int] = (0, 0), forget: tuple[int, ...] = ()
) -> FetchRequest:
    wanted = FetchRequest()
    wanted.session_id, wanted.session_epoch = session
    wanted.topics = [("t", [FetchPartition(each, -1, 0, -1, -1, 100) for each in range(partitions)])]
    wanted.forgotten = [("t", forget)] if forget else []
    return wanted


def sessions(slots: int = 2, partitions: int = 1_000) -> FetchSessions:
    return FetchSessions(slots, random.Random(5), Account("sessions", partitions * ENTRY_BYTES))


def begin(cache: FetchSessions, partitions: int, now: float, *, replica: bool = False) -> FetchSession:
    return cache.open(request(partitions), VERSION, replica=replica, now=now)


def is_kept(cache: FetchSessions, session: FetchSession) -> bool:
    return any(each is session for each in cache)


def test_a_full_cache_keeps_what_it_has() -> None:
    """KIP-227: a session that is neither idle nor had its time is safe; the newcomer goes without."""
    cache = sessions()
    first, second = begin(cache, 1, 0.0), begin(cache, 1, 1.0)
    third = begin(cache, 50, 2.0)
    assert third.session_id == 0
    assert is_kept(cache, first) and is_kept(cache, second)
    assert len(third.entries) == 50


def test_an_idle_session_goes_for_any_newcomer() -> None:
    """KIP-227: unused for the eviction time."""
    cache = sessions()
    first, second = begin(cache, 9, 0.0), begin(cache, 9, 0.0)
    cache.open(request(9, session=(first.session_id, 1)), VERSION, replica=False, now=EVICTION_S)
    third = begin(cache, 1, EVICTION_S + 1)
    assert third.session_id != 0
    assert is_kept(cache, first) and not is_kept(cache, second)
    assert cache.evicted == 1


def test_a_larger_newcomer_takes_the_place_of_the_smallest_that_had_its_time() -> None:
    """KIP-227: incremental fetches pay most for large sessions."""
    cache = sessions()
    small, large = begin(cache, 2, 0.0), begin(cache, 8, 0.0)
    for session, epoch in ((small, 1), (large, 1)):
        cache.open(request(0, session=(session.session_id, epoch)), VERSION, replica=False, now=EVICTION_S)
    assert begin(cache, 2, EVICTION_S + 1).session_id == 0, "not larger than the smallest"
    newcomer = begin(cache, 3, EVICTION_S + 1)
    assert newcomer.session_id != 0
    assert is_kept(cache, large) and not is_kept(cache, small)


def test_followers_need_no_slot_and_are_never_evicted() -> None:
    """Replication does not depend on how many consumers there are."""
    cache = sessions(slots=1)
    follower = begin(cache, 1, 0.0, replica=True)
    client = begin(cache, 1, 0.0)
    assert follower.session_id and client.session_id
    begin(cache, 100, 10 * EVICTION_S)
    assert is_kept(cache, follower) and not is_kept(cache, client)
    assert len(cache) == 2


def test_a_repeated_fetch_repeats_the_high_watermark() -> None:
    """A follower with two fetches under way drops answers; an idle partition has no other news to bring it along."""
    session = begin(sessions(), 1, 0.0, replica=True)
    (entry,) = session.entries.values()
    read = PartitionRead(0, high_watermark=7, last_stable_offset=7, log_start_offset=0, records=b"")
    assert entry.is_news(read) and not entry.is_news(read)
    session.want(request(1))
    assert entry.is_news(read) and not entry.is_news(read)


def test_the_epoch_wraps_to_1() -> None:
    """KIP-227: 0 and -1 have meanings of their own."""
    cache = sessions()
    session = begin(cache, 1, 0.0)
    session.epoch = 2**31 - 1
    cache.open(request(session=(session.session_id, 2**31 - 1)), VERSION, replica=False, now=0.0)
    assert session.epoch == 1


class Model:
    """The expected content of a session, computed the simple way."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.epoch = 1


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99))),
            st.lists(st.integers(0, 5), max_size=2),
            st.integers(-1, 1),
        )
    )
)
def test_a_session_holds_what_its_requests_added_moved_and_forgot(
    steps: list[tuple[list[tuple[int, int]], list[int], int]],
) -> None:
    """KIP-227, against a dict; a wrong epoch has no effect."""
    cache = sessions()
    session = begin(cache, 1, 0.0)
    model = Model()
    model.offsets[0] = 0
    for wanted, forgotten, drift in steps:
        step = FetchRequest()
        step.session_id, step.session_epoch = session.session_id, model.epoch + drift
        step.topics = [("t", [FetchPartition(each, -1, offset, -1, -1, 9) for each, offset in wanted])]
        step.forgotten = [("t", tuple(forgotten))]
        if session.session_id == 0:
            break
        if drift and step.session_epoch > 0:
            with pytest.raises(InvalidFetchSessionEpoch):
                cache.open(step, VERSION, replica=False, now=0.0)
            continue
        if drift:
            continue
        cache.open(step, VERSION, replica=False, now=0.0)
        model.offsets |= dict(wanted)
        for each in forgotten:
            model.offsets.pop(each, None)
        model.epoch += 1
        assert {each.index: each.offset for each in session.entries.values()} == model.offsets
        assert set(session.ready) <= set(session.entries.values())
    if not model.offsets:
        assert len(cache) == 0
        with pytest.raises(FetchSessionIdNotFound):
            cache.open(request(session=(77, 1)), VERSION, replica=False, now=0.0)


def test_a_session_begins_without_partitions() -> None:
    """Kafka gives it an id, and its partitions may follow."""
    cache = sessions()
    session = begin(cache, 0, 0.0)
    assert session.session_id != 0
    more = cache.open(request(1, session=(session.session_id, 1)), VERSION, replica=False, now=0.0)
    assert (more, len(more.entries)) == (session, 1)


def test_a_request_that_begins_a_session_forgets_nothing() -> None:
    """Kafka ignores what such a request forgets."""
    cache = sessions()
    session = cache.open(request(2, forget=(1,)), VERSION, replica=False, now=0.0)
    assert len(session.entries) == 2
    again = cache.open(
        request(0, session=(session.session_id, 1), forget=(1,)), VERSION, replica=False, now=0.0
    )
    assert len(again.entries) == 1


def test_another_isolation_level_has_all_partitions_read_again() -> None:
    """A transaction that is open hides records from read_committed alone, so what is dry there is not dry for both."""
    cache = sessions()
    session = begin(cache, 2, 0.0)
    for epoch, level, is_dry in ((1, 0, True), (2, 1, False), (3, 1, True), (4, 0, False)):
        for entry in session.entries.values():
            entry.dry = True
        session.ready.clear()
        again = request(0, session=(session.session_id, epoch))
        again.isolation_level = level
        cache.open(again, VERSION, replica=False, now=0.0)
        assert [entry.dry for entry in session.entries.values()] == [is_dry, is_dry]
        assert len(session.ready) == (0 if is_dry else 2)


# -- bounds -------------------------------------------------------------------------------------------------------


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    """max.incremental.fetch.session.cache.slots bounds sessions only: a session of 100 MB had no bound."""
    cache = sessions(slots=100, partitions=40)
    kept = [begin(cache, 10, 0.0) for _ in range(6)]
    assert [each.session_id != 0 for each in kept] == [True] * 4 + [False] * 2
    assert len(kept[-1].entries) == 10, "it is answered all the same, without a session"
    cache.end(kept[0].session_id)
    assert begin(cache, 10, 0.0).session_id != 0


def test_one_session_has_a_part_of_them_at_most() -> None:
    """A single client must not leave the others without sessions."""
    cache = sessions(partitions=40)
    assert begin(cache, 11, 0.0).session_id == 0
    assert begin(cache, 10, 0.0).session_id != 0


def test_a_session_that_grows_too_large_ends() -> None:
    """FETCH_SESSION_ID_NOT_FOUND: the client names everything again, and is answered without a session."""
    memory = Account("sessions", 40 * ENTRY_BYTES)
    cache = FetchSessions(2, random.Random(5), memory)
    session = begin(cache, 5, 0.0)
    with pytest.raises(FetchSessionIdNotFound):
        cache.open(request(11, session=(session.session_id, 1)), VERSION, replica=False, now=0.0)
    assert (len(cache), memory.used, cache.of_clients) == (0, 0, 0)


def test_sessions_of_brokers_are_always_kept_and_counted() -> None:
    """Clients that take all there is cannot make replication dearer, nor put a follower's session out."""
    memory = Account("sessions", 8 * ENTRY_BYTES)
    cache = FetchSessions(9, random.Random(5), memory)
    clients = [begin(cache, 2, 0.0) for _ in range(4)]
    follower = begin(cache, 1_000, 0.0, replica=True)
    assert follower.session_id != 0
    assert memory.used == 1_008 * ENTRY_BYTES
    assert begin(cache, 2, 10 * EVICTION_S).session_id == 0, (
        "all idle ones are gone, and there is still no room"
    )
    assert is_kept(cache, follower) and not any(is_kept(cache, each) for each in clients)
    cache.end(follower.session_id)
    assert memory.used == 0


def test_forgotten_partitions_make_room() -> None:
    """The counted bytes are the kept bytes."""
    memory = Account("sessions", 40 * ENTRY_BYTES)
    cache = FetchSessions(2, random.Random(5), memory)
    session = begin(cache, 10, 0.0)
    step = request(0, session=(session.session_id, 1), forget=(1, 2, 3))
    cache.open(step, VERSION, replica=False, now=0.0)
    assert memory.used == 7 * ENTRY_BYTES


def test_a_failed_session_cannot_be_continued() -> None:
    """Its client begins a new session."""
    cache = sessions()
    session = begin(cache, 2, 0.0)
    session.abort()
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.open(request(session=(session.session_id, 1)), VERSION, replica=False, now=0.0)
