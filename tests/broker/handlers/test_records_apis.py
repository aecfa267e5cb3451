"""The small APIs around records: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId, ApiVersions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raftlog.base.errors import InvalidRequest, NotLeaderOrFollower, OffsetNotAvailable
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.broker import handlers
from raftlog.broker.controller_requests import wake_image_waiters
from raftlog.broker.handlers import delete_records, served, warm_up
from raftlog.broker.handlers.api_versions import SHARE_GROUPS, TELEMETRY
from raftlog.protocol.apis import APIS
from raftlog.protocol.message_builders import request_builders
from tests.broker.fakes import TOPIC, FakeClient, FakePartition, FakePartitionServer, batch, request
from tests.broker.rows import all_rows


def filled(index: int = 0) -> FakePartition:
    partition = FakePartition(index=index)
    for _ in range(5):
        partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
    return partition


async def ask(pipe: FakeClient, api_key: int, version: int, message: Any) -> Any:
    pipe.send(request(api_key, version, 1, message))
    await pipe.wait()
    return pipe.answer(api_key, version)


async def list_offsets(
    pipe: FakeClient, version: int, *wanted: tuple[int, int]
) -> list[tuple[int, int, int]]:
    """(error, offset, timestamp) of each (partition, timestamp)."""
    pipe.send(listing(version, *wanted))
    await pipe.wait()
    return listed(pipe, version)


def listing(version: int, *wanted: tuple[int, int]) -> bytes:
    make = request_builders(2, version)
    partitions = tuple(
        make.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=-1)
        for partition, timestamp in wanted
    )
    message = make.ListOffsetsRequest(
        replica_id=-1, topics=(make.ListOffsetsTopic(name=TOPIC, partitions=partitions),)
    )
    return request(2, version, 1, message)


def listed(pipe: FakeClient, version: int) -> list[tuple[int, int, int]]:
    (topic,) = pipe.answer(2, version).topics
    return [(each.error_code, each.offset, each.timestamp) for each in topic.partitions]


@pytest.mark.parametrize("version", range(1, 12))
async def test_list_offsets_knows_latest_and_earliest_in_every_version(version: int) -> None:
    """KIP-79: -1 and -2; an unknown partition has its own error."""
    pipe = FakePartitionServer(filled()).connect()
    assert await list_offsets(pipe, version, (0, -1)) == [(0, 5, -1)]
    assert await list_offsets(pipe, version, (0, -2), (9, -1)) == [(0, 0, -1), (3, -1, -1)]


async def search(
    fake: FakePartitionServer, version: int, *wanted: tuple[int, int], **change: Any
) -> list[Any]:
    """Like `list_offsets`, with the search on its thread; the partition changes meanwhile."""
    pipe = fake.connect()
    pipe.send(listing(version, *wanted))
    while not fake.offload.calls and not pipe.transport.written:
        await asyncio.sleep(0)
    fake.offload.run()
    vars(fake.partition).update(change)
    await pipe.wait()
    return listed(pipe, version)


async def test_a_search_by_time_happens_away_from_the_loop() -> None:
    """It reads indexes and unpacks a batch. KIP-79: offset -1 without an error past the last record."""
    assert await search(FakePartitionServer(filled()), 5, (0, 10**13), (9, 5)) == [(0, -1, -1), (3, -1, -1)]
    assert await search(FakePartitionServer(filled()), 7, (0, 3), (0, -3)) == [(42, -1, -1), (42, -1, -1)]
    assert await search(FakePartitionServer(filled()), 7, (0, 3)) == [(0, 3, 3)]
    assert await search(FakePartitionServer(filled()), 7, (0, -3)) == [(0, 1, 77)]


async def test_a_search_of_another_leadership_is_not_returned() -> None:
    """The log may have been cut and overwritten under it; the client asks again."""
    assert await search(FakePartitionServer(filled()), 5, (0, 3), leader_epoch=4) == [(6, -1, -1)]


async def test_a_search_whose_segment_was_dropped_is_asked_again() -> None:
    """Retention is no failing disk."""
    fake = FakePartitionServer(filled())
    fake.partition.disk_error = FileNotFoundError()
    assert await search(fake, 5, (0, 3)) == [(6, -1, -1)]
    assert not fake.partition.reported


@pytest.mark.parametrize(("special", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
async def test_special_timestamps_exist_from_a_version_on(special: int, since: int) -> None:
    """KIP-734, 405, 1005: an older version's negative timestamp has no meaning."""
    pipe = FakePartitionServer(filled()).connect()
    if special == -3:
        assert (await search(FakePartitionServer(filled()), since, (0, special)))[0][0] == 0
        assert (await search(FakePartitionServer(filled()), since - 1, (0, special)))[0][0] == 35
        return
    assert (await list_offsets(pipe, since, (0, special)))[0][0] == 0
    assert (await list_offsets(pipe, since - 1, (0, special)))[0][0] == 35
    assert (await list_offsets(pipe, 11, (0, -7)))[0][0] == 35


