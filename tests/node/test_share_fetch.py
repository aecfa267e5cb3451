"""ShareFetch and ShareAcknowledge in a cluster of three nodes, through raw requests (KIP-932)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.base.errors import (
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnsupportedVersion,
)
from raftlog.broker.context import RequestContext
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.broker.handlers import share_fetch
from raftlog.broker.handlers.shared.fetch_reader import ColdRead
from raftlog.metadata.controller_api import SAFE_DOWNGRADE, FeatureUpdate, UpdateFeatures
from raftlog.metadata.features import SHARE_VERSION
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import iter_records
from raftlog.records.header import iter_headers
from raftlog.replication.replica_host import PartitionRead
from raftlog.security.acls import ResourceType
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.raw_client import AWAY
from raftlog_chaos.workloads.share_member import ACCEPT, REJECT, RELEASE, RENEW
from tests.node.share_members import (
    GROUP,
    TOPIC,
    Member,
    acquired,
    code_of,
    context_of,
    deny,
    partition_of,
    produce,
    run_scenario,
    share_partitions,
    start,
    submit,
)


def test_a_member_fetches_and_acknowledges() -> None:
    """Records come once, with their delivery counts; what is released comes again, and accepted records do not."""

    async def scenario(cluster: SimCluster) -> None:
        (a, b) = await start(cluster, "a", "b")
        await produce(cluster, 2)
        answer = await a.fetch()
        assert acquired(answer) == [(0, 2, 1)] and answer.acquisition_lock_timeout == 30_000
        values = [each.value for each in iter_records(memoryview(partition_of(answer).records))]
        assert values == [b"0", b"1", b"2", b"3", b"4"]
        assert acquired(await b.fetch()) == [(3, 5, 1)]
        assert partition_of(await a.acknowledge((0, 1, [ACCEPT]), (2, 2, [RELEASE]))).error_code == 0
        answer = await b.fetch((3, 5, [ACCEPT, REJECT, ACCEPT]))
        assert partition_of(answer).acknowledge_error_code == 0
        assert acquired(answer) == [(2, 2, 2), (6, 7, 1)]
        assert partition_of(await a.acknowledge((2, 2, [ACCEPT]))).error_code == InvalidRecordState.code

    run_scenario(scenario)


def test_fetches_read_the_disk_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads from where the one before has acquired to, and not the same records again."""
    offsets: list[int] = []

    def read(cold: ColdRead) -> PartitionRead:
        offsets.append(cold.entry.offset)
        return run(cold)

    run = ColdRead.run
    monkeypatch.setattr(ColdRead, "run", read)

    async def scenario(cluster: SimCluster) -> None:
        members = await start(cluster, "a", "b", "c")
        await produce(cluster, 2)
        cluster.nodes[members[0].leader].host.disk.cold_read_rate = 1.0
        del offsets[:]
        answers = await asyncio.gather(*(each.fetch(max_wait=4_000) for each in members))
        found = sorted(acquired(answers[0]) + acquired(answers[1]) + acquired(answers[2]))
        assert found == [(0, 2, 1), (3, 5, 1), (6, 8, 1)] and offsets == [0, 3, 6]

    run_scenario(scenario)


