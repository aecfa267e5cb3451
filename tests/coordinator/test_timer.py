"""Deadlines: what is forgotten takes no memory, whatever its deadline was."""

from __future__ import annotations

from raftlog.coordinator.timer import MIN_STALE_ENTRIES, CoordinatorTimer, TimerKey, TimerKind

A_MONTH_S = 30 * 24 * 3600.0


def test_ended_sessions_take_no_memory_until_their_deadline() -> None:
    """A client that returns unused ids, or rebalances all day, fills no heap; a client that stays still expires."""
    sessions = CoordinatorTimer()
    sessions.schedule(TimerKey("g", "stays"), 10.0)
    for number in range(3 * MIN_STALE_ENTRIES):
        key = TimerKey("g", f"m-{number}", TimerKind.PENDING_JOIN)
        sessions.schedule(key, A_MONTH_S)
        sessions.cancel(key)
    assert len(sessions) <= MIN_STALE_ENTRIES + 2
    assert sessions.next_expiry_at() == 10.0
    assert sessions.pop_expired(10.0) == [TimerKey("g", "stays")]
