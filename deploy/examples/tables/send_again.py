"""Send dead letters of orders to the topic again: pip install confluent-kafka."""

import deltalake
from confluent_kafka import KafkaException, Producer


def check(error, message):
    """Stop at the first record that is not acknowledged."""
    if error is not None:
        raise KafkaException(error)


mistakes = [("reason", "=", "the registry has no schema 1")]
letters = deltalake.DeltaTable("lake/orders__dlq").to_pyarrow_table(filters=mistakes).to_pylist()
producer = Producer({"bootstrap.servers": "localhost:9092", "enable.idempotence": True})
for number, each in enumerate(letters):
    headers = [(header["key"], header["value"]) for header in each["headers"]]
    producer.produce("orders", each["value"], each["key"], headers=headers, on_delivery=check)
    if number % 1000 == 0:
        producer.flush()
producer.flush()
