"""Send numbered orders to a topic: `python deploy/examples/orders.py --count 20`."""

from __future__ import annotations

from confluent_kafka import Producer
from shop import ORDERS, parser, topics_at


def main() -> None:
    words = parser("Send numbered orders to a topic.")
    words.add_argument("--orders", default=ORDERS, help=f"topic to write [{ORDERS}]")
    words.add_argument("--count", type=int, default=20)
    asked = words.parse_args()
    topics_at(asked.bootstrap)
    producer = Producer({"bootstrap.servers": asked.bootstrap, "enable.idempotence": True})
    for number in range(asked.count):
        producer.produce(asked.orders, value=str(number))
    if producer.flush(30):
        raise SystemExit("not all orders were acknowledged")
    print(f"sent {asked.count} orders to {asked.orders}")


if __name__ == "__main__":
    main()
