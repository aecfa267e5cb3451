"""The program against a real cluster: pip install PATH-OF-RAFTLOG quixstreams pytest, then pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

WAIT_S = 90.0


def send(servers: str, count: int) -> None:
    """Write orders of one cent, in turn of two customers."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce("orders", json.dumps({"cents": 1}), f"customer-{number % 2}")
    assert producer.flush(WAIT_S) == 0


def read(consumer: Any, found: list[tuple[bytes, int]], count: int) -> None:
    """Read until there are so many totals."""
    while len(found) < count:
        (message,) = consumer.consume(1, WAIT_S)
        found.append((message.key(), json.loads(message.value())["total"]))


def test_each_order_counts_once_although_leaders_and_the_program_die(
    raftlog_cluster: Any, tmp_path: Path
) -> None:
    """Each total is there once: no order was left out, and none was added twice."""
    servers = raftlog_cluster.bootstrap_servers
    for topic in ("orders", "totals"):
        raftlog_cluster.create_topic(topic, partitions=3)
    reader = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    reader.subscribe(["totals"])
    command = [sys.executable, "totals.py"]
    env = {**os.environ, "BOOTSTRAP_SERVERS": servers, "STATE_DIR": str(tmp_path)}
    found: list[tuple[bytes, int]] = []
    program = subprocess.Popen(command, cwd=Path(__file__).parent, env=env)
    try:
        send(servers, 100)
        read(reader, found, 50)
        raftlog_cluster.kill_leader("orders")
        program.kill()
        program.wait(WAIT_S)
        send(servers, 100)
        program = subprocess.Popen(command, cwd=Path(__file__).parent, env=env)
        read(reader, found, 200)
        assert reader.consume(1, 3.0) == []
    finally:
        program.kill()
        program.wait(WAIT_S)
        reader.close()
    assert sorted(found) == [(b"customer-%d" % each, total) for each in (0, 1) for total in range(1, 101)]
