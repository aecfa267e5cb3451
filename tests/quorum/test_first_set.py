"""The first set of voters: which directories it names while a disk is replaced."""

from __future__ import annotations

from uuid import UUID

from raftlog.base.errors import (
    RequestTimedOut,
)
from raftlog.quorum.voter_requests import VoterRequests
from raftlog_chaos.scenarios.voters_change import record_directory
from tests.quorum.changing import Changing, run


def test_the_first_set_names_a_directory_that_is_recorded_just_before() -> None:
    """The set waits behind the record of a replaced disk: the former directory would shut the new disk out."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        leader = await world.cluster.leader()
        await world.cluster.commit(b"begin", 1, 2, 3)

        async def record_meanwhile(changes: VoterRequests, until: float) -> None:
            world.cluster._append(leader, record_directory(leader % 3 + 1, UUID(int=99)))
            await changes.make_dynamic(world.cluster.voters, until)

        assert await world.ask(record_meanwhile) is None
        record = world.cluster.nodes[leader].driver.voters.current
        assert record is not None and UUID(int=99) in record.directories().values()

    run(test)


def test_the_first_set_waits_for_a_replaced_disk() -> None:
    """The leader has seen the new directory, and records it only once it has missed the former long enough."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        leader = await world.cluster.leader()
        await world.cluster.commit(b"begin", 1, 2, 3)
        node = next(each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(node)
        world.cluster.wipe(node)
        world.law.forget(node)
        world.directories[node] = UUID(int=99)
        world.cluster.boot(node)
        await world.cluster.commit(b"again", node)
        quorum = world.cluster.nodes[leader]
        refused = await world.make_dynamic(seconds=0.5)
        assert isinstance(refused, RequestTimedOut) and f"voters [{node}] are not recorded" in str(refused)
        await world.cluster.until(lambda: bool(quorum.unrecorded_voters()))
        world.cluster.append(record_directory(node, UUID(int=99)))
        assert await world.make_dynamic() is None
        record = quorum.driver.voters.current
        assert record is not None and record.directories()[node] == UUID(int=99)

    run(test)


def test_a_voter_that_starts_with_a_shorter_list_leads_no_second_cluster() -> None:
    """The list says that node 1 votes alone. It votes again once the list has all recorded voters."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        await world.cluster.commit(b"begin", 1, 2, 3)
        listed = world.cluster.voters
        world.cluster.crash(1)
        world.cluster.voters = {1: listed[1]}
        world.cluster.boot(1)
        await world.cluster.commit(b"without", 2, 3)
        await world.pass_time(5.0)
        quorum = world.cluster.nodes[1]
        assert not quorum.leading and "lacks [2, 3]" in str(quorum.why_no_leader())
        world.cluster.crash(1)
        world.cluster.voters = listed
        world.cluster.boot(1)
        await world.cluster.commit(b"again", 1, 2, 3)

    run(test)


def test_a_shorter_list_has_no_effect_once_the_log_holds_the_voters() -> None:
    """The list of the config only says where to begin."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        assert await world.make_dynamic() is None
        await world.cluster.commit(b"dynamic", 1, 2, 3)
        world.cluster.crash(1)
        world.cluster.voters = {1: world.addresses[1]}
        world.cluster.boot(1)
        await world.cluster.commit(b"again", 1, 2, 3)
        assert sorted(world.cluster.nodes[1].voters) == [1, 2, 3]

    run(test)


def test_voters_with_a_longer_list_lead_no_second_cluster() -> None:
    """Nodes 3 to 5 are a majority of the longer list, nodes 1 and 2 of the former."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        await world.cluster.commit(b"begin", 1, 2, 3)
        world.cluster.crash(3)
        hosts = world.cluster.hosts
        for near in (1, 2):
            for far in (3, 4, 5):
                world.loop.cut(hosts[near], hosts[far])
        world.cluster.voters = dict(world.addresses)
        world.cluster.boot(3, 4, 5)
        await world.cluster.commit(b"without", 1, 2)
        await world.pass_time(5.0)
        assert not any(world.cluster.nodes[each].leading for each in (3, 4, 5))
        assert "lists [4, 5]" in str(world.cluster.nodes[3].why_no_leader())

    run(test, nodes=5)


def test_a_longer_list_counts_once_all_voters_have_it() -> None:
    """All must vote for the first leader. Once it has recorded the new voters, a majority elects."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        await world.cluster.commit(b"begin", 1, 2, 3)
        world.cluster.crash(1, 2, 3)
        world.cluster.voters = dict(world.addresses)
        world.cluster.boot(1, 2, 3, 4)
        await world.pass_time(5.0)
        assert world.cluster.leading() is None, "node 5 is down"
        world.cluster.boot(5)
        await world.cluster.commit(b"all", 1, 2, 3, 4, 5)
        leader = await world.cluster.leader()
        found = world.cluster.nodes[leader].unrecorded_voters()
        assert found.keys() == {4, 5}
        for node, directory_id in found.items():
            world.cluster.append(record_directory(node, directory_id))
        await world.cluster.commit(b"recorded", 1, 2, 3, 4, 5)
        world.cluster.crash(leader, leader % 5 + 1)
        await world.cluster.commit(b"by three", *world.cluster.nodes)

    run(test, nodes=5)


def test_the_first_directories_are_recorded_all_at_once() -> None:
    """Where a cluster begins to record them: a voter that follows later would look like an added voter."""

    async def test(world: Changing) -> None:
        world.initial.clear()
        world.cluster.boot(1, 2, 3)
        await world.cluster.commit(b"begin", 1, 2, 3)
        leader = await world.cluster.leader()
        quorum, node = world.cluster.nodes[leader], leader % 3 + 1
        assert quorum.unrecorded_voters().keys() == {1, 2, 3}
        world.cluster.crash(node)
        await world.cluster.until(lambda: not quorum.linked(node))
        assert quorum.unrecorded_voters() == {}

    run(test)


def test_another_change_waits_for_the_first_set() -> None:
    """As long as that waits for a replaced disk: kraft.version is 1, although the log holds no set yet."""

    async def test(world: Changing) -> None:
        world.cluster.boot()
        leader = await world.cluster.leader()
        await world.cluster.commit(b"begin", 1, 2, 3)
        node = next(each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(node)
        world.cluster.wipe(node)
        world.law.forget(node)
        world.directories[node] = UUID(int=99)
        world.cluster.boot(node)
        await world.cluster.commit(b"again", node)
        quorum, host = world.cluster.nodes[leader], world.cluster.hosts[leader]
        until = world.loop.time() + 10
        first = host.start(quorum.voter_requests.make_dynamic(world.cluster.voters, until))
        await world.pass_time(0.1)
        added = host.start(quorum.voter_requests.add(world.voter(4), until))
        await world.pass_time(0.1)
        assert not first.done() and not added.done()
        await world.cluster.until(lambda: bool(quorum.unrecorded_voters()))
        world.cluster.append(record_directory(node, UUID(int=99)))
        await world.cluster.until(added.done)
        assert first.done() and added.exception() is None and quorum.voters.keys() == {1, 2, 3, 4}

    run(test)
