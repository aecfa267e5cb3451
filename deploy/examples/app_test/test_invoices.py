"""The program against a real cluster: pip install PATH-OF-RAFTLOG aiokafka pytest pytest-asyncio, then pytest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from invoices import make_invoice, run


def test_an_invoice_has_the_total_of_all_items():
    """No cluster needed."""
    assert make_invoice({"id": 7, "items": [[2, 150], [1, 99]]}) == {"order": 7, "cents": 399}


@asynccontextmanager
async def running(bootstrap_servers: str, **names: str) -> AsyncIterator[None]:
    """Run the program meanwhile, and let it say goodbye to the cluster while that is still there."""
    program = asyncio.create_task(run(bootstrap_servers, **names))
    try:
        yield
    finally:
        program.cancel()
        with suppress(asyncio.CancelledError):
            await program


async def send_orders(bootstrap_servers: str, topic: str, numbers: Iterable[int]) -> None:
    """Write an order for each number."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
        for number in numbers:
            await producer.send_and_wait(topic, json.dumps({"id": number, "items": [[1, number]]}).encode())


async def read_invoices(bootstrap_servers: str, topic: str, count: int) -> set[int]:
    """Return the numbers of the first invoices of so many different orders."""
    found: set[int] = set()
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            found.add(json.loads(record.value)["order"])
            if len(found) == count:
                break
    return found


async def test_every_order_is_invoiced(raftlog):
    """The session's cluster, with topics that no other test has."""
    invoices = raftlog.create_topic(raftlog.name("invoices"))
    orders = raftlog.create_topic(raftlog.name("orders"), partitions=3)
    await send_orders(raftlog.bootstrap_servers, orders, range(20))
    async with running(
        raftlog.bootstrap_servers, orders=orders, invoices=invoices, group_id=raftlog.group_id
    ):
        assert await read_invoices(raftlog.bootstrap_servers, invoices, 20) == set(range(20))


async def test_no_order_is_lost_when_a_leader_dies(raftlog_cluster):
    """A cluster of this test alone, one node of which is killed in the middle."""
    servers = raftlog_cluster.bootstrap_servers
    for topic in ("orders", "invoices"):
        raftlog_cluster.create_topic(topic)
    async with running(servers, orders="orders", invoices="invoices", group_id="invoices"):
        await send_orders(servers, "orders", range(50))
        raftlog_cluster.kill_leader("orders")
        await send_orders(servers, "orders", range(50, 100))
        assert await read_invoices(servers, "invoices", 100) == set(range(100))
