"""Exactly once to a topic: each batch of a query is one transaction, which also commits the number of the next batch.

The number is committed as the offset of a consumer group. The group's name is also the transactional id: a prefix and
the query's id, which Spark keeps in the checkpoint. A name follows if the query writes to a topic in several places. A
batch is written in this order: initialize the transactional id, read the number, begin, produce, add the next number,
commit. Initializing fences every earlier attempt and ends its transaction, so the number says for certain whether the
batch is in the topic. A replayed batch that is there already is skipped.

One task writes the whole batch. So a replay may spread the rows over other tasks, and readers see a batch as a whole.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition

from raftlog.pipeline import clients
from raftlog.pipeline.batch_id import query_of, write_once
from raftlog.pipeline.login import redacted
from raftlog.pipeline.options import OptionFaults, WriteOptions, write_options
from raftlog.pipeline.sink import NotWritten, Writing, checked_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX: Final = "raftlog-spark-"
"""The beginning of transactional ids and groups, for ACLs."""
NAME: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")
TIMEOUT_MS: Final = 120_000
"""The time that a transaction may take, unless an option says otherwise. Rows are computed before it begins."""
PATIENCE_S: Final = 60.0
ABORT_S: Final = 5.0
ABSENT: Final = -1001
"""librdkafka's number for no offset."""
WRITTEN_DDL: Final = "rows long, skipped boolean"
WRITTEN: Final = pa.schema([("rows", pa.int64()), ("skipped", pa.bool_())])


class UnknownBatch(NotWritten):
    """The cluster's note of the query does not fit the batch, so whether it is in the topic is unknown."""


class ExactlyOnce:
    """A function for `foreachBatch` that writes each batch of a query to a topic, whatever is killed and replayed.

    `options` and columns are the same as of `format("raftlog")` for writing, with `topic`. Use one instance for each
    query. `first_batch` is the batch with which a query began to write exactly once. A query may write good and bad
    rows of a batch to one topic, by two instances with a `name` each.
    """

    def __init__(self, options: Mapping[str, str], first_batch: int = 0, *, name: str = "") -> None:
        self._options = write_options(options)
        if self._options.topic is None:
            raise OptionFaults(["topic: must be given, since a transaction notes its batch for one topic"])
        if not NAME.fullmatch(name):
            raise OptionFaults([f"name: is {name!r}, must have letters, digits, '.', '_' and '-' only"])
        self._first_batch, self._name = first_batch, name

    def __call__(self, frame: DataFrame, batch: int) -> int:
        """Write a batch and return its number of rows, 0 if it was there.

        Raise OptionFaults, WrittenTwice and Spark's errors.
        """
        columns = checked_columns(frame.schema, self._options)
        query = "-".join(filter(None, (query_of(frame), self._name)))
        servers = self._options.client["bootstrap.servers"]
        place = f"topic {self._options.topic} at {servers} as {PREFIX}{query}"
        return write_once(frame, batch, place, lambda: self._write(frame, columns, query, batch))

    def _write(self, frame: DataFrame, columns: frozenset[str], query: str, batch: int) -> int:
        write = partial(write_batch, self._options, columns, query, batch, self._first_batch)
        written = [row.rows for row in frame.repartition(1).mapInArrow(write, WRITTEN_DDL).collect()]
        if not written:  # Spark may call no function for a frame without rows
            written = [row["rows"] for found in write(()) for row in found.to_pylist()]
        return sum(written)


