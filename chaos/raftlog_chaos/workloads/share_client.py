"""A member of a share group as a process of its own, by confluent-kafka's `ShareConsumer`, so that it can be killed.

Line by line it reads commands from standard input and writes an answer to standard output, all as JSON. The first line
has librdkafka's settings, the topics, and the timeout of a request in seconds. The process ends when its parent does.

| command | answer |
|---|---|
| `["acquire", seconds]` | `[[topic, partition, offset, value, delivery count], ...]` |
| `["acknowledge", [[kind, topic, partition, offset], ...]]` | `[[topic, partition, error code], ...]` |
| `["close"]` | `[]`, and then the process ends |

A failure of the whole command is answered with a string.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

KINDS: Final = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
SETTINGS: Final = {"share.acknowledgement.mode": "explicit"}


def acquire(consumer: Any, seconds: float) -> list[list[Any]]:
    """Return the records of one poll."""
    return [
        [each.topic(), each.partition(), each.offset(), (each.value() or b"").decode(), each.delivery_count()]
        for each in consumer.poll(seconds)
        if each.error() is None
    ]


def acknowledge(consumer: Any, said: list[list[Any]], timeout_s: float) -> list[list[Any]]:
    """Acknowledge records and return the outcome of each partition; 0 is success."""
    for kind, topic, partition, offset in said:
        consumer.acknowledge_offset(topic, partition, offset, KINDS[kind])
    return [
        [each.topic, each.partition, 0 if error is None else error.args[0].code()]
        for each, error in consumer.commit_sync(timeout_s).items()
    ]


def main() -> None:
    """Carry out commands until the input ends."""
    settings, topics, timeout_s = json.loads(sys.stdin.readline())
    consumer = ShareConsumer({**settings, **SETTINGS})
    consumer.subscribe(topics)
    for line in sys.stdin:
        name, *rest = json.loads(line)
        try:
            if name == "acquire":
                answer: Any = acquire(consumer, rest[0])
            elif name == "acknowledge":
                answer = acknowledge(consumer, rest[0], timeout_s)
            else:
                consumer.close()
                answer = []
        except KafkaException as error:
            answer = str(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if name == "close":
            break
    os._exit(0)  # no destructor may wait for a broker


if __name__ == "__main__":
    main()
