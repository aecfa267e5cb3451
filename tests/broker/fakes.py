"""Stand-ins for what a broker server stands on: partitions in memory, a transport, clients on raw frames."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any
from uuid import UUID

from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.topic import TopicConfig
from raftlog.base.env import Env
from raftlog.base.errors import (
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from raftlog.base.types import EpochEnd
from raftlog.broker.context import BrokerContext
from raftlog.broker.dispatch import dispatch
from raftlog.broker.links.peer_auth import API_KEY as HANDSHAKE_KEY
from raftlog.broker.long_work.arrivals import Arrivals
from raftlog.broker.long_work.long_turns import LongTurns
from raftlog.broker.network.connection import Connection
from raftlog.broker.network.server import BrokerServer
from raftlog.broker.replicas.early_batches import EarlyBatches
from raftlog.broker.replicas.replication_quota import ReplicationQuota
from raftlog.metadata.broker_requests import ProducerIdBlock
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.replication.replica_host import PartitionRead
from raftlog.replication.traffic import Traffic
from tests.kit.waits import PATIENCE_S

TOPIC = "words"
TOPIC_ID = UUID(int=7)
LISTENER = "PLAINTEXT"
HEADER_BYTES = 61
EVERY_VERSION = {
    (api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
}
_COUNT = Struct(">i")
_i32 = Struct(">i")


def batch(records: int = 1, size: int = 0, fill: int = 0x61) -> bytes:
    """Bytes that fakes take for a batch: a header with a record count, and a payload."""
    return bytes(HEADER_BYTES - 4) + _COUNT.pack(records) + bytes([fill]) * size


class FakeAppendInfo:
    def __init__(self, base_offset: int, end_offset: int) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.log_append_time_ms = -1
        self.log_start_offset = 0


class FakeLog:
    def __init__(self, partition: FakePartition) -> None:
        self.partition = partition
        self.size_bytes = 0
        self.truncation_count = 0

    @property
    def log_end_offset(self) -> int:
        return self.partition.log_end_offset

    def read_with_end(
        self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True, cached: bool = True
    ) -> tuple[bytes | None, int]:
        if cached and self.partition.cold:
            return None, offset
        if self.partition.disk_error is not None:
            raise self.partition.disk_error
        found: list[bytes] = []
        size, read_end = 0, offset
        for _base, end, data in self.partition.batches:
            if end <= offset or end > end_offset:
                continue
            if size + len(data) > max_bytes and not (min_one and not found):
                break
            found.append(data)
            size, read_end = size + len(data), end
        return b"".join(found), read_end

    def read_on(
        self, read: tuple[bytes | None, int], max_bytes: int, **limits: Any
    ) -> tuple[bytes | None, int]:
        return read

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        if self.partition.disk_error is not None:
            raise self.partition.disk_error
        return (timestamp_ms, timestamp_ms, 0) if timestamp_ms < self.partition.log_end_offset else None

    def max_timestamp(self) -> tuple[int, int, int] | None:
        return (1, 77, 0)


class FakePartition:
    """A leader; its high watermark moves by `commit`, or at once if `auto_commit`."""

    def __init__(self, topic: str = TOPIC, index: int = 0) -> None:
        self.topic, self.index = topic, index
        self.batches: list[tuple[int, int, bytes]] = []
        self.high_watermark = self.log_end_offset = self.log_start_offset = 0
        self.auto_commit = True
        self.cold = False
        self.disk_error: OSError | KafkaError | None = None
        self.reported: list[OSError] = []
        self.is_leader = True
        self.role: object = "leader in epoch 0"
        self.leader_epoch = 0
        self.error: KafkaError | None = None
        self.bug: Exception | None = None
        self.follower_starts = [2**62]
        self.low_watermark_waiters: tuple[Callable[[], None], ...] = ()
        self.noted_starts: list[int] = []
        self.diverging: EpochEnd | None = None
        self.log = FakeLog(self)
        self.config = TopicConfig()
        self.waiters: list[tuple[int, Any]] = []
        self.parked: dict[Any, None] = {}
        self.parked_replicas: dict[Any, None] = {}
        self.reads = 0
        self.noted: list[tuple[int, Any]] = []
        self.traffic = Traffic()
        self.refused: list[bytes] = []

    def read_error_for_client(self, error: KafkaError) -> KafkaError:
        return error

    def append_produced(self, records: memoryview, *, acks: int, now_ms: int) -> FakeAppendInfo:
        if self.error is not None:
            raise self.error
        data = bytes(records)
        base = self.log_end_offset
        self.log_end_offset += _COUNT.unpack_from(data, HEADER_BYTES - 4)[0]
        self.batches.append((base, self.log_end_offset, data))
        self.log.size_bytes += len(data)
        for session in tuple(self.parked_replicas):
            session.wake(self)
        if self.auto_commit:
            self.commit()
        return FakeAppendInfo(base, self.log_end_offset)

    def await_commit(self, end_offset: int, waiter: Any) -> None:
        if end_offset <= self.high_watermark:
            waiter.committed(self)
        else:
            self.waiters.append((end_offset, waiter))

    def commit(self, end_offset: int | None = None) -> None:
        self.high_watermark = self.log_end_offset if end_offset is None else end_offset
        ready = [waiter for end, waiter in self.waiters if end <= self.high_watermark]
        self.waiters = [(end, waiter) for end, waiter in self.waiters if end > self.high_watermark]
        for waiter in ready:
            waiter.committed(self)
        for waiter in tuple(self.parked):
            waiter.wake(self)

    def fail_waiters(self, error: KafkaError) -> None:
        waiters, self.waiters = self.waiters, []
        for _, waiter in waiters:
            waiter.failed(self, error)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool = False,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        read_committed: bool = False,
        replica: Any = None,
        is_new: bool = True,
        leader_only: bool = True,
    ) -> PartitionRead:
        self.reads += 1
        if self.bug is not None:
            raise self.bug
        if self.error is not None:
            return PartitionRead(self.error.code, -1, -1, -1, b"")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return PartitionRead(
                OffsetOutOfRange.code, self.high_watermark, self.high_watermark, self.log_start_offset, b""
            )
        if replica is not None and is_new:
            self.noted.append((offset, replica))
        end = self.high_watermark if replica is None else self.log_end_offset
        records: bytes | None = b""
        read_end = offset
        if offset < end and self.diverging is None:
            records, read_end = self.log.read_with_end(offset, max_bytes, end_offset=end, min_one=min_one)
        told = (0, self.high_watermark, self.high_watermark, self.log_start_offset, records, self.diverging)
        return PartitionRead(*told, end_offset=read_end)

    def storage_failed(self, error: OSError) -> None:
        self.reported.append(error)

    def note_refused_batch(self, records: memoryview, error: KafkaError) -> None:
        self.refused.append(bytes(records))

    def park(self, waiter: Any) -> None:
        self.parked[waiter] = None

    def park_replica(self, waiter: Any) -> None:
        self.parked_replicas[waiter] = None

    def unpark(self, waiter: Any) -> None:
        self.parked.pop(waiter, None)
        self.parked_replicas.pop(waiter, None)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, search: Any = None, **_: Any
    ) -> tuple[int, int, int] | None:
        if self.error is not None:
            raise self.error
        if search is not None:
            return search()  # type: ignore[no-any-return]
        special = {-1: (self.high_watermark, -1, 3), -2: (self.log_start_offset, -1, 0)}
        return special.get(timestamp_ms)

    def epoch_end(self, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        return EpochEnd(leader_epoch, self.log_end_offset)

    def note_log_start(self, replica: Any, log_start_offset: int) -> None:
        self.noted_starts.append(log_start_offset)

    def active_producers(self) -> list[Any]:
        return []

    def low_watermark_moved(self) -> None:
        for waiter in self.low_watermark_waiters:
            waiter()

    def low_watermark(self) -> int:
        if self.error is not None:
            raise self.error
        return min(self.log_start_offset, *self.follower_starts)

    def delete_records(self, offset: int) -> int:
        if offset > self.high_watermark:
            raise OffsetOutOfRange()
        self.log_start_offset = self.high_watermark if offset == -1 else offset
        return self.log_start_offset


class FakeReplicas:
    def __init__(self, partitions: Iterable[FakePartition], elsewhere: Iterable[int] = ()) -> None:
        self.partitions = {(each.topic, each.index): each for each in partitions}
        self.by_id = {(TOPIC_ID, each.index): each for each in partitions if each.topic == TOPIC}
        self.elsewhere = frozenset(elsewhere)
        self.broker_id = 1
        self.early_batches = EarlyBatches(lambda: 0.0)
        self.sent = ReplicationQuota(lambda: 0.0)
        self.to_wake: list[FakePartition] = []

    def wake_now(self) -> None:
        for partition in self.to_wake:
            for waiter in tuple(partition.parked):
                waiter.wake(partition)
        self.to_wake.clear()

    def get(self, topic: str, partition: int) -> FakePartition:
        found = self.partitions.get((topic, partition))
        if found is not None:
            return found
        raise NotLeaderOrFollower() if partition in self.elsewhere else UnknownTopicOrPartition()

    def was_deleted(self, topic: str) -> bool:
        return False


class FakeTransport(asyncio.Transport):
    """Keeps what is written. Reading goes on unless paused. The kernel takes `room` bytes, and more with `drain`."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.written = bytearray()
        self.wrote = asyncio.Event()
        self.reading = True
        self.closed = False
        self.room = 1 << 62
        self.unsent = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.9", 4711) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        self.unsent += bytes(data)
        self._send()
        if self.unsent:
            self.protocol.pause_writing()

    def drain(self, size: int = 1 << 62) -> None:
        """The client reads: the kernel takes so many bytes more."""
        self.room += size
        had = bool(self.unsent)
        self._send()
        if had and not self.unsent:
            self.protocol.resume_writing()

    def _send(self) -> None:
        taken, self.unsent = self.unsent[: self.room], self.unsent[self.room :]
        self.room -= len(taken)
        self.written += taken
        if taken:
            self.wrote.set()

    def is_closing(self) -> bool:
        return self.closed

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class DeferredOffload:
    """An `Offload` that runs its calls when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def __call__(self, call: Callable[[], Any], /) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((call, future))
        return future

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call, future in calls:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)


def image(partitions: int = 4, leader: int = 1) -> MetadataImage:
    """Brokers 1 and 2, and the topic TOPIC; partition 0's leader is `leader` in epoch 3, the others' broker 2."""
    brokers = {
        each: BrokerState(
            each,
            10 + each,
            UUID(int=each),
            (Endpoint(LISTENER, f"b{each}", 9092),),
            rack=f"r{each}",
            fenced=False,
        )
        for each in (1, 2)
    }
    states = tuple(PartitionState((1, 2), (1, 2), leader if p == 0 else 2, 3) for p in range(partitions))
    return MetadataImage(
        offset=9,
        brokers=brokers,
        topics={TOPIC: TopicState(TOPIC, TOPIC_ID, states)},
        topic_names={TOPIC_ID: TOPIC},
    )


class FakePartitionServer:
    """A broker server over fake partitions; needs a running loop."""

    def __init__(
        self,
        *partitions: FakePartition,
        elsewhere: Iterable[int] = (),
        sockets: int = 16_384,
        **config: Any,
    ) -> None:
        self.partitions = partitions or (FakePartition(),)
        self.partition = self.partitions[0]
        self.image = image()
        self.offload = DeferredOffload()
        self.blocks = 0
        config.setdefault("cluster_secret", b"secret")
        self.broker = BrokerContext(
            env=Env(
                wall_clock_ms=lambda: 1000, random=random.Random(1), offload=self.offload, sockets=sockets
            ),
            config=NodeConfig(**config),
            image=lambda: self.image,
            submit=self._submit,
            replicas=FakeReplicas(self.partitions, elsewhere),  # type: ignore[arg-type]
        )
        self.server = BrokerServer(self.broker, dispatch)
        self.server.arrivals = Arrivals(self.server.loop, lambda: 0.0, handshake_api_key=HANDSHAKE_KEY)
        self.server.long_turns = LongTurns(lambda: 0.0, self.server.counters.long_turns)
        """No test has a busy or a long turn of the loop because its machine is slow."""
        self.server.schemas_loaded.update(EVERY_VERSION)

    async def _submit(self, request: Any, *, timeout: float | None = None) -> Any:
        self.blocks += 1
        return ProducerIdBlock(1000 * self.blocks, 1000)

    def connect(self) -> FakeClient:
        return FakeClient(self.server)


class FakeClient:
    """A client at the other end of a `Connection`, without sockets."""

    def __init__(self, server: BrokerServer) -> None:
        self.connection = Connection(server, LISTENER)
        self.transport = FakeTransport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self._read = 0

    def feed(self, data: bytes, sizes: Iterable[int] = ()) -> None:
        """Give bytes as a socket would: pieces of `sizes`, then the rest, never more than the buffer takes."""
        position = 0
        pieces = iter(sizes)
        while position < len(data) and self.transport.reading and not self.transport.closed:
            room = self.connection.get_buffer(-1)
            assert len(room) > 0
            size = min(next(pieces, len(data)), len(room), len(data) - position)
            room[:size] = data[position : position + size]
            self.connection.buffer_updated(size)
            position += size
        self.unread = data[position:]

    def send(self, *frames: bytes) -> None:
        self.feed(b"".join(frames))

    async def wait(self) -> None:
        """Until something is written that was not read yet."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.transport.written) == self._read:
                self.transport.wrote.clear()
                await self.transport.wrote.wait()

    def frames(self) -> list[memoryview]:
        """Return the response frames that were written since the last call."""
        view = memoryview(bytes(self.transport.written))[self._read :]
        found = []
        position = 0
        while position < len(view):
            size = _i32.unpack_from(view, position)[0]
            found.append(view[position + 4 : position + 4 + size])
            position += 4 + size
        assert position == len(view), "a response is cut off"
        self._read += position
        return found

    def correlation_ids(self) -> list[int]:
        return [_i32.unpack_from(frame)[0] for frame in self.frames()]

    def answer(self, api_key: int, version: int) -> Any:
        (frame,) = self.frames()
        return decode_response(api_key, version, frame)[1]