async def test_a_partition_named_twice_and_a_fresh_leader_are_errors_of_their_own() -> None:
    """INVALID_REQUEST as Kafka does it; OFFSET_NOT_AVAILABLE of KIP-207 passes through."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    assert [each[0] for each in await list_offsets(pipe, 5, (0, -1), (0, -2))] == [42, 42]
    fake.partition.error = OffsetNotAvailable()
    assert await list_offsets(pipe, 5, (0, -1)) == [(78, -1, -1)]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_the_end_of_a_leader_epoch_is_returned(version: int) -> None:
    """KIP-320: consumers notice truncation by it."""
    pipe = FakePartitionServer(filled()).connect()
    make = request_builders(23, version)
    partitions = tuple(
        make.OffsetForLeaderPartition(partition=each, current_leader_epoch=-1, leader_epoch=4)
        for each in (0, 8)
    )
    message = make.OffsetForLeaderEpochRequest(
        topics=(make.OffsetForLeaderTopic(topic=TOPIC, partitions=partitions),)
    )
    (topic,) = (await ask(pipe, 23, version, message)).topics
    found = [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions]
    assert found == [(0, 4, 5), (3, -1, -1)]


async def delete(pipe: FakeClient, *wanted: tuple[int, int], timeout: int = 60_000) -> list[tuple[int, int]]:
    make = request_builders(21, 2)
    partitions = tuple(
        make.DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in wanted
    )
    topics = (make.DeleteRecordsTopic(name=TOPIC, partitions=partitions),)
    pipe.send(request(21, 2, 1, make.DeleteRecordsRequest(topics=topics, timeout=timeout)))
    await pipe.wait()
    (topic,) = pipe.answer(21, 2).topics
    return [(each.error_code, each.low_watermark) for each in topic.partitions]


async def test_deleted_records_move_the_start_of_the_partition() -> None:
    """KIP-107: up to the offset, -1 up to the high watermark, never past it."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    assert await delete(pipe, (0, 2), (7, 1)) == [(0, 2), (3, -1)]
    assert await delete(pipe, (0, 6)) == [(1, -1)]
    assert await delete(pipe, (0, -1)) == [(0, 5)]


