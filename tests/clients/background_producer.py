"""A stock producer that sends number after number from its own thread while nodes are hurt, and what became of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.clients.stock import RecordMetadata, StockClient
from tests.kit.waits import PATIENCE_S, poll_until

PACE_S = 0.005
"""Between two records."""

LOOK_S = 0.005


class BackgroundProducer:
    """A context manager; at its end the stream has stopped and every record is acknowledged, or it raises Refused."""

    def __init__(
        self, client: StockClient, topic: str, *, partition: int = 0, acks: int | str = "all"
    ) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.acks = acks
        self.sent = 0
        self.acked = 0
        self.acknowledged: list[RecordMetadata] = []
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stream-{client.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(3 * PATIENCE_S)
        assert not self._thread.is_alive(), "the stream does not end"
        if self._failure is not None and error is None:
            raise self._failure

    def wait_acked(self, more: int) -> None:
        """Wait until so many more records are acknowledged (with acks=0: sent)."""
        goal = self.acked + more

        def reached() -> bool:
            if self._failure is not None:
                raise self._failure
            return self.acked >= goal or self._stopping.wait(LOOK_S)

        poll_until(reached, f"{more} more records are acknowledged")

    @property
    def values(self) -> list[bytes]:
        """Everything that was sent, in order."""
        return [b"%d" % number for number in range(self.sent)]

    def read_back(self, client: StockClient) -> list[bytes]:
        """Return all values of the partition as another client reads them."""
        first, end = client.bounds(self.topic, self.partition)
        records = client.read(self.topic, self.partition, first, end - first)
        assert [record.offset for record in records] == list(range(first, end))
        return [record.value or b"" for record in records]

    def _run(self) -> None:
        try:
            self.acknowledged = self.client.produce(
                self.topic, self._numbers(), partition=self.partition, acks=self.acks, acked=self._count
            )
        except BaseException as error:  # delivered to the waiting caller
            self._failure = error

    def _numbers(self) -> Iterator[bytes]:
        while not self._stopping.wait(PACE_S):
            yield b"%d" % self.sent
            self.sent += 1

    def _count(self) -> None:
        self.acked += 1
