"""The port of a stock client: confluent-kafka (librdkafka) against a real cluster, or any that speaks Kafka's protocol.

librdkafka's calls block, so they run in threads: one thread for the producer and another for the consumer of each port.
That also keeps a client from being closed during another call. Now and then a call never returns. librdkafka (2.16.1)
starts over from its bootstrap servers when it knows no live broker. At times its main thread then hangs for ever while
it drops the old brokers. Such a client is abandoned, and that is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from raftlog.base.errors import TopicAlreadyExists
from raftlog.testing.progress import patient
from raftlog_chaos.workloads import stock_transactions as transactions
from raftlog_chaos.workloads.port import (
    DELIVERY_TIMEOUT_S,
    HEARTBEAT_S,
    POLL_S,
    REQUEST_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    Damaged,
    Definite,
    Ends,
    Fate,
    Indefinite,
    Kind,
    decode_value,
    encode_value,
    fate_of,
    split_key,
)

T = TypeVar("T")

COMMON: Final = {
    "log_level": 0,
    "socket.connection.setup.timeout.ms": 1_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
SAFE: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "retries": 1_000,
    "linger.ms": 0,
    "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
    "request.timeout.ms": int(REQUEST_TIMEOUT_S * 1000) - 500,
    "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
}
"""Producers that promise everything; `socket.timeout.ms` is how long they wait, `request.timeout.ms` the broker."""
CARELESS: Final = {**SAFE, "acks": "1", "enable.idempotence": False, "retries": 0}
READING: Final = {
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
    "isolation.level": "read_committed",
    "session.timeout.ms": int(SESSION_TIMEOUT_S * 1000),
    "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    "fetch.wait.max.ms": int(POLL_S * 1000),
    "socket.timeout.ms": 10_000,
}

RESET_ALONE: Final = "error"
"""For a consumer with assigned keys: it always has a position, and a lost position is a finding."""
RESET_IN_GROUP: Final = "earliest"
"""For a member: it may get keys without a committed offset."""
BEGINNING: Final = 0
"""The offset at which the workload's logs begin; none of their records is ever deleted.

The client never looks it up. librdkafka (2.16.0) asks a partition's leader for its beginning, and the next leader if
the leader moves meanwhile. It takes a late answer of the old leader for a failure of its request. Then it asks again,
and goes back to the beginning wherever it has read to since. A paused leader that wakes up is enough for that, whatever
it answers. tests/chaos/workloads/test_late_answers.py shows it with librdkafka's own broker.
"""

MAX_RECORDS: Final = 500
"""The duration of one poll."""
PUMP_S: Final = 0.05
CALL_S: Final = 40.0
"""A client that stays in a call for longer is abandoned; all calls have limits of their own, far below it."""
FLUSH_S: Final = 1.0
TOPIC_ALREADY_EXISTS: Final = TopicAlreadyExists.code
PARTITION_END: Final = -191
"""librdkafka's own _PARTITION_EOF: what else there is is no record, or in no committed transaction."""
POSITION_LOST: Final = -140
"""librdkafka's own _AUTO_OFFSET_RESET, where the policy is "error"."""


class StockPorts:
    """Opens ports to a cluster, as `LogWorkload.open_port`. `settings` are librdkafka's, for all clients.

    `racks`: client.rack of the processes, in turn.
    """

    def __init__(
        self, bootstrap: str, settings: Mapping[str, Any] | None = None, racks: Sequence[str] = ()
    ) -> None:
        self.settings = {"bootstrap.servers": bootstrap, **COMMON, **(settings or {})}
        self._racks = racks
        self.left_behind: list[str] = []
        """Clients that did not return from a call, and the call."""

    def __call__(self, process: int, kind: Kind) -> StockPort:
        rack = {"client.rack": self._racks[process % len(self._racks)]} if self._racks else {}
        return StockPort({**self.settings, **rack}, process, kind, self.left_behind)


