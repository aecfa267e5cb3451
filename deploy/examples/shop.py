"""What the examples share: their options, a consumer of orders in batches, and a way to die at a given moment."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

BATCH = 4
CRASHES_IN_BATCH = 2
BEFORE_COMMIT, AFTER_COMMIT = "before-commit", "after-commit"


def options(semantics: str) -> argparse.Namespace:
    """Return the command line of a program that writes a receipt for each order."""
    parser = argparse.ArgumentParser(description=f"Write a receipt for each order, {semantics}.")
    parser.add_argument("-b", "--bootstrap", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="topic to read [orders]")
    parser.add_argument("--receipts", default=f"receipts-{semantics}", help="topic to write [receipts-...]")
    parser.add_argument("--group", default=f"shop-{semantics}")
    parser.add_argument("--crash", choices=[BEFORE_COMMIT, AFTER_COMMIT], help="die in the second batch")
    return parser.parse_args()


def consumer(asked: argparse.Namespace) -> Consumer:
    """Return a member of the group that commits only when it is told to."""
    found = Consumer(
        {
            "bootstrap.servers": asked.bootstrap,
            "group.id": asked.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "session.timeout.ms": 6_000,  # so long the group waits for a member that died
        }
    )
    found.subscribe([asked.orders])
    return found


def producer(asked: argparse.Namespace, **settings: object) -> Producer:
    """Return a producer that sends nothing twice by itself."""
    return Producer({"bootstrap.servers": asked.bootstrap, "enable.idempotence": True, **settings})


def batches(orders: Consumer) -> Iterator[list[Message]]:
    """Yield a few orders at a time, until the end of the topic."""
    at_end: set[int] = set()
    while not at_end or len(at_end) < len(orders.assignment()):
        batch = []
        for message in orders.consume(BATCH, 0.5):
            if message.error() is None:
                batch.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise KafkaException(message.error())
        if batch:
            yield batch


class Fate:
    """Lets the process die as by kill -9 when the moment comes that was asked for."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._moment = asked.crash
        self._passed = 0

    def strikes(self, moment: str) -> None:
        """Die here, if this is the moment."""
        if moment == self._moment:
            self._passed += 1
            if self._passed == CRASHES_IN_BATCH:
                print(f"died {moment}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