def write_batch(  # noqa: PLR0917 - the last one is Spark's, and partial gives the others
    options: WriteOptions,
    columns: frozenset[str],
    query: str,
    batch: int,
    first_batch: int,
    rows: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write a batch's rows and note it, unless it is noted. Yield a row of WRITTEN. Raise NotWritten, UnknownBatch.

    `query` is the query's id, with the name of the place in the query if it has one.
    """
    transaction = _Transaction(options, PREFIX + query)
    try:
        with closing(transaction):
            noted = transaction.begin()
            skipped = _is_noted(noted, batch, first_batch, f"{options.topic}, group {PREFIX}{query}")
            count = 0 if skipped else transaction.write(columns, batch, rows)
            deque(rows, maxlen=0)  # Spark would end a worker that leaves rows
    except (KafkaException, SystemError) as error:
        # a fatal error within a callback comes as the cause of a SystemError, and is lost if a delivery report follows
        cause = error if isinstance(error, KafkaException) else error.__cause__
        said = (
            redacted(cause.args[0].str(), options.client) if isinstance(cause, KafkaException) else str(error)
        )
        raise NotWritten(f"batch {batch} of transactional id {PREFIX}{query}: {said}") from None
    yield pa.RecordBatch.from_pylist([{"rows": count, "skipped": skipped}], schema=WRITTEN)


def _is_noted(noted: int | None, batch: int, first_batch: int, where: str) -> bool:
    """Return whether the batch is in the topic, by the next batch that is noted there. Raise UnknownBatch."""
    if noted == batch + 1:
        return True
    if noted == batch or (noted is None and batch == first_batch):
        return False
    found = "no batch is noted" if noted is None else f"the next batch is noted to be {noted}"
    raise UnknownBatch(
        f"{where}: {found}, and this is batch {batch}. The note expired (offsets.retention.minutes), the topic was "
        "made again, another copy of this checkpoint went on, or the query began without exactly once. Begin with a "
        "new checkpoint"
    )


class _Transaction:
    """The producer of a query's transactions, for one batch. Methods raise KafkaException, NotWritten, Refused."""

    def __init__(self, options: WriteOptions, identity: str) -> None:
        assert options.topic is not None
        self._options = options
        settings = {"transaction.timeout.ms": str(TIMEOUT_MS), **options.client, "transactional.id": identity}
        self._outbox = clients.Outbox(settings)
        group = {"group.id": identity, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        self._group = Consumer({**clients.QUIET, **options.client, **group})
        self._note: Callable[..., Any] = partial(TopicPartition, options.topic, 0)
        self._is_open = False

    def begin(self) -> int | None:
        """Fence earlier attempts, and return the next batch that is noted, if any."""
        producer, door = self._outbox.producer, self._outbox.door
        _insist(lambda: producer.init_transactions(ABORT_S), door.check)
        (found,) = _insist(lambda: self._group.committed([self._note()], ABORT_S), door.check)
        if found.error is not None:
            raise NotWritten(f"{self._options.topic}: {found.error.str()}")
        return None if found.offset == ABSENT else int(found.offset)

    def write(self, columns: frozenset[str], batch: int, rows: Iterable[pa.RecordBatch]) -> int:
        """Commit the rows with the note of their batch, and return how many there were."""
        producer, door = self._outbox.producer, self._outbox.door
        waiting = iter(rows)
        first = next(
            waiting, None
        )  # computes all rows that Spark shuffles, before the transaction's time runs
        producer.begin_transaction()
        self._is_open = True
        writing = Writing(self._options, columns, self._outbox)
        for each in () if first is None else chain([first], waiting):
            writing.send(each)
        writing.finish()
        note = [self._note(batch + 1)]
        group = self._group.consumer_group_metadata()
        _insist(lambda: producer.send_offsets_to_transaction(note, group, ABORT_S), door.check)
        _insist(lambda: producer.commit_transaction(ABORT_S), door.check)
        self._is_open = False
        return writing.sent

    def close(self) -> None:
        """Abort what is open, so that readers need not wait for the timeout. The next attempt would abort it too."""
        if self._is_open:
            with suppress(KafkaException, SystemError):
                self._outbox.producer.purge()
                self._outbox.producer.abort_transaction(ABORT_S)
        self._group.close()


def _insist(call: Callable[[], Any], check: Callable[[], None]) -> Any:
    """Return a call's result, and repeat it for a minute where librdkafka says that it may be. Raise Refused."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except KafkaException as error:
            check()
            if not error.args[0].retriable() and error.args[0].name() not in clients.HEALING:
                raise
            if time.monotonic() > deadline:
                raise
