"""Hold the receipts against the orders: `python deploy/examples/compare.py receipts-at-least-once`."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from shop import ORDERS, parser, topics_at


def reader_of(bootstrap: str, isolation: str) -> Consumer:
    """Return a consumer that is no member of a group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",  # librdkafka wants a name; nothing is committed under it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )


def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Return where each partition ends now, behind transactions that are about to end, too."""
    reader = reader_of(bootstrap, "read_uncommitted")
    partitions = reader.list_topics(topic, 10).topics[topic].partitions
    ends = {index: reader.get_watermark_offsets(TopicPartition(topic, index), 10)[1] for index in partitions}
    reader.close()
    return ends


def read_all(bootstrap: str, topic: str) -> Counter[bytes]:
    """Return how often each value is there; what an aborted transaction wrote is not, an open one is waited for."""
    ends = ends_of(bootstrap, topic)
    reader = reader_of(bootstrap, "read_committed")
    reader.assign([TopicPartition(topic, index, 0) for index in ends])
    found: Counter[bytes] = Counter()
    at_end: set[int] = set()
    while len(at_end) < len(ends):
        for message in reader.consume(100, 1.0):
            if message.error() is None:
                found[message.value()] += 1
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            elif message.offset() >= ends[message.partition()]:
                at_end.add(message.partition())
    reader.close()
    return found


def main() -> None:
    words = parser("Hold the receipts against the orders.")
    words.add_argument("receipts", help="topic of receipts")
    words.add_argument("--orders", default=ORDERS, help=f"topic of orders [{ORDERS}]")
    asked = words.parse_args()
    if absent := {asked.orders, asked.receipts} - topics_at(asked.bootstrap):
        raise SystemExit(f"there is no topic {', '.join(sorted(absent))}")
    orders, receipts = read_all(asked.bootstrap, asked.orders), read_all(asked.bootstrap, asked.receipts)
    missing = sum((orders - receipts).values())
    doubled = sum((receipts - orders).values())
    print(f"{orders.total()} orders, {receipts.total()} receipts: {missing} missing, {doubled} doubled")


if __name__ == "__main__":
    main()
