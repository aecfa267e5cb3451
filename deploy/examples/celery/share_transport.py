"""A kombu transport on Kafka's share groups (KIP-932): `broker_url = "share://localhost:9092"` after this is imported.

A queue is a topic, and a share group of the same name. A message is a record, acquired for the lock duration of the
group, which is kombu's visibility timeout.

| kombu and Celery | share group |
|---|---|
| `ack`: by default when the task starts, with `acks_late` when it is done | accept |
| `reject(requeue=True)`, `requeue`, `celery.exceptions.Reject(requeue=True)` | release: delivered again, counted |
| `reject(requeue=False)` | reject: never delivered again |
| no answer within the visibility timeout, or the worker is gone | released by the broker |

librdkafka's `ShareConsumer` polls again only when every record of its last poll is acknowledged. So each message that
a worker may hold has a consumer of its own, a lane. Their number is the worker's prefetch count.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty
from typing import Any, Final

from confluent_kafka import (
    AcknowledgeType,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kombu.log import get_logger
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

logger = get_logger(__name__)
TRANSPORT_ALIASES["share"] = f"{__name__}:Transport"

DEFAULT_PORT: Final = 9092
LANES: Final = 4
"""The lanes of a queue if the worker has no prefetch count."""
MAX_LANES: Final = 64
POLL_S: Final = 0.05
"""How long a worker that could take a message waits for it, over all its lanes."""
SLICE_S: Final = 0.005
IDLE_S: Final = 0.01
"""How long a worker rests that can take none."""
REQUEST_S: Final = 30.0
VISIBILITY_S: Final = 30

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class NotConfirmed(KafkaException):
    """A message may be in its queue or not: the broker did not confirm it in time."""


class Lane:
    """A member of the share group. Any thread may acknowledge; one thread polls."""

    def __init__(self, settings: dict[str, Any], topic: str, group: str) -> None:
        own = {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": 1}
        self._consumer = ShareConsumer({**settings, **own})
        self._consumer.subscribe([topic])
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()
        self._unanswered: set[Place] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a worker has all records of the last poll, and has not answered them all."""
        return bool(self._unanswered) and not self._waiting

    def take(self, seconds: float) -> Any:
        """Return the next record, or None. A producer's batch is acquired as a whole, so some may be left over."""
        if not self._waiting and not self._unanswered:
            with self._lock:
                found = [each for each in self._consumer.poll(seconds) if each.error() is None]
            self._waiting.extend(found)
            self._unanswered = {(each.topic(), each.partition(), each.offset()) for each in found}
        return self._waiting.popleft() if self._waiting else None

    def answer(self, place: Place, kind: AcknowledgeType) -> Exception | None:
        """Acknowledge a record. Return why the broker did not confirm that: the record may come again."""
        with self._lock:
            self._unanswered.discard(place)
            try:
                self._consumer.acknowledge_offset(*place, kind)
                outcomes = self._consumer.commit_sync(REQUEST_S)
            except KafkaException as error:
                return error
        missing = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        failure: Exception | None = outcomes.get(TopicPartition(*place[:2]), missing)
        return failure

    def close(self) -> None:
        """Leave the group; the broker releases what this lane has."""
        with self._lock:
            self._consumer.close()


class QoS(virtual.QoS):
    """Turns acks and rejects of messages into acknowledgements of records."""

    restore_at_shutdown = False  # lanes are closed, and the broker releases their records

    def ack(self, delivery_tag: str) -> None:
        self._answer(delivery_tag, AcknowledgeType.ACCEPT)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self._answer(delivery_tag, AcknowledgeType.RELEASE if requeue else AcknowledgeType.REJECT)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        for delivery_tag in list(self._delivered):
            self.reject(delivery_tag, requeue=True)
        return []

    def _answer(self, delivery_tag: str, kind: AcknowledgeType) -> None:
        self.channel.answer(delivery_tag, kind)
        super().ack(delivery_tag)


