"""Group coordinators on real logs: found, read back, stood down, and true to what they answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.env import Env
from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    NotCoordinator,
    PolicyViolation,
    UnknownMemberId,
)
from raftlog.base.machine import MAX_PARKED
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.broker.coordination.group_coordinators import TICK_S
from raftlog.broker.coordination.group_shard import GroupCoordinatorShard
from raftlog.broker.long_work import turns as broker_turns
from raftlog.coordinator.group import EMPTY, STABLE, CommittedOffset, Group
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_expiration import GROUPS_PER_SWEEP
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.coordinator.group_requests import (
    CommitOffsets,
    DeleteGroup,
    Heartbeat,
    JoinGroup,
    MemberRef,
    OffsetCommit,
    SyncGroup,
)
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.records.batch import Buffer
from raftlog.replication.partition import Partition
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import PARTITIONS, TOPIC, GroupBroker
from tests.storage.compacted_logs import clean, flush_and_checkpoint

FEW_BYTES = 20_000
"""Room for a dozen groups."""


def run_scenario(
    scenario: Callable[[GroupBroker], Awaitable[None]], *, with_topic: bool = True, **settings: object
) -> None:
    """Play a scenario on one broker."""

    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = GroupBroker(host, with_topic=with_topic, **settings)
            await asyncio.sleep(0.1)
            await scenario(node)
            await node.groups.close()

        host = loop.host("b1")
        await host.start(life())

    simulate(program)


def commit_of(offset: int, group_id: str = "g", topic: str = "t") -> CommitOffsets:
    commits = (OffsetCommit(topic, 0, CommittedOffset(offset, 1, "text")),)
    return CommitOffsets(group_id, MemberRef(""), -1, commits)


def join_of(member_id: str = "", group_id: str = "g") -> JoinGroup:
    return JoinGroup(
        group_id, MemberRef(member_id), "c", "/h", 6_000, 6_000, "consumer", (("range", b"s"),), False
    )


async def join(node: GroupBroker) -> str:
    joined = await node.groups.ask(GroupCoordinator.join, join_of())
    await node.groups.ask(
        GroupCoordinator.sync, SyncGroup("g", MemberRef(joined.member_id), 1, {joined.member_id: b"a"})
    )
    return str(joined.member_id)


def test_the_first_group_has_the_offsets_topic_made() -> None:
    """50 compacted partitions, as many replicas as there are brokers (at most 3); made once for many askers."""

    async def scenario(node: GroupBroker) -> None:
        found = await asyncio.gather(*(node.groups.find(f"g{index}") for index in range(5)))
        assert found == [1] * 5
        assert len(node.submitted) == 1
        topic = node.submitted[0].topics[0]
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (
            CONSUMER_OFFSETS_TOPIC,
            50,
            1,
        )
        assert topic.configs["cleanup.policy"] == "compact"
        with pytest.raises(InvalidGroupId):
            await node.groups.find("")

    run_scenario(scenario, with_topic=False)


def test_a_commit_survives_the_kill_of_every_node() -> None:
    """Answered changes are on disk: after a power loss the group is read back from the log alone."""

    async def program(loop: SimLoop) -> None:
        host = loop.host("b1")

        async def first() -> str:
            node = GroupBroker(host)
            await asyncio.sleep(0.1)
            for offset in range(20):
                assert await node.groups.commit(commit_of(offset, group_id=f"g{offset % 3}")) == (0,)
            return await join(node)

        async def second(member_id: str) -> None:
            node = GroupBroker(host)
            await asyncio.sleep(0.1)
            for index, offset in enumerate((18, 19, 17)):
                group = await node.groups.read(f"g{index}")
                committed = group.offsets["t", 0]
                assert (committed.offset, committed.metadata) == (offset, "text")
            assert (await node.groups.read("g")).state == STABLE
            await node.groups.ask(GroupCoordinator.heartbeat, Heartbeat("g", MemberRef(member_id), 1))
            assert [each.group_id for each in await node.groups.read_all()] == ["g1", "g", "g0", "g2"]

        member_id = await host.start(first())
        loop.crash(host)
        await host.start(second(member_id))

    for seed in range(5):
        simulate(program, seed=seed)


def test_a_broker_starts_with_as_many_groups_as_it_may_keep() -> None:
    """Filled by strangers up to the limit in both partitions, it is read back whole, and refuses new groups as before.

    Also with a lower limit: what there is goes on, and makes room when it is deleted.
    """

    async def program(loop: SimLoop) -> None:
        host = loop.host("b1")

        async def first() -> int:
            node = GroupBroker(host, raftlog_group_max_bytes=FEW_BYTES)
            await asyncio.sleep(0.1)
            for number in range(FEW_BYTES):
                try:
                    await node.groups.commit(commit_of(number, group_id=f"g{number}"))
                except PolicyViolation:
                    assert node.groups.memory_bytes() <= FEW_BYTES
                    return number
            raise AssertionError("there is no limit")

        async def second(count: int, limit: int) -> None:
            node = GroupBroker(host, raftlog_group_max_bytes=limit)
            await asyncio.sleep(0.1)
            groups = {each.group_id: each.offsets["t", 0].offset for each in await node.groups.read_all()}
            assert groups == {f"g{number}": number for number in range(count)}
            with pytest.raises(PolicyViolation):
                await node.groups.commit(commit_of(1, group_id="another"))
            assert await node.groups.commit(commit_of(0, group_id="g0")) == (0,)

        async def last(count: int) -> None:
            node = GroupBroker(host, raftlog_group_max_bytes=FEW_BYTES)
            await asyncio.sleep(0.1)
            for number in range(count):
                await node.groups.ask(GroupCoordinator.delete, DeleteGroup(f"g{number}"))
            assert node.groups.memory_bytes() == 0

        count = await host.start(first())
        assert count > PARTITIONS
        for limit in (FEW_BYTES, FEW_BYTES // 4):
            loop.crash(host)
            await host.start(second(count, limit))
        loop.crash(host)
        await host.start(last(count))

    simulate(program)


def test_requests_wait_until_the_partition_is_read_back() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS while the log is read, and until all it holds is committed."""

    async def scenario(node: GroupBroker) -> None:
        await node.groups.commit(commit_of(1))
        node.partition_host.flushes = False
        with pytest.raises(CoordinatorNotAvailable):
            await node.groups.commit(commit_of(2))
        node.publish(leader=1)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.groups.read("g")
        await asyncio.sleep(1)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.groups.read("g")
        with pytest.raises(CoordinatorLoadInProgress):
            await node.groups.read_all()
        node.partition_host.flushes = True
        for partition in node.replicas.partitions.values():
            node.partition_host.flush(partition)
        await asyncio.sleep(0.1)
        assert (await node.groups.read("g")).offsets["t", 0].offset == 2

    run_scenario(scenario)


