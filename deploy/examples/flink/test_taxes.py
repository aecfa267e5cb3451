"""The job against a real cluster: pip install PATH-OF-RAFTLOG apache-flink pytest, and FLINK_KAFKA_JAR=PATH pytest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

WAIT_S = 120.0


def send(servers: str, numbers: range) -> None:
    """Write an order for each number."""
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce("orders", json.dumps({"id": number, "cents": 100}))
    assert producer.flush(WAIT_S) == 0


def read(consumer: Any, found: list[int], count: int) -> None:
    """Read until there are so many records of committed transactions."""
    while len(found) < count:
        messages = consumer.consume(1000, WAIT_S)
        assert messages
        found += [json.loads(each.value())["id"] for each in messages if not each.error()]


def start(servers: str, folder: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "BOOTSTRAP_SERVERS": servers, "CHECKPOINTS": str(folder)}
    command = [sys.executable, "taxes.py", os.environ["FLINK_KAFKA_JAR"]]
    return subprocess.Popen(command, cwd=Path(__file__).parent, env=env, start_new_session=True)


def kill(program: subprocess.Popen[bytes]) -> None:
    """End Python and its Java at once."""
    os.killpg(program.pid, signal.SIGKILL)
    program.wait(WAIT_S)


def test_each_order_is_taxed_once_although_leaders_and_the_job_die(
    raftlog_cluster: Any, tmp_path: Path
) -> None:
    """The second start goes on at the newest checkpoint."""
    servers = raftlog_cluster.bootstrap_servers
    for topic in ("orders", "taxed"):
        raftlog_cluster.create_topic(topic, partitions=3)
    reader = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    reader.subscribe(["taxed"])
    found: list[int] = []
    program = start(servers, tmp_path)
    try:
        send(servers, range(5000))
        read(reader, found, 1)
        send(servers, range(5000, 10_000))
        killed = raftlog_cluster.kill_leader("taxed")
        read(reader, found, 10_000)
        raftlog_cluster.restart(killed)
        send(servers, range(10_000, 15_000))
        kill(program)
        send(servers, range(15_000, 20_000))
        program = start(servers, tmp_path)
        read(reader, found, 20_000)
        assert reader.consume(1, 5.0) == []
    finally:
        kill(program)
        reader.close()
    assert sorted(found) == list(range(20_000))
