"""A program: a producer that writes until its input ends, `writer.py LIBRARY BOOTSTRAP TOPIC NAME PARTITIONS RATE`.

It writes NAME-0 to partition 0, NAME-1 to the next partition and so on, at most RATE records a second. It prints
`wrote VALUE` after an acknowledgement, and `lost VALUE` with the reason after a failure. The programs in
tests/interop/go print the same lines.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

sys.path.append(".")

from tests.clients.member import ended, tell

PENDING_S = 60.0


def paced(name: str, partitions: int, rate: int) -> Iterator[tuple[str, int]]:
    """Return values and their partitions, one by one, until the input ends."""
    number = 0
    while not ended.wait(1 / rate):
        yield f"{name}-{number}", number % partitions
        number += 1


def confluent(bootstrap: str, topic: str, name: str, partitions: int, rate: int) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        tell("wrote", value) if error is None else tell("lost", value, error.str())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for value, partition in paced(name, partitions, rate):
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    producer.flush(PENDING_S)


def kafka_python(bootstrap: str, topic: str, name: str, partitions: int, rate: int) -> None:
    from functools import partial

    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), enable_idempotence=True, linger_ms=5)
    for value, partition in paced(name, partitions, rate):
        sent = producer.send(topic, value.encode(), partition=partition)
        sent.add_callback(partial(lambda value, _: tell("wrote", value), value))
        sent.add_errback(partial(lambda value, error: tell("lost", value, repr(error)), value))
    producer.flush(PENDING_S)
    producer.close()


async def aio(bootstrap: str, topic: str, name: str, partitions: int, rate: int) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()

    async def write(value: str, partition: int) -> None:
        try:
            await producer.send_and_wait(topic, value.encode(), partition=partition)
        except KafkaError as error:
            tell("lost", value, repr(error))
        else:
            tell("wrote", value)

    async with asyncio.TaskGroup() as writing:
        values = paced(name, partitions, rate)
        while (found := await asyncio.to_thread(next, values, None)) is not None:
            writing.create_task(write(*found))
    await producer.stop()


def main() -> None:
    library, bootstrap, topic, name, partitions, rate = sys.argv[1:]
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    where = (bootstrap, topic, name, int(partitions), int(rate))
    if library == "aiokafka":
        asyncio.run(aio(*where))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[library](*where)


if __name__ == "__main__":
    main()