def test_a_broker_that_lost_the_partition_says_so() -> None:
    """NOT_COORDINATOR for waiting and new requests; the next leadership reads everything back."""

    async def scenario(node: GroupBroker) -> None:
        await node.groups.commit(commit_of(1))
        node.partition_host.flushes = False
        waiting = asyncio.ensure_future(node.groups.commit(commit_of(2)))
        await asyncio.sleep(0.1)
        node.publish(leader=2)
        with pytest.raises(NotCoordinator):
            await waiting
        with pytest.raises(NotCoordinator):
            await node.groups.read("g")
        assert await node.groups.find("g") == 2
        assert await node.groups.read_all() == []
        node.partition_host.flushes = True
        node.publish(leader=1)
        await asyncio.sleep(0.2)
        assert (await node.groups.read("g")).offsets["t", 0].offset in (1, 2)

    run_scenario(scenario)


def test_a_replica_that_fails_ends_the_shard_before_the_metadata_does() -> None:
    """A disk that refuses a write makes the commit fail with NOT_COORDINATOR, not vanish."""

    async def scenario(node: GroupBroker) -> None:
        await node.groups.commit(commit_of(1))
        node.disk.fail("write")
        with pytest.raises(NotCoordinator):
            await node.groups.commit(commit_of(2))
        await asyncio.sleep(0.1)
        with pytest.raises(NotCoordinator):
            await node.groups.read("g")

    run_scenario(scenario)


def test_without_the_topic_there_is_no_coordinator() -> None:
    """NOT_COORDINATOR before the offsets topic exists; COORDINATOR_NOT_AVAILABLE for a partition without leader."""

    async def scenario(node: GroupBroker) -> None:
        with pytest.raises(NotCoordinator):
            await node.groups.read("g")
        node.publish(leader=-1)
        with pytest.raises(CoordinatorNotAvailable):
            await node.groups.find("g")

    run_scenario(scenario, with_topic=False)


