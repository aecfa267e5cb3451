"""Keeps a total for each customer, exactly once, with Quix Streams. Run it: python totals.py"""

import os

from quixstreams import Application, State
from quixstreams.models import TopicConfig

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092,localhost:9093,localhost:9094")
TOPIC = TopicConfig(num_partitions=3, replication_factor=3)  # by default a topic has one replica


def add(order: dict[str, int], state: State) -> dict[str, int]:
    """Return the total of a customer with an order."""
    total = state.get("total", 0) + order["cents"]
    state.set("total", total)
    return {"total": total}


app = Application(
    broker_address=SERVERS,
    consumer_group="totals",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=1.0,
    state_dir=os.environ.get("STATE_DIR", "state"),
)
orders = app.topic("orders", value_deserializer="json", config=TOPIC)
totals = app.topic("totals", value_serializer="json", config=TOPIC)
app.dataframe(orders).apply(add, stateful=True).to_topic(totals)

if __name__ == "__main__":
    app.run()
