"""A client that sends as much as it can, as a process of its own.

`python -m raftlog_chaos.bench.greedy SERVERS TOPIC` starts it. It ends with its parent process, or at the parent's
request.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

CLIENT_ID = "greedy"
RECORD = b"x" * 10_000
QUEUED_BYTES_KB = 64 * 1024


@contextmanager
def greedy_client(bootstrap_servers: str, topic: str) -> Iterator[None]:
    """Run a client that sends for as long as the context lasts."""
    command = [sys.executable, "-m", "raftlog_chaos.bench.greedy", bootstrap_servers, topic]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own words
    try:
        assert process.stdout is not None
        process.stdout.readline()  # its first record was acknowledged
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def send_until(ended: Event, bootstrap_servers: str, topic: str) -> None:
    """Send as fast as the cluster takes it; say when the first record was acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": CLIENT_ID,
            "queue.buffering.max.kbytes": QUEUED_BYTES_KB,
            "log_level": 2,
        }
    )
    producer.produce(topic, RECORD, on_delivery=_say_so)
    while not ended.is_set():
        try:
            producer.produce(topic, RECORD)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    producer.purge()


def _say_so(*_: object) -> None:
    sys.stdout.write("sending\n")
    sys.stdout.flush()


def main() -> None:
    """Send until standard input ends."""
    ended = Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=wait, daemon=True).start()
    send_until(ended, *sys.argv[1:3])


if __name__ == "__main__":
    main()