def request(
    api_key: int, version: int, correlation_id: int, message: Any, client_id: str | None = "t"
) -> bytes:
    return encode_request(RequestHeader(api_key, version, correlation_id, client_id), message)


def api_versions(correlation_id: int, version: int = 3) -> bytes:
    make = request_builders(18, version)
    message = make.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return request(18, version, correlation_id, message)


def produce(
    correlation_id: int,
    *batches: tuple[int, bytes | None],
    acks: int = 1,
    version: int = 9,
    timeout_ms: int = 30_000,
    topic: str | UUID = TOPIC,
    transactional_id: str | None = None,
) -> bytes:
    make = request_builders(0, version)
    data = make.TopicProduceData(
        name=topic if isinstance(topic, str) else "",
        topic_id=topic if isinstance(topic, UUID) else None,
        partition_data=tuple(
            make.PartitionProduceData(index=index, records=records) for index, records in batches
        ),
    )
    message = make.ProduceRequest(
        acks=acks, timeout=timeout_ms, transactional_id=transactional_id, topic_data=(data,)
    )
    return request(0, version, correlation_id, message)


def fetch(
    correlation_id: int,
    *wanted: tuple[int, int],
    version: int = 12,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forget: Iterable[int] = (),
    replica: tuple[int, int] = (-1, -1),
    topic: str | UUID = TOPIC,
) -> bytes:
    """`wanted`: (partition, offset); `session`: (id, epoch); `replica`: (broker id, broker epoch)."""
    make = request_builders(1, version)
    name = topic if isinstance(topic, str) else ""
    topic_id = topic if isinstance(topic, UUID) else None
    partitions = tuple(
        make.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in wanted
    )
    forgotten = tuple(forget)
    message = make.FetchRequest(
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        replica_id=replica[0],
        replica_state=make.ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
        topics=(make.FetchTopic(topic=name, topic_id=topic_id, partitions=partitions),) if partitions else (),
        forgotten_topics_data=(
            (make.ForgottenTopic(topic=name, topic_id=topic_id, partitions=forgotten),) if forgotten else ()
        ),
    )
    return request(1, version, correlation_id, message)