def test_without_memory_for_responses_nothing_is_acquired() -> None:
    """The records stay available until there is room again."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        node = cluster.nodes[a.leader].node
        assert node is not None and node.broker is not None
        memory = node.broker.server.memory.answers
        memory.acquire(memory.limit - 200)
        assert acquired(await a.fetch()) == []
        memory.release(memory.limit - 200)
        assert acquired(await a.fetch()) == [(0, 2, 1)]

    run_scenario(scenario)


def test_off_at_level_0() -> None:
    """share.version 0: UNSUPPORTED_VERSION."""

    async def scenario(cluster: SimCluster) -> None:
        member = Member(cluster, "a")
        member.find_leader()
        assert (await member.fetch()).error_code == UnsupportedVersion.code
        assert (await member.acknowledge(epoch=1)).error_code == UnsupportedVersion.code

    run_scenario(scenario, level=0)


def test_sessions_and_locks_end_when_share_groups_are_turned_off() -> None:
    """A fetch that waits is answered, and a member that comes after an upgrade gets the records again."""

    async def scenario(cluster: SimCluster) -> None:
        (a, b) = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        waiting = asyncio.create_task(b.fetch(max_records=0, max_wait=60_000))
        await asyncio.sleep(0.1)
        await submit(cluster, UpdateFeatures((FeatureUpdate(SHARE_VERSION, 0, SAFE_DOWNGRADE),)))
        assert (await waiting).error_code == ShareSessionNotFound.code
        held = share_partitions(cluster, a.leader)
        assert (len(held), len(held.sessions)) == (0, 0)
        assert (await a.fetch()).error_code == UnsupportedVersion.code
        await submit(cluster, UpdateFeatures((FeatureUpdate(SHARE_VERSION, 1),)))
        assert (await a.acknowledge((0, 2, [ACCEPT]))).error_code == ShareSessionNotFound.code
        assert acquired(await a.fetch(epoch=0)) == [(0, 2, 1)]

    run_scenario(scenario)


def test_sessions_have_epochs() -> None:
    """122 without a session, 123 for another epoch, 42 for acknowledgements that open one, and 133 for one too many."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        b = Member(cluster, "b")
        b.find_leader()
        assert (await b.fetch(epoch=1)).error_code == ShareSessionNotFound.code
        assert (await b.acknowledge(epoch=1)).error_code == ShareSessionNotFound.code
        assert (await b.acknowledge(epoch=0)).error_code == InvalidShareSessionEpoch.code
        assert (await b.fetch((0, 0, [ACCEPT]), epoch=0)).error_code == InvalidRequest.code
        assert (await a.fetch(epoch=2)).error_code == InvalidShareSessionEpoch.code
        assert (await a.acknowledge(epoch=7)).error_code == InvalidShareSessionEpoch.code
        sessions = share_partitions(cluster, a.leader).sessions
        sessions.most = 1
        assert (await b.fetch(epoch=0)).error_code == ShareSessionLimitReached.code
        assert (await a.acknowledge(epoch=-1)).error_code == 0
        assert (await a.acknowledge(epoch=1)).error_code == ShareSessionNotFound.code
        assert acquired(await b.fetch()) == [] and len(sessions) == 1
        b.name = ""
        assert (await b.fetch(epoch=0)).error_code == InvalidRequest.code

    run_scenario(scenario)


def test_a_closed_connection_opens_no_session() -> None:
    """Its sessions would never end; and a group without states costs no memory."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        context = context_of(cluster, a.leader)
        request = RequestContext(
            int(ApiKey.SHARE_FETCH),
            2,
            0,
            "c",
            "PLAINTEXT",
            "",
            connection=cast(Any, SimpleNamespace(is_open=False)),
        )
        with pytest.raises(ShareSessionNotFound):
            await share_fetch.handle(context, request, a.fetch_request(epoch=0))
        assert len(context.share_partitions.sessions) == 1
        assert len(context.share_partitions) == 1
        answer = await a.fetch(epoch=0, group_id="made-up")
        assert partition_of(answer).error_code == InvalidRequest.code
        assert len(context.share_partitions) == 1

    run_scenario(scenario)


def test_acknowledgements_are_checked() -> None:
    """42 for what is malformed or was never fetched, 121 for what is not held; the records stay its own."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 2)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        for acks in (
            [(0, 0, [RENEW])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(0, 0, [])],
            [(1, 0, [ACCEPT])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
            [(0, 1, [ACCEPT]), (0, 2, [ACCEPT])],
            [(0, 9, [ACCEPT])],
        ):
            assert code_of(await a.acknowledge(*acks)) == InvalidRequest.code, acks
        assert code_of(await a.acknowledge((0, 1, [ACCEPT]), (1, 2, [ACCEPT]))) == InvalidRecordState.code
        assert code_of(await b.acknowledge((0, 0, [ACCEPT]))) == InvalidRecordState.code
        assert code_of(await a.acknowledge((0, 2, [ACCEPT]))) == 0
        answer = await a.fetch((0, 9, [ACCEPT]))
        assert partition_of(answer).acknowledge_error_code == InvalidRequest.code
        assert acquired(answer) == [(3, 5, 1)]

    run_scenario(scenario)


