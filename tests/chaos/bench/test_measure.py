"""Measurements through stock clients: what is written is acknowledged."""

from __future__ import annotations

from raftlog_chaos.bench import measure

MOCK = {"test.mock.num.brokers": "3", "bootstrap.servers": "mock", "log_level": "0"}


def test_a_topic_is_filled_with_exactly_so_many_records() -> None:
    """Pieces that the queue does not take at once, and a last piece that is smaller; acknowledgements only grow."""
    records, seen = 2 * measure.FILL_PIECE + 7, [0]
    config = {**MOCK, "queue.buffering.max.messages": "3000"}
    assert measure.fill(config, "full", record_bytes=100, records=records, on_progress=seen.append) == 0
    assert seen == sorted(seen) and seen[-1] == records
