"""Queues: ten workers share the records of a topic, and accept them one by one, or a hundred at once.

They do so as fast as possible, with few and with many records under lock, and at a steady rate. At that rate plain
consumers stand beside them. The time until a worker has a record compares with the time until a plain consumer has it.
The time until the record is accepted compares with that of a plain consumer that commits each record's offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Kind, Load
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.parts.cost import per_record
from raftlog_chaos.compare.parts.latency import quantiles, quantiles_of, run_steady
from raftlog_chaos.compare.systems.system import Refused

WORKERS: Final = 10
LOCKS: Final = (1_000, 10_000)
PER_ACK: Final = {1: "one at a time", 100: "by hundreds"}
RATE: Final = 200
PLAIN: Final[dict[Kind, str]] = {"arrival": "arrived at", "committed": "committed by"}
"""The loads of plain consumers, and what is timed."""
LONGER: Final = 2
"""The factor by which these loads are longer than others: a worker that accepts one at a time is slow."""


def queue(bench: Bench) -> Iterator[Sample]:
    """Yield what workers accept at most, how long a record takes from its producer to there, and its cost.

    Raises Refused by a system without queues.
    """
    if "queue" not in bench.system.kinds:
        raise Refused("its client here has no load 'queue'")
    seconds = LONGER * bench.scale.seconds
    if bench.system.warm_up_s:
        bench.run(_load("warm-up", seconds=bench.system.warm_up_s, per_ack=100), "warm-up")
    for locks, per_ack in product(LOCKS, PER_ACK):
        name = f"{locks:,} locks, accepted {PER_ACK[per_ack]}"
        measured = bench.run(_load(f"{locks}-{per_ack}", seconds=seconds, locks=locks, per_ack=per_ack), name)
        if measured is None:
            continue
        if measured.answer.failed or measured.answer.took_ms is None:
            bench.note(f"{name}: {measured.answer.failed} failed, {measured.answer.records} did not")
            continue
        yield Sample(name, measured.records_per_s, "/s", "more")
        yield from quantiles(name, measured)
        yield from per_record(name, measured)
        client = 100 * measured.answer.client_s / measured.answer.seconds
        yield Sample(f"{name}, the client's own CPU", client, "%")
    yield from _steady(bench)


def _steady(bench: Bench) -> Iterator[Sample]:
    name = f"{RATE}/s, accepted {PER_ACK[1]}"
    load = _load("steady", seconds=LONGER * bench.scale.seconds, rate=RATE)
    if (measured := run_steady(bench, load, name)) is not None:
        yield from quantiles(name, measured)
        yield from per_record(name, measured)
        if measured.answer.delivered_ms is not None:
            yield from quantiles_of(
                f"{RATE}/s, delivered to a worker", measured, measured.answer.delivered_ms
            )
    for kind, what in PLAIN.items():
        if kind not in bench.system.kinds:
            continue
        name = f"{RATE}/s, {what} a plain consumer"
        plain = Load(kind=kind, topic=f"queue-{kind}", rate=RATE, seconds=load.seconds)
        if (measured := run_steady(bench, plain, name)) is not None:
            yield from quantiles(name, measured)


def _load(name: str, *, seconds: float, locks: int = LOCKS[0], per_ack: int = 1, rate: int = 0) -> Load:
    return Load(
        kind="queue",
        topic=f"queue-{name}",
        clients=WORKERS,
        locks=locks,
        per_ack=per_ack,
        rate=rate,
        seconds=seconds,
    )