def test_the_end_of_a_session_gives_up_its_records() -> None:
    """The final epoch and the end of a connection give up what the member has not acknowledged."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 2)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        answer = await a.fetch((0, 0, [ACCEPT]), epoch=-1)
        assert partition_of(answer).acknowledge_error_code == 0 and acquired(answer) == []
        assert acquired(await b.fetch(max_records=2)) == [(1, 2, 2)]
        b.client.close()
        a.epoch = 0
        assert acquired(await a.fetch(max_wait=4_000, max_records=2)) == [(1, 2, 3)]
        assert code_of(await a.acknowledge((1, 2, [ACCEPT]))) == 0
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_000, min_bytes=1 << 20))
        await asyncio.sleep(0.5)
        a.client.close()
        with pytest.raises(AWAY):
            await waiting
        await asyncio.sleep(0.1)
        assert len(share_partitions(cluster, a.leader).sessions) == 0
        assert share_partitions(cluster, a.leader).watched == 0
        replica = cluster.replica(a.leader, TOPIC, 0)
        assert replica is not None and not replica.waiting_consumers

    run_scenario(scenario)


def test_a_fetch_waits_for_records() -> None:
    """It waits for new records, for records that another member gives up, and for MinBytes until MaxWaitMs."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_000))
        await asyncio.sleep(1.0)
        await produce(cluster, 1)
        assert acquired(await waiting) == [(0, 2, 1)] and loop.time() - began_at < 2.0
        assert acquired(await b.fetch()) == [(3, 4, 1)]
        waiting = asyncio.ensure_future(b.fetch(max_wait=4_000))
        await asyncio.sleep(0.5)
        began_at = loop.time()
        assert code_of(await a.acknowledge((0, 2, [RELEASE]))) == 0
        assert acquired(await waiting) == [(0, 2, 2)] and loop.time() - began_at < 1.0
        await produce(cluster, 1)
        began_at = loop.time()
        assert acquired(await a.fetch(max_wait=3_000, min_bytes=1 << 20)) == [(5, 7, 1)]
        assert loop.time() - began_at >= 3.0
        began_at = loop.time()
        assert acquired(await a.fetch(max_wait=3_000, max_records=0)) == []
        assert loop.time() - began_at >= 3.0

    run_scenario(scenario)


def test_share_partitions_in_use_are_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records leave soon after they are committed: no task, no lock and no turn for what has its state."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        with monkeypatch.context() as patch:
            patch.setattr(LedSharePartitions, "get", None)
            await produce(cluster, 1)
            assert acquired(await a.fetch()) == [(0, 2, 1)]
        assert code_of(await a.acknowledge((0, 2, [ACCEPT]))) == 0

    run_scenario(scenario)


def test_max_records_is_exact_in_mode_1() -> None:
    """Mode 0 ends where record batches end, and is split by BatchSize; mode 1 has MaxRecords and not one more."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 6)
        assert (await a.fetch(share_acquire_mode=2)).error_code == InvalidRequest.code
        a.epoch += 1  # the session is looked at first
        assert acquired(await a.fetch(share_acquire_mode=0)) == [(0, 4, 1)]
        answer = await a.fetch(share_acquire_mode=0, max_records=12, batch_size=5)
        assert acquired(answer) == [(5, 9, 1), (10, 14, 1), (15, 19, 1)]
        headers = iter_headers(memoryview(partition_of(answer).records))
        assert [each.base_offset for _, each in headers] == [5, 10, 15]
        assert acquired(await a.fetch(max_records=6, batch_size=2)) == [(20, 25, 1)]

    run_scenario(scenario)


def test_partitions_of_a_session_take_turns() -> None:
    """MaxRecords is for all partitions together; the next fetch begins with another, and skips those forgotten."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        state = cluster.last_image().topics[TOPIC]
        two = [index for index, each in enumerate(state.partitions) if each.leader == a.leader][:2]
        assert two[0] == 0 and len(two) == 2
        make = request_builders(ApiKey.SHARE_FETCH, 2)
        parts = tuple(make.FetchPartition(partition_index=each, acknowledgement_batches=()) for each in two)
        topic = make.FetchTopic(topic_id=a.topic_id, partitions=parts)

        def found(answer: Any) -> list[tuple[int, int]]:
            return [
                (
                    part.partition_index,
                    sum(each.last_offset - each.first_offset + 1 for each in part.acquired_records),
                )
                for topic in answer.responses
                for part in topic.partitions
            ]

        assert found(await a.fetch(topics=(topic,))) == []  # the group begins at the end of the log
        for index in two:
            await produce(cluster, 2, index=index)
        assert found(await a.fetch(topics=(), max_records=4)) == [(0, 4)]
        assert found(await a.fetch(topics=(), max_records=12)) == [(two[1], 10), (0, 2)]
        await produce(cluster, 1, index=two[1])
        await produce(cluster, 1)
        forgotten = make.ForgottenTopic(topic_id=a.topic_id, partitions=(two[1],))
        answer = await a.fetch(topics=(), forgotten_topics_data=(forgotten,), max_records=20)
        assert found(answer) == [(0, 9)]

    run_scenario(scenario, partitions=9)


