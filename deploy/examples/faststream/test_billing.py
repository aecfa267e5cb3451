"""The program against a real cluster: pip install PATH-OF-RAFTLOG 'faststream[kafka]' confluent-kafka pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

WAIT_S = 60.0


def send(servers: str, numbers: range) -> None:
    """Write an order for each number."""
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce("orders", json.dumps({"id": number, "cents": 250}), str(number))
    assert producer.flush(WAIT_S) == 0


def read(consumer: Any, invoices: dict[int, float], count: int) -> None:
    """Read until so many orders have an invoice."""
    while len(invoices) < count:
        (message,) = consumer.consume(1, WAIT_S)
        invoice = json.loads(message.value())
        invoices[invoice["order"]] = invoice["euros"]


def test_each_order_has_an_invoice_although_leaders_and_the_program_die(raftlog_cluster: Any) -> None:
    """At least once: what was not committed comes again."""
    servers = raftlog_cluster.bootstrap_servers
    for topic in ("orders", "invoices"):
        raftlog_cluster.create_topic(topic, partitions=3)
    reader = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    reader.subscribe(["invoices"])
    command = [sys.executable, "billing.py"]
    settings: Any = {"cwd": Path(__file__).parent, "env": {**os.environ, "BOOTSTRAP_SERVERS": servers}}
    invoices: dict[int, float] = {}
    program = subprocess.Popen(command, **settings)
    try:
        send(servers, range(100))
        read(reader, invoices, 50)
        raftlog_cluster.kill_leader("orders")
        program.kill()
        program.wait(WAIT_S)
        send(servers, range(100, 200))
        program = subprocess.Popen(command, **settings)
        read(reader, invoices, 200)
    finally:
        program.kill()
        program.wait(WAIT_S)
        reader.close()
    assert invoices == dict.fromkeys(range(200), 2.5)