async def test_a_deletion_is_answered_when_the_followers_have_made_it_too() -> None:
    """KIP-107: else the next leader would bring the records back; REQUEST_TIMED_OUT if a follower does not."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    fake.partition.follower_starts = [2, 0]
    deletion = asyncio.create_task(delete(pipe, (0, 2)))
    for _ in range(4):
        await asyncio.sleep(0)
    assert not deletion.done() and fake.partition.log_start_offset == 2
    fake.partition.follower_starts = [2, 3]
    fake.partition.low_watermark_moved()
    assert await deletion == [(0, 2)]
    assert await delete(fake.connect(), (0, 4), timeout=30) == [(7, 2)]


async def test_a_deletion_checks_again_with_each_image_and_each_move_until_all_are_done() -> None:
    """A fenced follower counts no more, which only the metadata shows; the partitions keep no state of the deletion."""
    fake = FakePartitionServer(filled(), filled(1))
    for each in fake.partitions:
        each.follower_starts = [0]
    deletion = asyncio.create_task(delete(fake.connect(), (0, 2), (1, 2), (0, 2)))
    await _turns()
    assert [len(each.low_watermark_waiters) for each in fake.partitions] == [1, 1]
    fake.partitions[1].follower_starts = [2]
    fake.partitions[1].low_watermark_moved()
    await _turns()
    assert not deletion.done()
    fake.partition.follower_starts = [2]
    wake_image_waiters(fake.broker)
    await _turns()
    assert deletion.done() and await deletion == [(0, 2), (0, 2), (0, 2)]
    assert [len(each.low_watermark_waiters) for each in fake.partitions] == [0, 0]
    assert not fake.broker.image_waiters


async def test_a_deletion_fails_as_soon_as_its_leader_resigns() -> None:
    """The client looks for the next leader then, and asks it."""
    fake = FakePartitionServer(filled())
    fake.partition.follower_starts = [0]
    deletion = asyncio.create_task(delete(fake.connect(), (0, 2)))
    await _turns()
    fake.partition.error = NotLeaderOrFollower()
    fake.partition.low_watermark_moved()
    assert await deletion == [(NotLeaderOrFollower.code, -1)]


async def _turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_a_deletion_is_not_waited_for_as_long_as_its_client_likes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its objects are kept meanwhile: a hundred requests with a timeout of weeks each would fill the memory."""
    monkeypatch.setattr(delete_records, "MAX_TIMEOUT_S", 0.03)
    fake = FakePartitionServer(filled())
    fake.partition.follower_starts = [0]
    assert await delete(fake.connect(), (0, 4), timeout=2**31 - 1) == [(7, 0)]


@pytest.mark.parametrize(
    ("policy", "answer", "start"),
    [(("compact",), (44, -1), 0), (("compact", "delete"), (0, 2), 2), ((), (0, 2), 2)],
)
async def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    policy: tuple[str, ...], answer: tuple[int, int], start: int
) -> None:
    """KIP-107: POLICY_VIOLATION. Kafka 4.3 deletes where cleanup.policy is empty."""
    fake = FakePartitionServer(filled())
    fake.partition.config = replace(fake.partition.config, cleanup_policy=policy)
    assert await delete(fake.connect(), (0, 2)) == [answer]
    assert fake.partition.log_start_offset == start


async def test_records_of_internal_topics_are_not_deleted() -> None:
    """INVALID_TOPIC_EXCEPTION as in Kafka, whatever the topic's policy: committed offsets would be gone."""
    fake = FakePartitionServer(filled())
    fake.partition.topic = CONSUMER_OFFSETS_TOPIC
    assert await delete(fake.connect(), (0, 2)) == [(17, -1)]
    assert fake.partition.log_start_offset == 0


async def init_producer_id(
    pipe: FakeClient, version: int, transactional_id: str | None = None, **claim: int
) -> Any:
    make = request_builders(22, version)
    message = make.InitProducerIdRequest(transactional_id=transactional_id, **claim)
    pipe.send(request(22, version, 1, message))
    await asyncio.sleep(0)
    await pipe.wait()
    return pipe.answer(22, version)


@pytest.mark.parametrize("version", range(6))
async def test_an_idempotent_producer_gets_an_id_of_its_own(version: int) -> None:
    """KIP-98: epoch 0; each request another id."""
    fake = FakePartitionServer()
    answers = [await init_producer_id(fake.connect(), version) for _ in range(3)]
    assert {(each.error_code, each.producer_epoch) for each in answers} == {(0, 0)}
    assert len({each.producer_id for each in answers}) == 3
    assert fake.blocks == 1


