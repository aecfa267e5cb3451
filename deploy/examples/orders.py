"""Send numbered orders to a topic: `python deploy/examples/orders.py --count 20`."""

from __future__ import annotations

import argparse

from confluent_kafka import Producer


def main() -> None:
    parser = argparse.ArgumentParser(description="Send numbered orders to a topic.")
    parser.add_argument("-b", "--bootstrap", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="topic to write [orders]")
    parser.add_argument("--count", type=int, default=20)
    asked = parser.parse_args()
    producer = Producer({"bootstrap.servers": asked.bootstrap, "enable.idempotence": True})
    for number in range(asked.count):
        producer.produce(asked.orders, value=str(number))
    if producer.flush(30):
        raise SystemExit("not all orders were acknowledged")
    print(f"sent {asked.count} orders")


if __name__ == "__main__":
    main()
