"""Writes an invoice for each order, with FastStream. Run it: python billing.py"""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092,localhost:9093,localhost:9094")


class Order(BaseModel):
    """A record of the topic orders."""

    id: int
    cents: int


class Invoice(BaseModel):
    """A record of the topic invoices."""

    order: int
    euros: float


broker = KafkaBroker(
    SERVERS.split(","),  # a list: one text is taken for one server
    acks="all",
    enable_idempotence=True,
)
app = FastStream(broker)


@broker.subscriber(
    "orders", group_id="billing", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
)
@broker.publisher("invoices")
async def bill(order: Order) -> Invoice:
    """Return the invoice of an order. Its offset is committed once the invoice is written."""
    return Invoice(order=order.id, euros=order.cents / 100)


if __name__ == "__main__":
    asyncio.run(app.run())