@pytest.mark.parametrize("claim", [{"producer_id": 5}, {"producer_epoch": 0}])
async def test_half_a_claim_is_refused(claim: dict[str, int]) -> None:
    """A producer id without an epoch names no producer, with or without a transactional id: INVALID_REQUEST."""
    fake = FakePartitionServer()
    answer = await init_producer_id(fake.connect(), 4, **claim)
    assert (answer.error_code, answer.producer_id, fake.blocks) == (InvalidRequest.code, -1, 0)


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_lists_what_has_a_handler(version: int) -> None:
    """An API that is not built is not advertised."""
    pipe = FakePartitionServer().connect()
    make = request_builders(18, version)
    message = make.ApiVersionsRequest(client_software_name="a-client", client_software_version="1.2.3")
    answer = await ask(pipe, 18, version, message)
    assert answer.error_code == 0
    listed = {each.api_key: each for each in answer.api_keys}
    files = {path.stem for path in Path(handlers.__file__).parent.glob("*.py")}
    built = {key for key in served() if APIS[key].name in files}
    assert set(listed) == built - TELEMETRY - SHARE_GROUPS >= {0, 1, 2, 3, 18, 21, 22, 23}
    assert listed[1].max_version == APIS[1].max_version
    finalized = {each.name: each.max_version_level for each in getattr(answer, "finalized_features", ())}
    assert finalized.get("transaction.version") == (2 if version >= 3 else None)
    supported = {each.name for each in getattr(answer, "supported_features", ())}
    assert ("transaction.version" in supported) == (version >= 4), "older clients cannot read of level 0"
    assert ("metadata.version" in supported) == (version >= 3)


@pytest.mark.parametrize("name", ["", "-x", "x.", "a b", "ü"])
async def test_a_client_must_name_itself_properly(name: str) -> None:
    """KIP-511: INVALID_REQUEST for a name that could not stand in a metric."""
    pipe = FakePartitionServer().connect()
    make = request_builders(18, 3)
    message = make.ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert (await ask(pipe, 18, 3, message)).error_code == 42


async def test_a_client_that_means_another_broker_begins_again_at_its_bootstrap_servers() -> None:
    """KIP-1242: REBOOTSTRAP_REQUIRED for another cluster or broker, INVALID_REQUEST for one without the other."""
    fake = FakePartitionServer()
    fake.image = msgspec.structs.replace(fake.image, cluster_id="ours")
    make = request_builders(18, 5)

    async def code_for(cluster_id: str | None, node_id: int) -> int:
        named = {"client_software_name": "a-client", "client_software_version": "1"}
        message = make.ApiVersionsRequest(**named, cluster_id=cluster_id, node_id=node_id)
        answer = await ask(fake.connect(), 18, 5, message)
        assert bool(answer.api_keys) == (answer.error_code == 0)
        return int(answer.error_code)

    own = fake.broker.config.node_id
    assert [await code_for(None, -1), await code_for("ours", own)] == [0, 0]
    assert [await code_for("theirs", own), await code_for("ours", own + 1)] == [129, 129]
    assert [await code_for(None, own), await code_for("ours", -1)] == [42, 42]


def test_what_clients_are_likely_to_send_is_warmed_up() -> None:
    """The APIs of producers, consumers, groups and transactions, each in many steps."""
    prepared = {key for key, row in all_rows().items() if row.prepared}
    assert prepared == {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 22, 24, 25, 26, 28, 68, 76, 78, 79}
    assert len(list(warm_up())) > 4 * len(prepared)


async def test_a_partition_that_is_named_twice_is_not_searched() -> None:
    """A small request must not make work on disks that is refused in the end."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    assert await list_offsets(pipe, 7, *[(0, 3)] * 100) == [(42, -1, -1)] * 100
    assert not fake.offload.calls


async def test_one_thread_searches_for_all_requests_together() -> None:
    """The other threads are there for syncs, however many clients look for times."""
    fake = FakePartitionServer(filled())
    pipes = [fake.connect() for _ in range(5)]
    for pipe in pipes:
        pipe.send(listing(7, (0, 3)))
    for pipe in pipes:
        while not fake.offload.calls:
            await asyncio.sleep(0)
        assert len(fake.offload.calls) == 1
        fake.offload.run()
        await pipe.wait()
        assert listed(pipe, 7) == [(0, 3, 3)]
