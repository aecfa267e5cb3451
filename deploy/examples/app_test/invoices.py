"""A small program that uses Kafka: reads orders, adds the total of each, and writes invoices.

Each order is invoiced at least once: an offset is committed after the invoice has been acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def make_invoice(order: dict[str, object]) -> dict[str, object]:
    """Return the invoice of an order, whose `items` are pairs of a count and a price in cents."""
    return {"order": order["id"], "cents": sum(count * price for count, price in order["items"])}


async def run(bootstrap_servers: str, *, orders: str, invoices: str, group_id: str) -> None:
    """Invoice orders until this is cancelled."""
    consumer = AIOKafkaConsumer(
        orders,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True)
    async with consumer, producer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000)
            sent = [
                await producer.send(invoices, json.dumps(make_invoice(json.loads(record.value))).encode())
                for records in batches.values()
                for record in records
            ]
            if sent:
                await asyncio.gather(*sent)
                await consumer.commit()


if __name__ == "__main__":
    asyncio.run(
        run(os.environ["BOOTSTRAP_SERVERS"], orders="orders", invoices="invoices", group_id="invoices")
    )