def test_a_silent_member_is_taken_out_and_a_heartbeating_one_stays() -> None:
    """Sessions of 6 s are looked at twice a second."""

    async def scenario(node: GroupBroker) -> None:
        member = MemberRef(await join(node))
        for _ in range(5):
            await asyncio.sleep(4)
            await node.groups.ask(GroupCoordinator.heartbeat, Heartbeat("g", member, 1))
        await asyncio.sleep(7)
        with pytest.raises(UnknownMemberId):
            await node.groups.ask(GroupCoordinator.heartbeat, Heartbeat("g", member, 1))
        assert (await node.groups.read("g")).state == EMPTY

    run_scenario(scenario)


def test_a_paused_broker_does_not_throw_its_members_out() -> None:
    """After a SIGSTOP of a minute the member has what was left of its session."""

    async def program(loop: SimLoop) -> None:
        host = loop.host("b1")
        node: list[GroupBroker] = []

        async def life() -> str:
            node.append(GroupBroker(host))
            await asyncio.sleep(0.1)
            return await join(node[0])

        member_id = await host.start(life())
        loop.pause(host)
        await asyncio.sleep(60)
        loop.resume(host)
        await asyncio.sleep(1)

        async def heartbeat() -> None:
            await node[0].groups.ask(GroupCoordinator.heartbeat, Heartbeat("g", MemberRef(member_id), 1))

        await host.start(heartbeat())
        group = await host.start(node[0].groups.read("g"))
        assert list(group.membership.members) == [member_id]

    simulate(program)


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    """Also if a topic with the same name was created since."""

    async def scenario(node: GroupBroker) -> None:
        other = TopicState("u", TOPIC.topic_id, (PartitionState((1,), (1,), 1),))
        node.publish(topics={"t": TOPIC, "u": other})
        await node.groups.commit(commit_of(1))
        await node.groups.commit(commit_of(2, topic="u"))
        node.publish(topics={"u": other})
        assert list((await node.groups.read("g")).offsets) == [("u", 0)]

    run_scenario(scenario)


async def test_a_shard_that_fails_says_so_rather_than_loading_for_ever() -> None:
    """Every failure while groups are read back becomes NOT_COORDINATOR, which clients act upon."""

    def broken(_index: int) -> Any:
        raise ZeroDivisionError

    shard = GroupCoordinatorShard(0, 0, env=Env(), find=broken, new_coordinator=broken, is_gone=broken)
    shard.start()
    await asyncio.sleep(0)
    assert shard.has_failed
    shard.end(NotCoordinator())


def test_very_many_groups_are_taken_over_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand in one partition take a tenth of a second; every request waits until the last group is read."""
    loaded: list[tuple[int, int]] = []
    load = GroupCoordinator.load

    def noting(coordinator: GroupCoordinator, groups: list[Group], *, now: float) -> None:
        loaded.append((id(coordinator), len(groups)))
        load(coordinator, groups, now=now)

    async def scenario(node: GroupBroker) -> None:
        for number in range(500):
            await node.groups.commit(commit_of(number, f"g{number}"))
        monkeypatch.setattr(GroupCoordinator, "load", noting)
        node.publish(leader=2)
        node.publish(leader=1)
        await asyncio.sleep(1)
        assert len(await node.groups.read_all()) == 500

    run_scenario(scenario)
    assert sum(count for _, count in loaded) == 500
    assert max(count for _, count in loaded) <= PARTS_AT_ONCE < 500 / len({who for who, _ in loaded})


def test_all_partitions_together_are_swept_in_slices() -> None:
    """A broker that leads fifty partitions looks at no more groups in one tick than with one partition."""

    async def scenario(node: GroupBroker) -> None:
        for number in range(GROUPS_PER_SWEEP + 100):
            await node.groups.commit(commit_of(1, f"g{number}"))
        counts = [len(await node.groups.read_all())]
        while counts[-1]:
            await asyncio.sleep(TICK_S / 2)
            counts.append(len(await node.groups.read_all()))
        swept = [before - after for before, after in pairwise(counts) if before != after]
        assert swept == [GROUPS_PER_SWEEP, 100]

    run_scenario(scenario, offsets_retention_check_interval_ms=60_000)


def test_too_many_pending_commits_are_coordinator_not_available() -> None:
    """REQUEST_TIMED_OUT is fatal to a consumer that beats; COORDINATOR_NOT_AVAILABLE is not."""

    async def scenario(node: GroupBroker) -> None:
        member = MemberRef(await join(node))
        node.partition_host.flushes = False
        commit = CommitOffsets("g", member, 1, commit_of(1).commits)
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(node.groups.commit(commit))]
        await asyncio.sleep(0)
        for _ in range(MAX_PARKED):
            waiting.append(node.groups.ask(GroupCoordinator.heartbeat, Heartbeat("g", member, 1)))
        await asyncio.sleep(0.01)
        assert [each.done() for each in (waiting[-2], waiting[-1])] == [False, True]
        assert isinstance(waiting[-1].exception(), CoordinatorNotAvailable)
        await asyncio.gather(*waiting, return_exceptions=True)

    run_scenario(scenario)


def test_partitions_gained_at_once_are_read_back_one_slice_per_turn() -> None:
    """Twenty of them took a fifth of a second of the loop in one go."""

    async def scenario(node: GroupBroker) -> None:
        for number in range(40):
            await node.groups.commit(commit_of(1, f"g{number}"))
        fed: list[int] = []
        turn = 0
        feeding = GroupReplay.feed_stepwise

        def count(replay: GroupReplay, batches: Buffer) -> Iterator[None]:
            fed.append(turn)
            return feeding(replay, batches)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GroupReplay, "feed_stepwise", count)
            node.publish(leader=2)
            node.publish(leader=1)
            while len(fed) < PARTITIONS:
                turn += 1
                await asyncio.sleep(0)
        assert len(set(fed)) == len(fed)

    run_scenario(scenario)


def test_a_batch_of_very_many_offsets_is_read_back_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of eighteen thousand took a seventh of a second of each later coordinator's loop."""
    monkeypatch.setattr(broker_turns, "PIECES_AT_ONCE", 5)
    noted: Counter[int] = Counter()
    turn, plain = 0, GroupReplay._note

    def note(replay: GroupReplay, *record: Any) -> None:
        noted[turn] += 1
        plain(replay, *record)

    monkeypatch.setattr(GroupReplay, "_note", note)

    async def scenario(node: GroupBroker) -> None:
        nonlocal turn
        (one,) = commit_of(1).commits
        many = tuple(msgspec.structs.replace(one, partition=number) for number in range(40))
        await node.groups.commit(msgspec.structs.replace(commit_of(1), commits=many))
        node.publish(leader=2)
        node.publish(leader=1)
        while noted.total() < len(many):
            turn += 1
            await asyncio.sleep(0)
        assert max(noted.values()) <= 5
        await asyncio.sleep(0.1)
        assert len((await node.groups.read("g")).offsets) == len(many)

    run_scenario(scenario)


