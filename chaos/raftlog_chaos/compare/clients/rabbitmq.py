"""The client of RabbitMQ's quorum queues: publisher confirms, prefetch, and acknowledgements by each worker.

RabbitMQ does not answer an acknowledgement. A record counts as accepted when its acknowledgement is sent, so RabbitMQ's
figures leave out the time and the durability of that. A partition is a queue of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog_chaos.compare.amqp_wire import AmqpConnection, AmqpError, acknowledge, publish
from raftlog_chaos.compare.clients.queue import Accepting, measure_queue
from raftlog_chaos.compare.clients.speech import main
from raftlog_chaos.compare.loads import Answer, Load


class _Queues:
    """The queues of a load, and the connections of its producer and workers."""

    def __init__(self, load: Load, accepting: Accepting) -> None:
        self._load = load
        self._accepting = accepting
        self._names = [f"{load.topic}-{each}" for each in range(load.partitions)]
        self._producer = AmqpConnection(load.servers[0])
        self._producer.confirm()

    def send(self, records: Sequence[bytes]) -> None:
        """Publish records. Their confirms are taken with later records."""
        first = self._accepting.sent
        self._producer.send(
            b"".join(
                publish(self._names[(first + at) % len(self._names)], [each])
                for at, each in enumerate(records)
            )
        )
        self._producer.hear()
        if self._producer.refused:
            raise AmqpError("the server refused a message")

    def work(self, worker: int) -> None:
        """Take records and accept them, for ever."""
        connection = AmqpConnection(self._load.servers[worker % len(self._load.servers)])
        most = max(1, self._load.locks // self._load.clients // len(self._names))
        for name in self._names:
            connection.consume(name, prefetch=most)
        multiple = self._load.per_ack > 1
        while True:
            records = connection.deliveries()
            self._accepting.note_delivered([each.body for each in records])
            for begins in range(0, len(records), self._load.per_ack):
                some = records[begins : begins + self._load.per_ack]
                connection.send(acknowledge(some[-1].tag, multiple=multiple))
                self._accepting.note_accepted(worker, [each.body for each in some])


def queue(load: Load) -> Answer:
    """Publish to quorum queues, and let workers accept the messages."""
    accepting = Accepting(load)
    queues = _Queues(load, accepting)
    return measure_queue(load, accepting, queues.send, queues.work)


if __name__ == "__main__":
    main({"queue": queue})
