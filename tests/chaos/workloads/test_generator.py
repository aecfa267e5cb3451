"""The next operations of clients: unique values, keys that wear out, and reads of unpolled keys."""

from __future__ import annotations

import random
from collections import Counter

from raftlog_chaos.workloads.generator import Generator, LogOptions, Poll, Send, Take, Txn


def test_values_are_unique_and_a_key_is_written_so_often_at_most() -> None:
    """Values are never sent again, and topics have to be created all the time."""
    generator = Generator(LogOptions(writes_per_key=10, keys=3), random.Random(1))
    operations = [generator.next("writer", fresh=True) for _ in range(100)]
    writes = [write for each in operations if isinstance(each, Send) for write in each.writes]
    assert len(set(writes)) == len(writes) > 150
    counts = Counter(key for key, _ in writes)
    assert max(counts.values()) == 10
    assert len(generator.keys) >= len(writes) // 10
    assert generator.keys[:3] == ["log0-0", "log0-1", "log1-0"]


def test_each_kind_does_its_own() -> None:
    """Writers never poll, readers never send, careless clients send singly, fresh clients take keys first."""
    generator = Generator(LogOptions(), random.Random(2))
    assert {type(generator.next("writer", fresh=False)) for _ in range(300)} == {Send}
    assert {type(generator.next("reader", fresh=False)) for _ in range(900)} == {Poll, Take}
    assert {type(generator.next("reader", fresh=True)) for _ in range(30)} == {Take}
    careless = [generator.next("careless", fresh=True) for _ in range(30)]
    assert all(isinstance(each, Send) and len(each.writes) == 1 for each in careless)


def test_unpolled_keys_are_asked_for_again() -> None:
    """Without poll-unseen a key that wore out unread would be read at the very end only."""
    generator = Generator(LogOptions(unseen_share=1.0, partitions=2), random.Random(3))
    generator.note_acked("log9-0", 4)
    generator.note_acked("log9-1", 4)
    generator.note_polled({"log9-1": [(3, 7), (4, 8)], "log9-0": [(3, 1)]})
    wanted = generator.next("reader", fresh=True)
    assert isinstance(wanted, Take)
    assert "log9-0" in wanted.keys and "log9-1" not in wanted.keys
    subscribed = Generator(LogOptions(subscribe=True, keys=1, partitions=3), random.Random(3))
    wanted = subscribed.next("reader", fresh=True)
    assert wanted == Take(("log0-0", "log0-1", "log0-2")), "a subscription brings whole topics"


def test_transactions_mix_sends_and_polls() -> None:
    """Jepsen's transactions have up to four steps of either kind."""
    generator = Generator(LogOptions(txn=True), random.Random(4))
    drawn = [generator.next("client", fresh=False) for _ in range(200)]
    txns = [each for each in drawn if isinstance(each, Txn)]
    assert {len(each.steps) for each in txns} == {1, 2, 3, 4}
    assert any(None in each.steps and any(each.steps) for each in txns)


def test_a_run_that_goes_on_sends_no_value_twice_and_leaves_worn_keys_alone() -> None:
    """After a power cut the same partitions are written to, whatever became of the last sends."""
    options = LogOptions(writes_per_key=10, keys=3, partitions=2, transformers=1)
    before = Generator(options, random.Random(4))
    sent = [
        write
        for _ in range(20)
        if isinstance(each := before.next("writer", fresh=True), Send)
        for write in each.writes
    ]
    derived = [before.derive() for _ in range(5)]
    after = Generator(options, random.Random(5))
    after.resume(before.written, {"log0-0": 9})
    more = [
        write
        for _ in range(20)
        if isinstance(each := after.next("writer", fresh=True), Send)
        for write in each.writes
    ]
    more_derived = [after.derive() for _ in range(5)]
    writes = [*sent, *more, *derived, *more_derived]
    assert len(set(writes)) == len(writes)
    assert max(Counter(key for key, _ in (*sent, *more)).values()) == 10
    assert {key for key, _ in sent} <= set(after.keys) and after.acked == {"log0-0": 9}
    assert not set(options.out_keys) & set(after.keys)