def test_locks_are_renewed() -> None:
    """A lock that is renewed lasts longer; the others' records go to another member (KIP-1222)."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        await asyncio.sleep(20.0)
        assert code_of(await a.acknowledge((0, 0, [RENEW]), is_renew_ack=True)) == 0
        refused = await a.fetch((0, 0, [RENEW]), is_renew_ack=True, epoch=a.epoch)
        assert refused.error_code == InvalidRequest.code
        nothing = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = await a.fetch((1, 1, [RENEW]), is_renew_ack=True, **nothing)
        assert partition_of(answer).acknowledge_error_code == 0 and acquired(answer) == []
        await asyncio.sleep(15.0)
        assert acquired(await b.fetch(max_records=5)) == [(2, 2, 2), (3, 4, 1)]
        assert code_of(await a.acknowledge((0, 1, [ACCEPT]))) == 0

    run_scenario(scenario)


def test_version_1_has_no_modes() -> None:
    """Without modes and renewals: a whole batch is acquired, and type 4 is unknown."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a", version=1)
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 4, 1)]
        assert code_of(await a.acknowledge((0, 0, [RENEW]))) == InvalidRequest.code
        assert code_of(await a.acknowledge((0, 4, [ACCEPT]))) == 0

    run_scenario(scenario)


def test_rights_and_topics() -> None:
    """READ on the group, and READ on each topic; a topic id that is unknown is an error of its own."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        a.unknown = True
        assert code_of(await a.acknowledge((0, 0, [ACCEPT]))) == UnknownTopicId.code
        answer = await a.fetch((0, 0, [ACCEPT]))
        errors = {
            (each.error_code, each.acknowledge_error_code)
            for it in answer.responses
            for each in it.partitions
        }
        assert errors == {(UnknownTopicId.code, UnknownTopicId.code)}
        a.unknown = False
        deny(cluster, a.leader, ResourceType.TOPIC, TOPIC)
        assert code_of(await a.acknowledge((0, 0, [ACCEPT]))) == TopicAuthorizationFailed.code
        answer = await a.fetch((0, 0, [ACCEPT]))
        codes = [
            (each.error_code, each.acknowledge_error_code)
            for it in answer.responses
            for each in it.partitions
            if it.topic_id == a.topic_id
        ]
        assert codes == [(TopicAuthorizationFailed.code,) * 2]
        deny(cluster, a.leader, ResourceType.GROUP, GROUP)
        assert (await a.fetch()).error_code == GroupAuthorizationFailed.code
        assert (await a.acknowledge()).error_code == GroupAuthorizationFailed.code

    run_scenario(scenario)


def test_a_broker_that_does_not_lead_a_partition_says_so_without_acknowledgements() -> None:
    """A ShareAcknowledge may name a partition without offsets: the member learns of another leader."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        assert (await a.acknowledge()).responses == ()
        a.leader, a.epoch = next(each for each in cluster.nodes if each != a.leader), 0
        assert partition_of(await a.fetch()).error_code == NotLeaderOrFollower.code
        assert code_of(await a.acknowledge()) == NotLeaderOrFollower.code

    run_scenario(scenario)