def test_a_topic_deleted_while_offsets_are_read_back_takes_them_along() -> None:
    """A new topic with that name would otherwise be read from the old topic's offset: records would be skipped."""

    async def scenario(node: GroupBroker) -> None:
        await node.groups.commit(commit_of(1))
        node.partition_host.flushes = False
        with pytest.raises(CoordinatorNotAvailable):
            await node.groups.commit(commit_of(2))
        node.publish(leader=1)
        node.publish(topics={})
        with pytest.raises(CoordinatorLoadInProgress):
            await node.groups.read("g")
        node.partition_host.flushes = True
        for partition in node.replicas.partitions.values():
            node.partition_host.flush(partition)
        await asyncio.sleep(0.1)
        assert (await node.groups.read("g")).offsets == {}

    run_scenario(scenario)


def test_the_offsets_topic_stays_small_under_commits_and_is_read_back_with_its_holes() -> None:
    """Thousands of commits of a few groups: the last commit of each is kept, whichever broker coordinates next."""

    async def scenario(node: GroupBroker) -> None:
        config = TopicConfig(cleanup_policy=("compact",), segment_bytes=4_000, delete_retention_ms=0)
        for partition in node.replicas.partitions.values():
            partition.log.config = config
        sizes = []
        for offset in range(1, 1_501):
            assert await node.groups.commit(commit_of(offset, group_id=f"g{offset % 5}")) == (0,)
            if offset % 100 == 0:
                await node.groups.ask(GroupCoordinator.delete, DeleteGroup(f"g{(offset - 1) % 5}"))
                sizes.append(max(_cleaned(each) for each in node.replicas.partitions.values()))
        assert max(sizes) < 12_000
        assert sum(each.log_end_offset for each in node.replicas.partitions.values()) >= 1_500
        node.disk.cold_read_rate = 1.0  # it is read away from the loop
        node.publish(leader=1)
        await asyncio.sleep(0.5)
        found = {each.group_id: each.offsets["t", 0].offset for each in await node.groups.read_all()}
        assert found == {"g0": 1_500, "g1": 1_496, "g2": 1_497, "g3": 1_498}

    run_scenario(scenario)


def _cleaned(partition: Partition) -> int:
    """Clean a partition's log as often as that brings anything; returns the bytes that it has left."""
    flush_and_checkpoint(partition.log)
    while clean(partition.log) is not None:
        pass
    return partition.log.size_bytes
