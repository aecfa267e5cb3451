"""The messages between a client process and its parent: the load as an argument, begin, end, and the answer."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from raftlog_chaos.compare.loads import Answer, Load

Quantiles = tuple[float, float, float]


class Clock:
    """The measured time of a load: `begin` and `end` report it to the parent process."""

    def __init__(self) -> None:
        self.began_at = 0.0
        self.seconds = 0.0
        self.cpu_s = 0.0

    def begin(self) -> None:
        """Note that the warm-up is over."""
        say("begin")
        self.began_at, self.cpu_s = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """Note that the measured time is over."""
        self.seconds = time.perf_counter() - self.began_at
        self.cpu_s = time.process_time() - self.cpu_s
        say("end")

    def answer(
        self, records: int, *, failed: int = 0, took_s: Sequence[float] = (), consumed: int = 0
    ) -> Answer:
        """Return the answer for that many records in the measured time."""
        return Answer(
            records=records,
            seconds=self.seconds,
            client_s=self.cpu_s,
            failed=failed,
            took_ms=quantiles_ms(took_s) if took_s else None,
            consumed=consumed,
        )


class ProduceStream(Protocol):
    """A client that sends as fast as it can, and counts what became of the records."""

    acknowledged: int
    failed: int

    def run(self, seconds: float) -> None:
        """Send for so long."""


def measure_stream(stream: ProduceStream, load: Load) -> Answer:
    """Warm a stream up, then measure it."""
    clock = Clock()
    stream.run(load.warmup_s)
    clock.begin()
    before = stream.acknowledged
    stream.run(load.seconds)
    records = stream.acknowledged - before
    clock.end()
    return clock.answer(records, failed=stream.failed)


def say(line: str) -> None:
    """Write a line to the parent process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def quantiles_ms(took_s: Sequence[float]) -> Quantiles:
    """Return p50, p99 and p99.9 (nearest rank) of seconds, in milliseconds."""
    ordered = sorted(took_s)
    p50, p99, p999 = (
        ordered[max(0, math.ceil(len(ordered) * share) - 1)] * 1000 for share in (0.5, 0.99, 0.999)
    )
    return p50, p99, p999


def paced(send: Callable[[float], None], *, rate: int, seconds: float) -> None:
    """Call `send` at a steady rate, with the moment when it was due. Calls that are late follow without a pause."""
    started = time.perf_counter()
    for number in range(int(rate * seconds)):
        due_at = started + number / rate
        pause = due_at - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        elif -pause > seconds:
            return
        send(due_at)


def main(programs: dict[str, Callable[[Load], Answer]]) -> None:
    """Run the program for the load of the command line, and print its answer."""
    load = msgspec.json.decode(sys.argv[1], type=Load)
    if load.kind not in programs:
        sys.exit(f"this client has no load {load.kind!r}")
    say(msgspec.json.encode(programs[load.kind](load)).decode())
