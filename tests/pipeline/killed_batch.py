"""Writes batches in transactions, and dies after a call: `SERVERS TOPIC`, then a line of JSON for each attempt.

A line has `query`, `batch`, `values` and `die_after`, the number of the call after which the process is killed, 0 for
never. The exit code of the attempt is printed. Attempts are forks of this process, which has imported all libraries.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pyarrow as pa

from raftlog.pipeline import exactly_once
from raftlog.pipeline.options import write_options

CALLS = (
    "init_transactions",
    "begin_transaction",
    "produce",
    "flush",
    "send_offsets_to_transaction",
    "commit_transaction",
)


def die_after(last: int) -> Callable[[Any, str], Callable[..., Any]]:
    """Return what makes a client's method count its calls, and kill this process after one of them."""
    numbers = count(1)

    def counted(client: Any, name: str) -> Callable[..., Any]:
        method = getattr(client, name)

        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            found = method(self, *arguments, **named)
            if name == "produce":
                client.flush(self, 10.0)  # it is at the broker, not in this process alone
            if next(numbers) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return call

    return counted


def attempt(servers: str, topic: str, asked: dict[str, Any]) -> None:
    """Write a batch."""
    counted = die_after(asked["die_after"])
    producer, consumer = confluent_kafka.Producer, confluent_kafka.Consumer
    methods = {name: counted(producer, name) for name in CALLS}
    confluent_kafka.Producer = type("Producer", (producer,), methods)  # type: ignore[misc]
    exactly_once.Consumer = type("Consumer", (consumer,), {"committed": counted(consumer, "committed")})  # type: ignore[misc]
    options = write_options({"kafka.bootstrap.servers": servers, "topic": topic})
    of = (asked["query"], asked["batch"], 0)
    assert [*exactly_once.write_batch(options, frozenset({"value"}), *of, rows(asked["values"]))]


def rows(values: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a batch of Arrow for each value."""
    for value in values:
        yield pa.RecordBatch.from_pydict({"value": [value.encode()]})


def main() -> None:
    servers, topic = sys.argv[1:]
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                attempt(servers, topic, json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _pid, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
