"""The transactional calls of confluent-kafka, each with a limit, and with the certainty of its failures.

Everything here blocks: it runs in the thread of its client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog.testing.progress import patient
from raftlog_chaos.workloads.port import (
    REQUEST_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Definite,
    Ends,
    Indefinite,
    split_key,
)

_SILENT: Final = logging.getLogger("raftlog_chaos.workloads.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
"""librdkafka says FATAL on standard error whatever its log level is."""

IDLE_S: Final = 5.0
"""An idle connection is closed after so long, so that some event happens at all. A failed request for a group's
coordinator waits in librdkafka (2.16) for any broker's state to change. It checks no clock (`creq_ts_timeout` is set
and never read). So in a healthy cluster `send_offsets_to_transaction` then never returns.
"""

ATTEMPT_S: Final = 5.0
"""librdkafka reports a retriable error after that."""
PATIENCE_S: Final = 25.0
"""How long calls are retried."""


def settings_of(transactional_id: str) -> dict[str, Any]:
    """Return what makes a producer transactional."""
    return {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
        "connections.max.idle.ms": int(IDLE_S * 1000),
        "logger": _SILENT,
    }


def take_id(producer: Any) -> None:
    """Take the transactional id. Raises Definite: no transaction was begun."""
    _insist(lambda: producer.init_transactions(ATTEMPT_S), Definite)


def begin(producer: Any) -> None:
    """Begin a transaction. Raises Definite."""
    _insist(producer.begin_transaction, Definite)


def add_offsets(producer: Any, offsets: Mapping[str, int], membership: Any) -> None:
    """Add a group's offsets to the transaction. Raises Definite: no commit was requested."""
    from confluent_kafka import TopicPartition

    topic_partitions = [TopicPartition(*split_key(key), offset) for key, offset in offsets.items()]
    _insist(lambda: producer.send_offsets_to_transaction(topic_partitions, membership, ATTEMPT_S), Definite)


def commit(producer: Any) -> None:
    """Commit the transaction: all records are acknowledged. Raises Indefinite: the coordinator may have got the
    request.
    """
    _insist(lambda: producer.commit_transaction(ATTEMPT_S), Indefinite)


def abort(producer: Any) -> None:
    """Abort the transaction. Raises Indefinite, but it is never committed."""
    _insist(lambda: producer.abort_transaction(ATTEMPT_S), Indefinite)


def _insist(call: Callable[[], object], failure: type[Definite | Indefinite]) -> None:
    """Retry as long as librdkafka reports a retriable error."""
    from confluent_kafka import KafkaException

    end_at = time.monotonic() + patient(PATIENCE_S)
    while True:
        try:
            call()
            return
        except KafkaException as raised:
            error = raised.args[0]
            if not error.retriable() or time.monotonic() >= end_at:
                raise failure(f"{error.name()} {error.str()}") from None


def ends_of(settings: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Ends]:
    """Ask the leaders where partitions end. Raises Indefinite."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

    admin = AdminClient(dict(settings))
    found = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(*split_key(key)): latest for key in keys}
        try:
            answers = admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
            found.append(
                {f"{each.topic}-{each.partition}": answer.result().offset for each, answer in answers.items()}
            )
        except KafkaException as error:
            raise Indefinite(f"ends: {error.args[0].str()}") from None
    return {key: Ends(found[0][key], found[1][key]) for key in keys}


def committed_of(consumer: Any, keys: Sequence[str]) -> dict[str, int]:
    """Ask the coordinator for the offsets of the consumer's group. Raises Indefinite."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        answers = consumer.committed([TopicPartition(*split_key(key)) for key in keys], REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise Indefinite(f"committed: {error.args[0].str()}") from None
    if any(each.error is not None for each in answers):
        raise Indefinite(f"committed: {next(each.error for each in answers if each.error is not None)}")
    return {f"{each.topic}-{each.partition}": max(each.offset, 0) for each in answers}


def seek_to_committed(consumer: Any) -> None:
    """Let a member poll again what its group has not committed. Raises Indefinite."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        mine = [f"{each.topic}-{each.partition}" for each in consumer.assignment()]
        for key, offset in committed_of(consumer, mine).items() if mine else ():
            consumer.seek(TopicPartition(*split_key(key), offset))
    except KafkaException as error:
        raise Indefinite(f"seek: {error.args[0].str()}") from None
