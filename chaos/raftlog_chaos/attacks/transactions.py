"""Transactions of strangers: made-up ids, producers and epochs, forbidden markers, far too many of all."""

from __future__ import annotations

import struct
from typing import Final

from raftlog.protocol.codec import decode_response
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    Target,
    array,
    compact,
    counted,
    expect,
    for_seconds,
    legacy,
    outcomes_of,
    raw,
    send_each,
)

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, MARKERS, TXN_COMMIT = 22, 24, 25, 26, 27, 28
LIST_TRANSACTIONS: Final = 66
PRODUCERS: Final = (0, 1, 2, 1000, 1001, 2000, 2**40, 2**63 - 1, -1, -(2**63))


def initiated(name: bytes, timeout_ms: int = 60_000, producer: int = -1, epoch: int = -1) -> bytes:
    """Return an InitProducerId; `name`: the transactional id as bytes of the request."""
    return raw(INIT, 4, name + struct.pack(">iqh", timeout_ms, producer, epoch) + b"\0")


def _on_all(target: Target, frames: list[bytes], within_s: float = 4.0) -> str:
    return "; ".join(send_each(target, frames, node=node, within_s=within_s) for node in (1, 2, 3))


@attack("kafka", within_s=40)
def producer_ids_by_the_hundred_thousand(target: Target) -> str:
    """As many producer ids as a client asks for in five seconds are given out, or refused, while others get theirs."""
    frame, going_on, sent, heard = initiated(b"\0") * 200, for_seconds(5), 0, 0
    with target.lines(4) as lines:
        while going_on():
            for line in lines:
                sent += line.send(frame, within_s=0.1)
                heard += len(line.read(0.005, 1 << 20))
    return f"{sent * 200 // len(frame)} asked for, {heard // 1024} KiB of answers"


@attack("kafka", within_s=60)
def transactional_ids_by_the_thousand(target: Target) -> str:
    """Thousands of made-up transactional ids are bounded, or cost no more than their names."""
    with target.lines(6) as lines:
        for number, line in enumerate(lines):
            line.send(b"".join(initiated(compact(f"attack-{number}-{n}")) for n in range(1_000)))
        answered, going_on = 0, for_seconds(20)
        for line in lines:
            while going_on() and line.receive(2) is not None:
                answered += 1
    return f"{answered} answered"


@attack("kafka", within_s=30)
def markers_from_strangers(target: Target) -> str:
    """WriteTxnMarkers from a client is refused: it would decide others' transactions."""
    frames = []
    for producer in PRODUCERS:
        topics = array(
            [
                compact(name) + b"\2\0\0\0\0\0"
                for name in (target.topic, "__consumer_offsets", target.bystanders)
            ]
        )
        for result in (b"\0", b"\1"):
            marker = struct.pack(">qh", producer, 0) + result + topics + struct.pack(">i", 2**31 - 1)
            frames += [
                raw(MARKERS, 1, array([marker + b"\0"]) + b"\0"),
                raw(MARKERS, 2, array([marker + b"\2\0"]) + b"\0"),
            ]
    frames.append(
        raw(MARKERS, 1, array([struct.pack(">qh", 1, 0) + b"\0\1" + bytes(4) + b"\0"] * 8_000) + b"\0")
    )
    for node in target.nodes:
        with target.line("kafka", node) as line:
            answer = line.ask(frames[0])
        if answer is not None:
            marked = decode_response(MARKERS, 1, memoryview(answer))[1].markers
            given = [
                each.error_code for marker in marked for topic in marker.topics for each in topic.partitions
            ]
            expect(0 not in given, f"node {node} took a marker of a stranger")
    return _on_all(target, frames)


@attack("kafka", within_s=30)
def transactions_of_made_up_producers(target: Target) -> str:
    """Ends, partitions and offsets for unknown transactions, with guessed ids and epochs, have no effect."""
    frames = []
    for producer in PRODUCERS:
        for epoch in (0, 1, -1, 32767):
            who = compact("made-up") + struct.pack(">qh", producer, epoch)
            frames.append(raw(END, 3, who + b"\1\0"))
            frames.append(
                raw(ADD_PARTITIONS, 3, who + array([compact(target.topic) + b"\2\0\0\0\0\0"]) + b"\0")
            )
            frames.append(raw(ADD_OFFSETS, 3, who + compact(target.bystanders) + b"\0"))
            start = compact("made-up") + compact(target.bystanders) + struct.pack(">qhi", producer, epoch, -1)
            part = struct.pack(">iqi", 0, 0, -1) + b"\0\0"
            topics = array([compact(target.bystanders) + array([part]) + b"\0"])
            frames.append(raw(TXN_COMMIT, 3, start + compact("") + b"\0" + topics + b"\0"))
    return _on_all(target, frames, 3)


@attack("kafka", within_s=30)
def impossible_transactions(target: Target) -> str:
    """Timeouts, epochs and ids at the ends of their ranges are refused, one by one."""
    frames = [initiated(compact("attack-odd"), each) for each in (-1, 0, 1, 2**31 - 1, -(2**31))]
    frames += [
        initiated(compact("attack-odd"), 1000, producer, epoch)
        for producer in PRODUCERS
        for epoch in (0, 32767, -5)
    ]
    frames += [
        initiated(compact("")),
        initiated(b"\0", -1),
        initiated(compact("i" * 32_000)),
        initiated(compact("i" * 3_000_000)),
    ]
    frames += [raw(INIT, 0, legacy("attack-odd") + struct.pack(">i", 2**31 - 1))]
    return _on_all(target, frames, 3)


@attack("kafka", within_s=60)
def transactions_that_nobody_ends(target: Target) -> str:
    """Three hundred transactions that are begun with a timeout of a second and left alone are aborted, all of them."""
    begun = 0
    for node in (1, 2, 3):
        with target.line("kafka", node) as line:
            for number in range(300):
                name = f"attack-left-{number}"
                answer = line.request(
                    INIT,
                    4,
                    "InitProducerIdRequest",
                    3,
                    transactional_id=name,
                    transaction_timeout=1000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                if answer is None or int(answer.error_code):
                    continue
                who = compact(name) + struct.pack(">qh", answer.producer_id, answer.producer_epoch)
                line.ask(
                    raw(
                        ADD_PARTITIONS,
                        3,
                        who
                        + array([compact(target.topic) + b"\4" + struct.pack(">iii", 0, 1, 2) + b"\0"])
                        + b"\0",
                    )
                )
                begun += 1
    going_on = for_seconds(6)
    with target.line() as line:
        while going_on() and line.receive(0.5) is None and not line.closed:
            continue
    return f"{begun} begun"


@attack("kafka", within_s=30)
def lists_of_transactions(target: Target) -> str:
    """Filters of ListTransactions with bombs for patterns, and a hundred thousand states or ids, are bounded."""
    states = array([compact(f"s{number}") for number in range(50_000)])
    ids = array([struct.pack(">q", number) for number in range(100_000)])
    frames = [raw(LIST_TRANSACTIONS, 0, states + ids + b"\0")] * 3
    for pattern in ("(a+)+$", "((a{100}){100}){100}", "(" * 5_000, "x" * 900_000, ".*" * 5_000):
        frames += [raw(LIST_TRANSACTIONS, 2, b"\1\1" + struct.pack(">q", -1) + compact(pattern) + b"\0")] * 5
    with target.lines(len(frames)) as lines:
        for line, frame in zip(lines, frames, strict=False):
            line.send(frame)
        return counted(outcomes_of(lines, 6))