class Channel(virtual.Channel):
    """Sends and receives messages. Options are in `broker_transport_options`, see `README.md`."""

    QoS = QoS

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._lanes: dict[str, list[Lane]] = {}
        # by delivery tag: a record whose lock is over may come again on another lane
        self._held: dict[str, tuple[Lane, Place]] = {}
        self._producer: Producer | None = None

    # -- settings

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.connection.client.transport_options)

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's settings of all clients."""
        client = self.connection.client
        return {
            "bootstrap.servers": f"{client.hostname}:{client.port or DEFAULT_PORT}",
            **self.options.get("kafka", {}),
        }

    def topic_of(self, queue: str) -> str:
        """Return a queue's topic, and its group: Celery has names with an @ sign."""
        return queue.replace("@", ".")

    # -- queues

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        """Create the topic, and have the group begin at its first record."""
        topic = self.topic_of(queue)
        admin = AdminClient(self.settings)
        if topic in admin.list_topics(timeout=REQUEST_S).topics:
            return
        options = self.options
        wanted = NewTopic(
            topic,
            num_partitions=options.get("num_partitions", 1),
            replication_factor=options.get("replication_factor", -1),
            config=options.get("topic_config", {}),
        )
        lock_ms = int(options.get("visibility_timeout", VISIBILITY_S) * 1000)
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(lock_ms),
            **options.get("group_config", {}),
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=entries)
        for done in admin.incremental_alter_configs([group], request_timeout=REQUEST_S).values():
            done.result()
        for done in admin.create_topics([wanted], request_timeout=REQUEST_S).values():
            try:
                done.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.topic_of(queue) in AdminClient(self.settings).list_topics(timeout=REQUEST_S).topics

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        for lane in self._lanes.pop(queue, []):
            lane.close()
        admin = AdminClient(self.settings)
        for done in admin.delete_topics([self.topic_of(queue)]).values():
            done.result()

    def _purge(self, queue: str) -> int:
        """Delete the topic's records. Return how many there were, with those that are done already."""
        admin, topic = AdminClient(self.settings), self.topic_of(queue)
        partitions = admin.list_topics(topic, timeout=REQUEST_S).topics[topic].partitions
        places = [TopicPartition(topic, each) for each in partitions]
        first = admin.list_offsets({each: OffsetSpec.earliest() for each in places})
        last = admin.list_offsets({each: OffsetSpec.latest() for each in places})
        ends = {(each.topic, each.partition): done.result().offset for each, done in last.items()}
        begins = {(each.topic, each.partition): done.result().offset for each, done in first.items()}
        for done in admin.delete_records([TopicPartition(*each, end) for each, end in ends.items()]).values():
            done.result()
        return sum(end - begins[place] for place, end in ends.items())

    # -- messages

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        """Send a message and wait until it is replicated and synced. Raises NotConfirmed."""
        if self._producer is None:
            # a record is a batch of its own: a batch is acquired as a whole
            own = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
            self._producer = Producer({**self.settings, **own})
        errors: list[Any] = []
        self._producer.produce(
            self.topic_of(queue), dumps(message).encode(), on_delivery=lambda error, _: errors.append(error)
        )
        self._producer.flush(REQUEST_S)
        if errors != [None]:
            raise NotConfirmed(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message of a queue. Raises Empty."""
        lanes = self._lanes_of(queue)
        until = time.monotonic() + POLL_S
        while idle := [each for each in lanes if not each.is_busy]:
            for lane in idle:
                record = lane.take(SLICE_S)
                if record is not None:
                    return self._message(record, lane)
            if time.monotonic() >= until:
                break
        raise Empty()

    def _lanes_of(self, queue: str) -> list[Lane]:
        lanes, topic = self._lanes.setdefault(queue, []), self.topic_of(queue)
        while len(lanes) < min(self.qos.prefetch_count or LANES, MAX_LANES):
            lanes.append(Lane(self.settings, topic, topic))
        return lanes

    def _message(self, record: Any, lane: Lane) -> dict[str, Any]:
        message: dict[str, Any] = loads(record.value())
        message["headers"]["delivery_count"] = record.delivery_count()  # Celery has it in `self.request`
        info = message["properties"]["delivery_info"]
        info["redelivered"] = record.delivery_count() > 1
        message["properties"]["delivery_tag"] = tag = self._next_delivery_tag()
        self._held[tag] = lane, (record.topic(), record.partition(), record.offset())
        return message

    def answer(self, delivery_tag: str, kind: AcknowledgeType) -> None:
        """Acknowledge a record by the lane that delivered it, and log what came of it."""
        held = self._held.pop(delivery_tag, None)
        if held is None:
            return  # it has been answered
        lane, place = held
        name = f"{place[0]}-{place[1]}@{place[2]}"
        failure = lane.answer(place, kind)
        if failure is None:
            logger.info("%s: %s", name, kind.name.lower())
        else:
            logger.warning(
                "%s: %s was not confirmed, it may come again: %s", name, kind.name.lower(), failure
            )

    def _restore(self, message: Any) -> None:
        self.answer(message.delivery_tag, AcknowledgeType.RELEASE)

    def close(self) -> None:
        super().close()
        lanes = [lane for each in self._lanes.values() for lane in each]
        self._lanes, self._held = {}, {}
        for lane in lanes:
            lane.close()


class Transport(virtual.Transport):
    """See the module."""

    Channel = Channel
    default_port = DEFAULT_PORT
    polling_interval = IDLE_S
    driver_type = "kafka"
    driver_name = "confluent-kafka"
    connection_errors = (*virtual.Transport.connection_errors, KafkaException)
    recoverable_connection_errors = (KafkaException,)

    def driver_version(self) -> str:
        import confluent_kafka

        return str(confluent_kafka.__version__)
