"""A program that writes numbered records with acks=all, until its standard input ends; then it reads all of them back.

Now and then it prints the number of acknowledged records. At the end it prints a JSON object: the number of records,
the records that the topic lacks, and the number of errors by kind. The client has no retries, so errors that it would
retry count, too.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from threading import Event, Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.waits import PATIENCE_S

PAUSE_S = 0.02
PARTITIONS = 6
PRINTED = 10
"""It prints after each so many acknowledgements."""


class Writer:
    """One run of the program."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._client, self._topic = {"bootstrap.servers": bootstrap, "log_level": "0"}, topic
        self._acknowledged: set[int] = set()
        self._errors = Counter[str]()

    def create_topic(self) -> None:
        admin = AdminClient(self._client)  # which must outlive the request
        admin.create_topics([NewTopic(self._topic, num_partitions=PARTITIONS)])[self._topic].result(
            PATIENCE_S
        )

    def write(self, ended: Event) -> None:
        """Write a record each PAUSE_S."""
        producer, number = Producer(self._client | {"acks": "all", "retries": 0}), 0
        while not ended.wait(PAUSE_S):
            self._send(producer, number)
            number += 1
            producer.poll(0)
        producer.flush(PATIENCE_S)

    def _send(self, producer: Producer, number: int) -> None:
        def delivered(error: object, _record: object) -> None:
            if error is not None:
                self._errors[error.name()] += 1  # type: ignore[attr-defined]
                return
            self._acknowledged.add(number)
            if len(self._acknowledged) % PRINTED == 0:
                print(len(self._acknowledged), flush=True)

        producer.produce(self._topic, str(number), partition=number % PARTITIONS, on_delivery=delivered)

    def missing(self) -> list[int]:
        """Return the acknowledged records that the topic does not have."""
        consumer = Consumer(self._client | {"group.id": "readers", "enable.partition.eof": True})
        consumer.assign([TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        found, ends = set[int](), set[int]()
        while len(ends) < PARTITIONS:
            record = consumer.poll(PATIENCE_S)
            assert record is not None, "no record comes"
            if record.error() is None:
                found.add(int(record.value()))
            elif record.error().name() == "_PARTITION_EOF":
                ends.add(record.partition())
        consumer.close()
        return sorted(self._acknowledged - found)

    def run(self) -> None:
        self.create_topic()
        ended = Event()
        thread = Thread(target=self.write, args=(ended,))
        thread.start()
        sys.stdin.read()
        ended.set()
        thread.join()
        report = {"acknowledged": len(self._acknowledged), "missing": self.missing(), "errors": self._errors}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    Writer(sys.argv[1], sys.argv[2]).run()
