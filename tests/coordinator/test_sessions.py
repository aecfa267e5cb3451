"""Deadlines: what is forgotten takes no memory, whatever its deadline was."""

from __future__ import annotations

from raftlog.coordinator.sessions import FEWEST_STALE, ClockKey, Kind, Sessions

A_MONTH_S = 30 * 24 * 3600.0


def test_ended_sessions_take_no_memory_until_their_deadline() -> None:
    """Who has ids given out and gives them back, or rebalances all day, fills no heap; who stays still expires."""
    sessions = Sessions()
    sessions.renew(ClockKey("g", "stays"), 10.0)
    for number in range(3 * FEWEST_STALE):
        key = ClockKey("g", f"m-{number}", Kind.EXPECTED)
        sessions.renew(key, A_MONTH_S)
        sessions.end(key)
    assert len(sessions) <= FEWEST_STALE + 2
    assert sessions.next_expiry_at() == 10.0
    assert sessions.expire(10.0) == [ClockKey("g", "stays")]
