"""Measures how long a coordinator commits no record around a fault. Closed loops, one commit in flight each.

Some loops commit transactions of one record, each under an id of its own; others commit a group's offset. There are
several of each, since every id and every group has its own coordinator. The worst loop counts, as with the meter of
partitions. After every failure a group's offset is also read back: it must not be below the acknowledged offset.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from raftlog.testing.progress import patient
from raftlog_chaos.runs.meter import QUICK_CLIENT, Beats

LOOPS: Final = 3
"""The number of loops of each kind."""
PACE_S: Final = 0.02
CALL_S: Final = 5.0
AGAIN_S: Final = 0.05
"""Before a client that failed is replaced by another."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
NOT_COUNTED_S: Final = 30.0
"""A loop that takes so long to end is abandoned."""


class CommitMeter(Protocol):
    """Closed loops on coordinators, on the clock of the loop that the run is on."""

    @property
    def beats(self) -> Mapping[str, Sequence[Beats]]:
        """By what is committed."""

    @property
    def faults(self) -> list[str]:
        """An error that no fault excuses: offsets that went back."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class _Loop:
    """One thread that commits repeatedly, with a new client after each failure."""

    def __init__(self, open_client: Callable[[], Callable[[], None]], name: str) -> None:
        self.beats = Beats(array("d"), array("d"))
        self.stopping = threading.Event()
        self._open = open_client
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        commit: Callable[[], None] | None = None
        while not self.stopping.is_set():
            began_at = time.monotonic()
            try:
                if commit is None:
                    commit = self._open()
                commit()
            except KafkaException:
                commit = None
                time.sleep(AGAIN_S)
                continue
            self.beats.acked_at.append(time.monotonic())
            self.beats.took_s.append(time.monotonic() - began_at)
            time.sleep(PACE_S)


class StockCommitMeter:
    """The loops with confluent-kafka, on a topic that exists. The clock is time.monotonic."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.faults: list[str] = []
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, **QUICK_CLIENT, **config}
        self._topic = topic
        self._acked = [0] * LOOPS
        self._loops = {
            "transactions": [
                _Loop(partial(self._transactions, each), f"commit-{each}") for each in range(LOOPS)
            ],
            "offsets": [_Loop(partial(self._offsets, each), f"offset-{each}") for each in range(LOOPS)],
        }

    @property
    def beats(self) -> Mapping[str, Sequence[Beats]]:
        return {name: [each.beats for each in loops] for name, loops in self._loops.items()}

    def start(self) -> None:
        for each in self._all():
            each.thread.start()

    def stop(self) -> None:
        """Let the loops end after their present commit."""
        for each in self._all():
            each.stopping.set()
        end_at = time.monotonic() + patient(NOT_COUNTED_S)
        for each in self._all():
            each.thread.join(max(0.0, end_at - time.monotonic()))

    def _all(self) -> list[_Loop]:
        return [each for loops in self._loops.values() for each in loops]

    def _transactions(self, number: int) -> Callable[[], None]:
        """Open a producer and return what commits one transaction."""
        from confluent_kafka import Producer

        own = {"transactional.id": f"meter-{number}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        own["delivery.timeout.ms"] = TRANSACTION_TIMEOUT_MS
        producer = Producer({**self._settings, **own, "linger.ms": 0})
        producer.init_transactions(CALL_S)

        def commit() -> None:
            producer.begin_transaction()
            producer.produce(self._topic, b"beat", partition=number)
            producer.commit_transaction(CALL_S)

        return commit

    def _offsets(self, number: int) -> Callable[[], None]:
        """Open a consumer that is no member and return what commits its group's next offset."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({**self._settings, "group.id": f"meter-{number}", "enable.auto.commit": False})
        (found,) = consumer.committed([TopicPartition(self._topic, number)], CALL_S)
        if found.error is not None:
            raise KafkaException(found.error)
        offset = max(found.offset, 0)  # none is committed yet
        if offset < self._acked[number]:
            self.faults.append(
                f"group meter-{number}: its offset is {offset}, but {self._acked[number]} was acknowledged"
            )
        following = max(offset, self._acked[number])

        def commit() -> None:
            nonlocal following
            following += 1
            testbed = TopicPartition(self._topic, number, following)
            (done,) = consumer.commit(offsets=[testbed], asynchronous=False)
            if done.error is not None:
                raise KafkaException(done.error)
            self._acked[number] = following

        return commit