class StockPort:
    """See ClientPort."""

    transactional = True

    def __init__(self, settings: Mapping[str, Any], process: int, kind: Kind, left_behind: list[str]) -> None:
        self._settings = {**settings, "client.id": f"client-{process}"}
        self._retries = kind != "careless"
        self._transforms = kind == "transformer"
        self._process = process
        self._left_behind = left_behind
        self._sender = _Thread(f"sender-{process}")
        self._reader = _Thread(f"reader-{process}")
        self._producer: Any = None
        self._identity = ""
        self._in_transaction = False
        self._membership: Any = None
        """The consumer's, as of its last poll."""
        self.reached: dict[str, int] = {}
        self._consumer: Any = None
        self._waiting: set[asyncio.Future[int]] = set()
        self._pump: asyncio.Task[None] | None = None
        self._positions: dict[str, int] = {}
        self._subscribed = False
        self._uncommitted: dict[str, int] = {}
        self._rebalanced: list[str] = []
        self.spent = False
        self._closed = False

    # -- writing ------------------------------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, *, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(configs))
        await self._call(self._sender, partial(create_topic, self._settings, wanted), "create topic")

    def send(self, key: str, value: int) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        topic, partition = split_key(key)

        def report(error: Any, message: Any) -> None:
            """Runs in the sender's thread."""
            offset = None if error is not None else message.offset()
            loop.call_soon_threadsafe(self._settle, done, error, offset)

        from confluent_kafka import KafkaException

        try:
            producer = self._open_producer()
            producer.produce(topic, encode_value(key, value), partition=partition, on_delivery=report)
        except (BufferError, KafkaException) as error:
            # it was never queued; a full queue passes, and anything else will not
            self.spent = self.spent or not isinstance(error, BufferError)
            done.set_exception(Definite(f"produce: {error}"))
            return done
        self._waiting.add(done)
        if self._pump is None:
            self._pump = loop.create_task(self._serve())
        return done

    def _open_producer(self) -> Any:
        if self._producer is None:
            from confluent_kafka import Producer

            own: dict[str, Any] = dict(SAFE if self._retries else CARELESS)
            if self._identity:
                own |= transactions.settings_of(self._identity)
            self._producer = Producer({**self._settings, **own})
        return self._producer

    async def _serve(self) -> None:
        """Let the producer report while callers wait. Records in a stuck producer have an unknown outcome."""
        try:
            while self._waiting:
                await self._call(self._sender, partial(_report, self._producer), "sending")
                await asyncio.sleep(0)
        except Indefinite as error:
            waiting, self._waiting = self._waiting, set()
            for each in waiting:
                _set_exception(each, error)
        finally:
            self._pump = None

    def _settle(self, done: asyncio.Future[int], error: Any, offset: int | None) -> None:
        self._waiting.discard(done)
        if done.done():
            return
        if error is None:
            done.set_result(-1 if offset is None else offset)
            return
        self.spent = self.spent or error.fatal()
        done.set_exception(_failure(error, "produce", retried=self._retries))

    # -- transactions ---------------------------------------------------------------------------------------------

    async def take_id(self, transactional_id: str) -> None:
        if self._identity:
            return
        self._identity = transactional_id
        await self._certainly(transactions.take_id, "taking an id")

    async def begin(self) -> None:
        await self._certainly(transactions.begin, "beginning")
        self._in_transaction = True

    async def _certainly(self, call: Callable[[Any], None], what: str) -> None:
        """Raises Definite: no coordinator has got a commit request."""
        try:
            producer = self._open_producer()
            await self._call(self._sender, partial(call, producer), what)
        except (Definite, Indefinite) as error:
            self.spent = True
            raise Definite(f"{what}: {error}") from None

    async def commit_transaction(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        if offsets:
            call = partial(transactions.add_offsets, offsets=offsets, membership=self._membership)
            try:
                await self._call(self._sender, partial(call, self._producer), "adding offsets")
            except Indefinite as error:
                raise Definite(str(error)) from None
        self._in_transaction = False
        try:
            await self._call(self._sender, partial(transactions.commit, self._producer), "committing")
        except Indefinite:
            self.spent = True
            raise

    async def abort_transaction(self) -> None:
        self._uncommitted = {}
        if not self._in_transaction or self.spent:
            return
        self._in_transaction = False
        try:
            await self._call(self._sender, partial(transactions.abort, self._producer), "aborting")
        except Indefinite:
            self.spent = True

    async def poll_again(self) -> None:
        self._uncommitted = {}
        try:
            await self._read(partial(transactions.seek_to_committed, self._consumer))
        except Indefinite:
            self.spent = True

    async def ends(self, keys: Sequence[str]) -> dict[str, Ends]:
        return await self._call(self._reader, partial(transactions.ends_of, self._settings, keys), "ends")

    async def committed(self, keys: Sequence[str], group: str) -> dict[str, int]:
        def ask() -> dict[str, int]:
            return transactions.committed_of(self._open_consumer(group, RESET_IN_GROUP), keys)

        return await self._read(ask)

    # -- reading ------------------------------------------------------------------------------------------------

    async def assign(self, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        known = {} if seek_to_beginning else self._positions
        self.reached = {}
        self._positions = {key: known[key] for key in keys if key in known}
        await self._read(partial(self._assign, tuple(keys), dict(self._positions)))

    def _assign(self, keys: Sequence[str], positions: Mapping[str, int]) -> None:
        # librdkafka forgets all positions at an assignment
        consumer = self._open_consumer(f"alone-{self._process}", RESET_ALONE)
        consumer.assign([_topic_partition(key, positions.get(key, BEGINNING)) for key in keys])

    async def subscribe(self, topics: Sequence[str], group: str) -> None:
        self._subscribed = True
        await self._read(partial(self._subscribe, tuple(topics), group))

    def _subscribe(self, topics: Sequence[str], group: str) -> None:
        consumer = self._open_consumer(group, RESET_IN_GROUP)
        consumer.subscribe(list(topics), on_assign=self._note_rebalance, on_revoke=self._note_rebalance)

    def _note_rebalance(self, _consumer: object, topic_partitions: Sequence[Any]) -> None:
        """Runs in the reader's thread, inside a poll."""
        self._rebalanced += [f"{each.topic}-{each.partition}" for each in topic_partitions]

    def _open_consumer(self, group: str, reset: str) -> Any:
        if self._consumer is None:
            from confluent_kafka import Consumer

            own = {
                "group.id": group,
                "auto.offset.reset": reset,
                "enable.partition.eof": reset == RESET_ALONE,
            }
            self._consumer = Consumer({**self._settings, **READING, **own})
        return self._consumer

    async def poll(self) -> dict[str, list[tuple[int, int]]]:
        if self._consumer is None:
            raise Definite("nothing is assigned")
        reads: dict[str, list[tuple[int, int]]] = {}
        for message in await self._read(partial(self._consume, self._consumer)):
            error = message.error()
            if error is not None:
                self._take_error(message, error)
                continue
            key = f"{message.topic()}-{message.partition()}"
            reads.setdefault(key, []).append((message.offset(), decode_value(key, message.value())))
        for key, records in reads.items():
            self._positions[key] = records[-1][0] + 1
        if self._subscribed:
            self._uncommitted |= {key: self._positions[key] for key in reads}
        return reads

    def _take_error(self, message: Any, error: Any) -> None:
        """Raises Damaged if a broker invalidated the position: out of range, or deleted records."""
        if error.code() == PARTITION_END:
            self.reached[f"{message.topic()}-{message.partition()}"] = message.offset()
            return
        if error.code() == POSITION_LOST:
            self.spent = True
            raise Damaged(f"{message.topic()}-{message.partition()}: {error.str()}")
        self.spent = self.spent or error.fatal()  # any other passes, or shows in what is missing

    async def _read(self, call: Callable[[], T]) -> T:
        """Call the consumer; what it raises is fatal to it. Raises Indefinite."""
        from confluent_kafka import KafkaException

        try:
            return await self._call(self._reader, call, "reading")
        except KafkaException as error:
            self.spent = True
            raise Indefinite(str(error)) from None

    def _consume(self, consumer: Any) -> Sequence[Any]:
        """Wait for a first record, and take what is there with it: `consume` alone waits to the end for more."""
        first = consumer.poll(POLL_S)
        found = [] if first is None else [first, *consumer.consume(MAX_RECORDS, 0)]
        if self._transforms:
            self._membership = consumer.consumer_group_metadata()
        return found

    async def commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        if not offsets:
            return
        from confluent_kafka import KafkaException

        topic_partitions = [_topic_partition(key, offset) for key, offset in offsets.items()]
        try:
            committed = await self._call(
                self._reader,
                partial(self._consumer.commit, offsets=topic_partitions, asynchronous=False),
                "commit",
            )
        except KafkaException as error:
            raise _failure(error.args[0], "commit", retried=False) from None
        for each in committed:
            if each.error is not None:
                raise _failure(each.error, "commit", retried=False)

    async def rewind(self, offsets: Mapping[str, int]) -> None:
        from confluent_kafka import KafkaException

        for key, offset in offsets.items():
            self._positions[key] = offset
            try:
                await self._call(
                    self._reader, partial(self._consumer.seek, _topic_partition(key, offset)), "seek"
                )
            except KafkaException:
                pass  # it is no longer ours: its next owner begins at the committed offset

    def take_rebalanced(self) -> list[str]:
        changed, self._rebalanced = self._rebalanced, []
        return list(dict.fromkeys(changed))

    # -- the end ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if self._pump is not None:
            self._pump.cancel()
        sender, reader = partial(_end_producer, [producer]), partial(_end_consumer, [consumer])
        del producer, consumer  # the last reference goes in the thread: destroying a client blocks
        await asyncio.gather(self._end(self._sender, sender), self._end(self._reader, reader))

    async def _end(self, thread: _Thread, last: Callable[[], None]) -> None:
        if thread.stuck:
            thread.end(last)  # should it come back after all
            return
        with contextlib.suppress(Indefinite):
            await self._call(thread, last, "close")
        thread.end()

    async def _call(self, thread: _Thread, call: Callable[[], T], what: str) -> T:
        """Raises what the call raises, and Indefinite if it does not return: it cannot be ended, nor the client be
        used.
        """
        try:
            async with asyncio.timeout(patient(CALL_S)):
                return await thread.run(call)
        except TimeoutError:
            thread.stuck = self.spent = True
            said = f"client {self._process}: {what} did not return within {patient(CALL_S):g} s"
            self._left_behind.append(said)
            raise Indefinite(said) from None

    async def abandon(self) -> None:
        """Close the client, since a stock client cannot be killed without its process: queued records are dropped."""
        await self.close()


class _Thread:
    """One thread, started on demand. It keeps no process from ending: it may never return from a call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False
        self.stuck = False
        """Whether a caller has given up waiting for a call."""

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of the call, which runs after all earlier calls. Raises what it raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._calls.put(partial(_answer, loop, done, call))
        return await done

    def end(self, last: Callable[[], None] | None = None) -> None:
        """Let the thread end behind all its pending calls, and behind a last call without a waiter."""
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it holds the client


def _answer(loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], call: Callable[[], T]) -> None:
    """Run the call in the thread, and pass its outcome to the loop."""
    try:
        settle = partial(_set_result, done, call())
    except BaseException as error:
        settle = partial(_set_exception, done, error)
    del call
    with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
        loop.call_soon_threadsafe(settle)


def _set_result(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[T], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _report(producer: Any) -> None:
    """Let reports come. The client raises as well that the producer is fenced; its records' reports say the same."""
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        producer.poll(PUMP_S)


def _topic_partition(key: str, offset: int) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(*split_key(key), offset)


def _failure(error: Any, what: str, *, retried: bool) -> Definite | Indefinite:
    """Say how certain an error is. librdkafka reports only the last attempt's: little is certain of a retried
    record.
    """
    fate = fate_of(error.code())
    certain = fate is Fate.NEVER or (fate is Fate.NOT_THIS_TIME and not retried)
    return (Definite if certain else Indefinite)(f"{what}: {error.name()} {error.str()}")


def create_topic(settings: Mapping[str, Any], wanted: Any) -> None:
    """Create a topic with a client of its own: an old one waits for the controller it once knew, dead or alive."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    end_at = time.monotonic() + DELIVERY_TIMEOUT_S
    while True:
        try:
            admin = AdminClient(dict(settings))
            admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[wanted.topic].result()
            return
        except KafkaException as error:
            code = error.args[0].code()
            if code == TOPIC_ALREADY_EXISTS:
                return
            if fate_of(code) is Fate.NEVER or time.monotonic() >= end_at:
                # it may be created yet; for the caller it does not exist
                raise Definite(f"create topic: {error.args[0].str()}") from None


def _end_producer(held: list[Any]) -> None:
    from confluent_kafka import KafkaException

    producer = held.pop()
    if producer is not None:
        with contextlib.suppress(KafkaException):  # it was fenced, which is reported once
            producer.purge()
            producer.flush(FLUSH_S)


def _end_consumer(held: list[Any]) -> None:
    consumer = held.pop()
    if consumer is not None:
        consumer.close()
