"""Histories of a model that does everything right are valid; one corruption, and the right anomaly is reported."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op
from tests.chaos.checkers.model import Shape, history
from tests.kit.examples import examples

Corruption = Callable[[list[Op], random.Random], str]
"""Corrupts one thing in place and names the anomaly that it is."""


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**9),
    subscribe=st.booleans(),
    txn=st.booleans(),
    trouble=st.sampled_from([0.0, 0.1, 0.5]),
    keys=st.integers(1, 4),
)
def test_a_run_in_which_nothing_went_wrong_is_valid(seed, subscribe, txn, trouble, keys):
    """Unknown, refused, aborted, crashed or late operations are no anomaly that condemns."""
    shape = Shape(operations=120, subscribe=subscribe, txn=txn, trouble=trouble, keys=keys, values_per_key=15)
    verdict = judge(Header(allowed=["never-ok"]), list(history(seed, shape)))
    assert verdict.valid, verdict.text()


# --- one thing goes wrong


def acked(ops: list[Op]) -> Iterator[tuple[str, int]]:
    """Yield key and value of every acknowledged send."""
    for op in ops:
        if op.type == "ok":
            yield from ((micro[1], micro[2][1]) for micro in op.value or () if micro[0] == "send")


def polled(ops: list[Op]) -> Iterator[tuple[Op, str, list[Any]]]:
    """Yield every ok poll's records of a key."""
    for op in ops:
        if op.type == "ok" and op.f in ("poll", "txn"):
            for micro in op.value or ():
                if micro[0] == "poll":
                    yield from ((op, key, records) for key, records in micro[1].items())


def drop_an_acknowledged_record(ops: list[Op], chance: random.Random) -> str:
    key, value = chance.choice(sorted(acked(ops)))
    for op in ops:
        for micro in (op.value or ()) if op.f in ("poll", "txn") else ():
            if micro[0] == "poll" and len(micro) > 1:
                micro[1][key] = [record for record in micro[1].get(key, ()) if record[1] != value]
    return "lost-write" if _lies_below_another(ops, key, value) else "unseen"


def _lies_below_another(ops: list[Op], key: str, value: int) -> bool:
    (offset,) = (
        micro[2][0]
        for op in ops
        if op.type == "ok"
        for micro in op.value or ()
        if micro[0] == "send" and micro[1] == key and micro[2][1] == value
    )
    return any(record[0] > offset for _, found, records in polled(ops) if found == key for record in records)


def double_a_record(ops: list[Op], chance: random.Random) -> str:
    _, _, records = chance.choice([each for each in polled(ops) if each[2]])
    records.append([records[-1][0] + 1000, chance.choice(records)[1]])
    return "duplicate"


def swap_two_records(ops: list[Op], chance: random.Random) -> str:
    _, _, records = chance.choice([each for each in polled(ops) if len(each[2]) > 1])
    at = chance.randrange(len(records) - 1)
    records[at], records[at + 1] = records[at + 1], records[at]
    return "int-nonmonotonic-poll"


def leave_out_a_record(ops: list[Op], chance: random.Random) -> str:
    """The final phase and others still have it."""
    early = [each for each in polled(ops[: len(ops) * 2 // 3]) if len(each[2]) > 2]
    assume(early)
    _, _, records = chance.choice(early)
    del records[chance.randrange(1, len(records) - 1)]
    return "int-poll-skip"


def change_a_record(ops: list[Op], chance: random.Random) -> str:
    _, _, records = chance.choice([each for each in polled(ops) if each[2]])
    chance.choice(records)[1] = 10**6
    return "unwritten-read"


def change_a_record_to_anothers(ops: list[Op], chance: random.Random) -> str:
    """Two readers differ; the final phase reads everything, so that each record has a second reader."""
    _, key, records = chance.choice([each for each in polled(ops[: len(ops) * 2 // 3]) if each[2]])
    record = chance.choice(records)
    others = {value for found, value in acked(ops) if found == key} - {record[1]}
    assume(others)
    record[1] = chance.choice(sorted(others))
    return "inconsistent-offsets"


def abort_what_was_read(ops: list[Op], chance: random.Random) -> str:
    sends = [op for op in ops if op.type == "ok" and any(micro[0] == "send" for micro in op.value or ())]
    chance.choice(sends).type = "fail"
    return "G1a"


def tell_a_sender_a_wrong_offset(ops: list[Op], chance: random.Random) -> str:
    sends = [op for op in ops if op.type == "ok" and op.f == "send"]
    chance.choice(sends).value[0][2][0] += 500  # type: ignore[index]
    return "duplicate"


CORRUPTIONS: list[Corruption] = [
    drop_an_acknowledged_record,
    double_a_record,
    swap_two_records,
    leave_out_a_record,
    change_a_record,
    change_a_record_to_anothers,
    abort_what_was_read,
    tell_a_sender_a_wrong_offset,
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda each: each.__name__)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9), txn=st.booleans())
def test_one_corruption_is_reported_as_what_it_is(corrupt, seed, txn):
    """The right name, and evidence that is part of the history."""
    ops = list(history(seed, Shape(operations=120, txn=txn, values_per_key=25)))
    name = corrupt(ops, random.Random(seed))
    verdict = judge(Header(), ops)
    assert name in verdict.anomalies, verdict.text()
    assert not verdict.valid
    assert all(op in ops for op in verdict.anomalies[name][0].ops)
    assert verdict.anomalies[name][0].ops
