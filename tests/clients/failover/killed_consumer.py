"""A program: one consumer of a group of KIP-848 that reads until it is killed.

Usage: `killed_consumer.py BOOTSTRAP TOPIC GROUP`.

Each time its partitions change, it prints a line: `0 2`.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer


def main() -> None:
    bootstrap, topic, group = sys.argv[1:]
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    told: list[int] = []
    while True:
        consumer.poll(0.1)
        has = sorted(each.partition for each in consumer.assignment())
        if has != told:
            told = has
            sys.stdout.write(" ".join(map(str, has)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
