"""A producer and a consumer on librdkafka's own C interface, for load that Python's per-record cost would hide.

confluent-kafka's wheel carries librdkafka; its `rd_kafka_produce_batch` takes thousands of records in one call. Errors
come back through one callback (`delivery.report.only.error`), success is an empty queue.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

PRODUCER = 0
CONSUMER = 1
OFFSET_BEGINNING = -2
OFFSET_END = -1
PARTITION_UNASSIGNED = -1
MSG_F_COPY = 0x2
PURGE_F_QUEUE = 0x1
PURGE_F_INFLIGHT = 0x2
ERROR_TEXT_BYTES = 512


class Message(ctypes.Structure):
    """rd_kafka_message_t (librdkafka, rdkafka.h)."""

    _fields_ = [
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


DELIVERY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)


def load_library() -> Any:
    """Return the librdkafka that confluent-kafka brought. ImportError when it is not installed."""
    import confluent_kafka

    package = os.path.dirname(confluent_kafka.__file__)
    found = glob.glob(os.path.join(package, "..", "confluent_kafka.libs", "librdkafka*"))
    if not found:
        raise ImportError("confluent-kafka's wheel carries no librdkafka here")
    library = ctypes.CDLL(found[0])
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new", "rd_kafka_queue_new"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def _configured(library: Any, config: Mapping[str, str]) -> ctypes.c_void_p:
    """Return a configuration. Raises ValueError for a setting that librdkafka refuses."""
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    error = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
    for key, value in config.items():
        if library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, ERROR_TEXT_BYTES):
            raise ValueError(f"{key}={value}: {error.value.decode()}")
    return conf


def _opened(library: Any, kind: int, conf: ctypes.c_void_p) -> ctypes.c_void_p:
    error = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
    handle = library.rd_kafka_new(kind, conf, error, ERROR_TEXT_BYTES)
    if not handle:
        raise ValueError(error.value.decode())
    return ctypes.c_void_p(handle)


class BatchProducer:
    """Produces lists of records to one topic; `failed` counts records that were given up on."""

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
        self._library = load_library()
        self.failed = 0
        self._on_delivery = DELIVERY(self._count_failure)
        conf = _configured(self._library, {"delivery.report.only.error": "true", **config})
        self._library.rd_kafka_conf_set_dr_msg_cb(conf, self._on_delivery)
        self._handle = _opened(self._library, PRODUCER, conf)
        self._topic = ctypes.c_void_p(self._library.rd_kafka_topic_new(self._handle, topic.encode(), None))

    def _count_failure(self, _handle: object, message: Any, _opaque: object) -> None:
        if message.contents.err:
            self.failed += 1

    def prepare(self, payloads: Sequence[bytes]) -> ctypes.Array[Message]:
        """Return the payloads as an array that `produce` takes any number of times."""
        messages = (Message * len(payloads))()
        for message, payload in zip(messages, payloads, strict=True):
            message.payload, message.len = payload, len(payload)
        return messages

    def produce(self, messages: ctypes.Array[Message], start: int = 0) -> int:
        """Enqueue messages[start:], spread over the partitions; returns how many the queue took before it was full."""
        count = len(messages) - start
        first = ctypes.byref(messages, start * ctypes.sizeof(Message))
        taken: int = self._library.rd_kafka_produce_batch(
            self._topic, ctypes.c_int32(PARTITION_UNASSIGNED), MSG_F_COPY, first, count
        )
        return taken

    def poll(self, timeout_ms: int) -> None:
        self._library.rd_kafka_poll(self._handle, timeout_ms)

    def outstanding(self) -> int:
        """Return how many records wait for an acknowledgement."""
        length: int = self._library.rd_kafka_outq_len(self._handle)
        return length

    def flush(self, timeout_s: float) -> int:
        """Wait for all records; returns how many are still outstanding when time runs out."""
        self._library.rd_kafka_flush(self._handle, int(timeout_s * 1000))
        return self.outstanding()

    def purge(self) -> None:
        """Give up on all records that are not acknowledged yet; they count as failed."""
        self._library.rd_kafka_purge(self._handle, PURGE_F_QUEUE | PURGE_F_INFLIGHT)

    def close(self) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)


class CountingConsumer:
    """Reads all partitions of a topic and only counts the records: no Python runs per record.

    librdkafka calls a function for each record; here that is the C library's `abs`, which has no effect on it.
    """

    def __init__(self, config: Mapping[str, str], topic: str, partitions: int, offset: int) -> None:
        self._library = load_library()
        self._nothing = ctypes.CDLL(None).abs
        self._partitions = partitions
        self._handle = _opened(self._library, CONSUMER, _configured(self._library, config))
        self._topic = ctypes.c_void_p(self._library.rd_kafka_topic_new(self._handle, topic.encode(), None))
        self._queue = ctypes.c_void_p(self._library.rd_kafka_queue_new(self._handle))
        for partition in range(partitions):
            self._library.rd_kafka_consume_start_queue(
                self._topic, ctypes.c_int32(partition), ctypes.c_int64(offset), self._queue
            )

    def count(self, timeout_ms: int) -> int:
        """Return how many records came, once there are some or time runs out."""
        came: int = self._library.rd_kafka_consume_callback_queue(
            self._queue, timeout_ms, self._nothing, None
        )
        return max(came, 0)

    def close(self) -> None:
        for partition in range(self._partitions):
            self._library.rd_kafka_consume_stop(self._topic, ctypes.c_int32(partition))
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)
