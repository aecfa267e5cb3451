"""What the examples share: their options, a consumer of orders in batches, and a way to die at a given moment.

All of them look for a cluster where -b says, or RAFTLOG_BOOTSTRAP, or at localhost:9092 as `raftlog dev` has it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

ORDERS = "shop-orders"
ANSWER_WITHIN_S = 5
NO_CLUSTER = 6
"""The exit code of raftlog's own commands, too, where nobody answers."""
BATCH = 4
CRASHES_IN_BATCH = 2
BEFORE_COMMIT, AFTER_COMMIT = "before-commit", "after-commit"


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all of them have."""
    found = argparse.ArgumentParser(description=description)
    cluster = os.environ.get("RAFTLOG_BOOTSTRAP") or "localhost:9092"
    found.add_argument("-b", "--bootstrap", default=cluster, help=f"the cluster [{cluster}]")
    return found


def topics_at(bootstrap: str) -> set[str]:
    """Return the cluster's topics. Ends the program if nobody answers."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return set(client.list_topics(timeout=ANSWER_WITHIN_S).topics)
    except KafkaException:
        print(f"no cluster at {bootstrap}: is `raftlog dev` running?", file=sys.stderr)
        raise SystemExit(NO_CLUSTER) from None


def options(semantics: str) -> argparse.Namespace:
    """Return the command line of a program that writes a receipt for each order."""
    words = parser(f"Write a receipt for each order, {semantics}.")
    words.add_argument("--orders", default=ORDERS, help=f"topic to read [{ORDERS}]")
    words.add_argument("--receipts", default=f"receipts-{semantics}", help="topic to write [receipts-...]")
    words.add_argument("--group", default=f"shop-{semantics}")
    words.add_argument("--crash", choices=[BEFORE_COMMIT, AFTER_COMMIT], help="die in the second batch")
    asked = words.parse_args()
    if asked.orders not in topics_at(asked.bootstrap):
        raise SystemExit(f"there is no topic {asked.orders}: orders.py makes it")
    return asked


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
