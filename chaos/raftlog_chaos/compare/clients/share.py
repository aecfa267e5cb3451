"""The client of queues on Kafka's protocol: share consumers of one group (KIP-932), as confluent-kafka brings them.

A worker goes on once its records are accepted (`commit_sync`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.bench.measure import LATENCY_CONFIG, PRODUCER_CONFIG
from raftlog_chaos.compare.clients.queue import STAMP_BYTES, Accepting, measure_queue
from raftlog_chaos.compare.clients.speech import main
from raftlog_chaos.compare.loads import Answer, Load

POLL_S: Final = 0.1
COMMIT_S: Final = 10.0
SETUP_S: Final = 15.0


def _config(load: Load, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": ",".join(load.servers), "log_level": 0, **load.settings, **more}


def _begin_at_the_earliest(load: Load) -> None:
    """Let the group begin with the first record: by default it would miss what is sent before it has members."""
    import confluent_kafka.admin

    library: Any = confluent_kafka.admin
    entry = library.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=library.AlterConfigOpType.SET
    )
    resource = library.ConfigResource(library.ResourceType.GROUP, load.topic, incremental_configs=[entry])
    admin = library.AdminClient(_config(load))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(SETUP_S)


class _Workers:
    """The members of the group, which is named like the topic."""

    def __init__(self, load: Load, accepting: Accepting) -> None:
        self._load = load
        self._accepting = accepting

    def work(self, worker: int) -> None:
        """Take records and accept them, for ever."""
        from confluent_kafka import ShareConsumer

        config = _config(
            self._load,
            **{
                "group.id": self._load.topic,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": str(self._load.locks // self._load.clients),
                "fetch.wait.max.ms": "100",
                "fetch.min.bytes": "1",
                "socket.nagle.disable": "true",
            },
        )
        consumer: Any = ShareConsumer(config)
        consumer.subscribe([self._load.topic])
        while True:
            records = [each for each in consumer.poll(POLL_S) if each.error() is None]
            self._accepting.note_delivered([each.value() or b"" for each in records])
            for begins in range(0, len(records), self._load.per_ack):
                self._accept(consumer, worker, records[begins : begins + self._load.per_ack])

    def _accept(self, consumer: Any, worker: int, records: Sequence[Any]) -> None:
        for each in records:
            consumer.acknowledge(each)
        failed = any(error is not None for error in consumer.commit_sync(COMMIT_S).values())
        stamps = [each.value()[:STAMP_BYTES] for each in records]
        self._accepting.note_accepted(worker, stamps, failed=failed)


def queue(load: Load) -> Answer:
    """Produce to a topic, and let a share group accept its records."""
    from confluent_kafka import Producer

    _begin_at_the_earliest(load)
    producer = Producer(_config(load, **(LATENCY_CONFIG if load.rate else PRODUCER_CONFIG)))
    accepting = Accepting(load)

    def send(records: Sequence[bytes]) -> None:
        for number, each in enumerate(records, accepting.sent):
            producer.produce(load.topic, each, partition=number % load.partitions)
        producer.poll(0)

    return measure_queue(load, accepting, send, _Workers(load, accepting).work)


if __name__ == "__main__":
    main({"queue": queue})
