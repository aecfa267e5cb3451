"""Hold the receipts against the orders: `python deploy/examples/compare.py receipts-at-least-once`."""

from __future__ import annotations

import argparse
from collections import Counter

from confluent_kafka import Consumer, TopicPartition


def read_all(bootstrap: str, topic: str) -> Counter[bytes]:
    """Return how often each value is there; what an aborted transaction wrote is not."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",  # librdkafka wants a name; nothing is committed under it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    partitions = reader.list_topics(topic, 10).topics[topic].partitions
    reader.assign([TopicPartition(topic, index, 0) for index in partitions])
    found: Counter[bytes] = Counter()
    at_end = 0
    while at_end < len(partitions):
        for message in reader.consume(100, 1.0):
            if message.error() is None:
                found[message.value()] += 1
            else:
                at_end += 1
    reader.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold the receipts against the orders.")
    parser.add_argument("receipts", help="topic of receipts")
    parser.add_argument("-b", "--bootstrap", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="topic of orders [orders]")
    asked = parser.parse_args()
    orders, receipts = read_all(asked.bootstrap, asked.orders), read_all(asked.bootstrap, asked.receipts)
    missing = sum((orders - receipts).values())
    doubled = sum((receipts - orders).values())
    print(f"{orders.total()} orders, {receipts.total()} receipts: {missing} missing, {doubled} doubled")


if __name__ == "__main__":
    main()
