"""Voters that are added and removed while the quorum runs: answers, and a quorum that counts by the new set."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from raftlog.base.disk import make_durable_folder
from raftlog.base.errors import (
    DuplicateVoter,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from raftlog.base.types import NO_DIRECTORY
from raftlog.metadata.controller_api import AddVoter, RemoveVoter, UpdateVoter
from raftlog.quorum.voter_requests import VoterRequests
from raftlog.quorum.voters_record import Voter
from raftlog_chaos.scenarios.quorum_cluster import DIRECTORY, OBSERVER
from tests.quorum.changing import Changing, run


def test_a_node_becomes_a_voter_and_counts() -> None:
    """Four voters need three: with one voter down, the new voter commits."""

    async def test(world: Changing) -> None:
        await world.begin()
        assert await world.add(world.voter(4)) is None
        leader = await world.cluster.leader()
        down = next(each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(down)
        await world.cluster.commit(b"with three", *(each for each in (1, 2, 3, 4) if each != down))
        assert world.cluster.nodes[leader].voters.keys() == {1, 2, 3, 4}

    run(test)


def test_a_leader_shows_how_far_an_observer_with_a_log_is() -> None:
    """Before it is added, and after it is removed: DescribeQuorum names its position and when it answered."""

    async def test(world: Changing) -> None:
        def position() -> tuple[int, bool]:
            quorum = world.cluster.nodes[leader].describe()
            (found,) = [each for each in quorum.observers if each.replica_id == 4]
            return found.log_end_offset, found.last_fetch_ms > 0

        await world.begin()
        leader = await world.cluster.leader()
        ends = world.cluster.nodes[leader].driver.journal
        await world.cluster.until(lambda: position() == (ends.last_index, True))
        assert await world.add(world.voter(4)) is None
        assert await world.remove(4) is None
        await world.cluster.commit(b"more", 1, 2, 3)
        await world.cluster.until(lambda: position() == (ends.last_index, True))

    run(test)


def test_a_leader_removes_itself_and_another_leads() -> None:
    """It leads until that is committed, and then hands over; it follows on as an observer."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        assert await world.remove(leader) is None
        others = [each for each in (1, 2, 3) if each != leader]
        await world.cluster.until(lambda: world.cluster.leading() in others)
        await world.cluster.commit(b"after", 1, 2, 3, 4)
        described = world.cluster.nodes[world.cluster.leading() or 0].describe()
        assert [each.replica_id for each in described.voters] == others
        assert {each.replica_id for each in described.observers} == {leader, 4}

    run(test)


def test_an_observer_shows_how_far_it_is() -> None:
    """So that one sees when it can become a voter."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = world.cluster.nodes[await world.cluster.leader()]
        await world.cluster.until(lambda: leader.describe().observers[0].last_caught_up_ms > 0)
        (observer,) = leader.describe().observers
        assert (observer.replica_id, observer.log_end_offset) == (4, leader.commit_index)

    run(test)


def test_a_removed_voter_deposes_no_leader() -> None:
    """Although it was down when it was removed, and begins with its former set."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        removed = next(each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        world.cluster.crash(removed)
        assert await world.remove(removed) is None
        term = world.cluster.nodes[leader].term
        world.cluster.boot(removed)
        await world.cluster.commit(b"after", removed)
        await world.pass_time(5)
        assert world.cluster.leading() == leader and world.cluster.nodes[leader].term == term

    run(test)


def test_a_voter_that_was_away_finds_voters_that_all_changed_meanwhile() -> None:
    """Its set names voters that are gone, and no present voter knows it: it has its config."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        world.cluster.crash(1)
        await world.cluster.leader()
        assert await world.add(world.voter(4)) is None
        for node in (1, 2, 3):
            assert await world.remove(node) is None
            await world.cluster.leader(among=[4] if node == 3 else None)
        world.cluster.crash(2, 3)
        await world.cluster.commit(b"alone", 4)
        world.cluster.configs[1] = {4: world.addresses[4]}
        world.cluster.boot(1)
        await world.cluster.commit(b"after", 1, 4)

    run(test)


def test_no_voter_is_removed_if_the_remaining_voters_lack_a_majority() -> None:
    """One of three is down: without another, two of two would be needed, and the leader could not lead on."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        down, up = (each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        world.cluster.crash(down)
        await world.cluster.until(lambda: not world.cluster.nodes[leader].linked(down))
        refused = await world.remove(up, seconds=3.0)
        assert isinstance(refused, RequestTimedOut) and f"only [{leader}] of [" in str(refused), refused
        await world.cluster.commit(b"after", leader, up)
        assert await world.remove(down) is None

    run(test)


def test_one_voter_becomes_three_and_one_again() -> None:
    """And the last voter stays."""

    async def test(world: Changing) -> None:
        await world.begin()
        for node in (2, 3):
            assert await world.add(world.voter(node)) is None
        for node in (1, 3):
            await world.cluster.settle(b"before %d" % node)
            assert await world.remove(node) is None
            await world.cluster.leader()
        await world.cluster.settle(b"end")
        assert world.cluster.leading() == 2
        refused = await world.remove(2)
        assert isinstance(refused, InvalidRequest) and "only voter" in str(refused)

    run(test, voters=(1,))


def test_an_observer_follows_voters_that_it_was_not_configured_with() -> None:
    """The set comes with the committed entries."""

    async def test(world: Changing) -> None:
        await world.begin()
        world.cluster.boot_observer()
        assert await world.add(world.voter(4)) is None
        for node in (1, 2, 3):
            await world.cluster.settle(b"before %d" % node)
            assert await world.remove(node) is None
            await world.cluster.leader(among=[4] if node == 3 else None)
        world.cluster.crash(1, 2, 3)
        await world.cluster.commit(b"alone", 4, OBSERVER)

    run(test)


def test_an_observer_that_was_away_finds_the_present_voters() -> None:
    """All voters of its config were replaced meanwhile: it knows one of the present voters from before."""

    async def test(world: Changing) -> None:
        await world.begin()
        world.cluster.boot_observer()
        assert await world.add(world.voter(3)) is None
        await world.cluster.commit(b"three", 3, OBSERVER)
        await world.pass_time(4)
        world.cluster.crash_observer()
        assert await world.add(world.voter(4)) is None
        for node in (1, 2):
            await world.cluster.settle(b"before %d" % node)
            assert await world.remove(node) is None
            await world.cluster.leader(among=[3, 4])
        world.cluster.crash(1, 2)
        world.cluster.boot_observer()
        await world.cluster.commit(b"back", 3, 4, OBSERVER)
        assert world.cluster.observers[OBSERVER].voters.keys() == {3, 4}

    run(test, voters=(1, 2))


def test_old_sets_in_the_log_lead_no_observer_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads them from a voter that they do not name, entry by entry, and their own voters are gone."""
    monkeypatch.setattr("raftlog.quorum.observer_feed.MAX_BATCHES_PER_FRAME", 1)

    async def test(world: Changing) -> None:
        await world.begin()
        assert await world.add(world.voter(4)) is None
        for node in (1, 2, 3):
            await world.cluster.settle(b"before %d" % node)
            assert await world.remove(node) is None
            await world.cluster.leader(among=[4] if node == 3 else None)
        world.cluster.crash(1, 2, 3)
        world.cluster.configs[OBSERVER] = {4: world.addresses[4]}
        world.cluster.boot_observer()
        await world.cluster.commit(b"alone", 4, OBSERVER)
        assert world.cluster.observers[OBSERVER].voters.keys() == {4}

    run(test)


def test_changes_are_refused_with_kafkas_errors() -> None:
    """In the order of AddVoterHandler and RemoveVoterHandler."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        follower = next(each for each in (1, 2, 3) if each != leader)
        refusals = [
            (await world.add(world.voter(4), node=follower), NotLeaderOrFollower, "not the leader"),
            (await world.add(world.voter(4, NO_DIRECTORY.int)), InvalidRequest, "no valid voter"),
            (await world.add(world.voter(follower, 99)), DuplicateVoter, "is a voter already"),
            (await world.add(world.voter(4, 99)), InvalidVoterKey, "has directory"),
            (await world.remove(4), VoterNotFound, "is no voter"),
            (await world.remove(follower, 99), VoterNotFound, "has directory"),
        ]
        for error, kind, words in refusals:
            assert isinstance(error, kind) and words in str(error), error

    run(test)


@pytest.mark.parametrize("host", ["four..example", "a" * 64, "0.0.0.0", "", "four\x00", "né"])
def test_an_address_that_no_node_can_dial_is_refused(host: str) -> None:
    """A lookup of such a name raises no OSError: in the log, it would end every voter for good."""

    async def test(world: Changing) -> None:
        await world.begin()
        refused = await world.add(msgspec.structs.replace(world.voter(4), host=host))
        assert isinstance(refused, InvalidRequest) and "cannot connect" in str(refused)

    run(test)


def test_a_voter_is_not_added_with_the_address_of_another_node() -> None:
    """It may link itself to all others, but no broker could follow it as a leader (AddVoterHandler asks it there)."""

    async def test(world: Changing) -> None:
        await world.begin()
        wrong = msgspec.structs.replace(world.voter(4), host=world.addresses[3][0])
        refused = await world.add(wrong, seconds=2.0)
        assert isinstance(refused, RequestTimedOut) and "it is node 3" in str(refused), refused
        closed = msgspec.structs.replace(world.voter(4), port=9)
        refused = await world.add(closed, seconds=2.0)
        assert isinstance(refused, RequestTimedOut) and "cannot be reached at n4:9" in str(refused), refused
        assert await world.add(world.voter(4)) is None

    run(test)


def test_a_voter_that_another_leader_added_meanwhile_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead was lost and won again while the node caught up, between two looks."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()

        async def added_meanwhile(changes: VoterRequests, voter: Voter, request: object) -> None:
            record = changes._driver.voters.current
            assert record is not None
            extended = record.with_voter(voter)
            await changes._driver.change_voters(lambda: extended).committed

        monkeypatch.setattr(VoterRequests, "_until_caught_up", added_meanwhile)
        assert isinstance(await world.add(world.voter(4)), DuplicateVoter)
        record = world.cluster.nodes[leader].driver.voters.current
        assert record is not None and record.ids == [1, 2, 3, 4]

    run(test)


def test_a_removal_keeps_voters_that_another_leader_added_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead was lost and won again while the leader waited for a majority, between two looks."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()

        async def added_meanwhile(changes: VoterRequests, remaining: object, request: object) -> None:
            record = changes._driver.voters.current
            assert record is not None
            extended = record.with_voter(world.voter(4))
            await changes._driver.change_voters(lambda: extended).committed

        monkeypatch.setattr(VoterRequests, "_until_majority", added_meanwhile)
        gone = next(each for each in (1, 2, 3) if each != leader)
        assert await world.remove(gone) is None
        record = world.cluster.nodes[leader].driver.voters.current
        assert record is not None and record.ids == sorted({1, 2, 3, 4} - {gone})

    run(test)


def test_a_removal_needs_a_majority_of_the_voters_that_remain_after_other_changes() -> None:
    """A voter that another request removed meanwhile may be linked again, and has no vote in the next set."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        quorum = world.cluster.nodes[leader]
        down, up = (each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(down)
        await world.cluster.until(lambda: not quorum.linked(down))
        until = world.loop.time() + 30
        waiting = world.cluster.hosts[leader].start(quorum.voter_requests.remove(up, UUID(int=up), until))
        await world.pass_time(0.1)
        assert not waiting.done()
        assert await world.remove(down) is None
        await world.pass_time(0.1)
        assert waiting.done() and quorum.voters.keys() == {leader}

    run(test)


def test_a_change_needs_kraft_version_1() -> None:
    """Static voters stay static."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        await world.cluster.leader()
        refused = await world.remove(2)
        assert isinstance(refused, UnsupportedVersion) and "kraft.version" in str(refused)

    run(test)


def test_a_refusal_says_whether_all_is_as_requested() -> None:
    """A retry then succeeds: an id with another directory is neither the voter to add, nor gone."""

    async def test(world: Changing) -> None:
        await world.begin()
        quorum = world.cluster.nodes[await world.cluster.leader()]
        here, other = UUID(int=2), UUID(int=99)
        host, port = world.addresses[2]
        assert quorum.is_as_requested(AddVoter(2, here, host, port))
        assert not quorum.is_as_requested(AddVoter(2, other, host, port))
        assert quorum.is_as_requested(RemoveVoter(4, other))
        assert not quorum.is_as_requested(RemoveVoter(2, other))

    run(test)


def test_a_node_that_cannot_be_reached_is_no_voter() -> None:
    """The request waits for it until its deadline, and the leader shows that meanwhile."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        assert await world.make_dynamic() is None
        quorum = world.cluster.nodes[await world.cluster.leader()]
        asked = asyncio.ensure_future(world.add(world.voter(4), seconds=2.0))
        await world.cluster.until(lambda: quorum.describe().change is not None)
        change = quorum.describe().change
        assert change is not None and (change.voter_id, change.adds) == (4, True)
        assert "node 4 cannot be reached" in change.waits_for
        refused = await asked
        assert isinstance(refused, RequestTimedOut) and "cannot be reached" in str(refused)
        assert quorum.voters.keys() == {1, 2, 3} and quorum.describe().change is None

    run(test)


def test_the_quorum_says_who_changed_the_voters_and_when() -> None:
    """Each node finds it in its log, also after a start from a snapshot of the set."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        quorum = world.cluster.nodes[leader]
        for request in (
            AddVoter(4, UUID(int=4), *world.addresses[4], by="User:ann"),
            RemoveVoter(4, UUID(int=4), by="User:bob" * 99),
        ):
            await world.ask(lambda changes, until, request=request: changes.carry_out(request))  # type: ignore[misc]
        await world.cluster.settle(b"end")
        found = quorum.describe().changes
        assert [(each.kind, each.voter_id, each.by[:8]) for each in found] == [
            ("dynamic", -1, ""),
            ("added", 4, "User:ann"),
            ("removed", 4, "User:bob"),
        ]
        assert found[1].directory_id == UUID(int=4) and len(found[2].by) == 255
        assert 0 < found[0].at_ms <= found[1].at_ms < found[2].at_ms
        world.cluster.crash(4)
        world.cluster.boot(4)
        await world.cluster.commit(b"again", 4)
        assert world.cluster.nodes[4].describe().changes == found

    run(test)


def test_a_second_change_waits_for_the_first() -> None:
    """As long as that is not committed; it is refused at its deadline."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        hosts, voter = world.cluster.hosts, world.voter(4)
        changes = world.cluster.nodes[leader].voter_requests
        await world.cluster.settle(b"before")
        for each in (1, 2, 3):
            if each != leader:
                world.loop.clog(hosts[each], hosts[leader])
        first = hosts[leader].start(changes.add(voter, world.loop.time() + 20, until_committed=False))
        await world.cluster.until(first.done)
        refused = await world.remove(4, seconds=0.1)
        assert isinstance(refused, RequestTimedOut) and "another change" in str(refused)
        world.loop.heal()
        await world.cluster.settle(b"after")
        assert world.cluster.nodes[leader].voters.keys() == {1, 2, 3, 4}

    run(test)


def test_a_change_waits_for_no_node_that_cannot_be_reached() -> None:
    """Others go before it, and the longest wait is shown."""

    async def test(world: Changing) -> None:
        world.cluster.boot(1, 2, 3)
        assert await world.make_dynamic() is None
        leader = await world.cluster.leader()
        quorum = world.cluster.nodes[leader]
        voter = world.voter(4)
        first = world.cluster.hosts[leader].start(quorum.voter_requests.add(voter, world.loop.time() + 20))
        await world.cluster.until(lambda: quorum.describe().change is not None)
        gone = next(each for each in (1, 2, 3) if each != leader)
        assert await world.remove(gone, seconds=1.0) is None
        change = quorum.describe().change
        assert (
            change is not None and change.voter_id == 4 and "cannot be reached at n4:9093" in change.waits_for
        )
        world.cluster.boot(4)
        await world.cluster.until(first.done)
        assert quorum.voters.keys() == {1, 2, 3, 4} - {gone}

    run(test)


def test_the_answer_comes_once_appended_or_at_the_commit() -> None:
    """As AckWhenCommitted says (KIP-1186); a move is answered once appended, as in Kafka's UpdateVoterHandler."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        hosts, quorum = world.cluster.hosts, world.cluster.nodes[leader]
        moved = next(each for each in (1, 2, 3) if each != leader)
        for each in (1, 2, 3):
            if each != leader:
                world.loop.clog(hosts[each], hosts[leader])
        host, port = world.addresses[4]
        committed = AddVoter(4, UUID(int=4), host, port, 900)
        refused = await world.ask(lambda changes, _until: changes.carry_out(committed))
        assert isinstance(refused, RequestTimedOut) and "not committed" in str(refused)
        world.loop.heal()
        assert await world.add(world.voter(4)) is not None, "it is a voter already"
        assert quorum.voters.keys() == {1, 2, 3, 4}
        world.cluster.crash(moved)
        world.cluster.ports[moved] = 9999
        world.cluster.boot(moved)
        await world.cluster.settle(b"back")
        for each in (1, 2, 3, 4):
            if each not in (leader, moved):
                world.loop.clog(hosts[each], hosts[leader])
        there = UpdateVoter(moved, UUID(int=moved), world.addresses[moved][0], 9999, 900)
        asked = asyncio.ensure_future(world.ask(lambda changes, _until: changes.carry_out(there)))
        assert await asked is None

    run(test)


@pytest.mark.parametrize("gone", [1, 2])
def test_two_voters_lose_one(gone: int) -> None:
    """Even the leader: the other may lack the set that removes it, and then waits for it."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        node = leader if gone == 1 else next(each for each in (1, 2) if each != leader)
        assert await world.remove(node) is None
        await world.cluster.settle(b"end")
        assert world.cluster.leading() not in (None, node)

    run(test, voters=(1, 2))


def test_a_leader_outside_of_the_set_does_not_count_itself() -> None:
    """The set of the other two needs both, and one of them does not hear from the leader (Raft thesis §4.2.2)."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        deaf = next(each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        world.loop.clog(world.cluster.hosts[leader], world.cluster.hosts[deaf])
        refused = await world.remove(leader, seconds=0.5)
        assert isinstance(refused, RequestTimedOut) and "not committed" in str(refused)
        world.loop.heal()
        await world.cluster.settle(b"after")

    run(test)


def test_a_leader_outside_of_the_set_does_not_count_itself_after_a_restart() -> None:
    """Its log has the set that removes it, uncommitted: it stands again, and the other two must both have the set."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        near, deaf = (each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        hosts = world.cluster.hosts
        for each in (near, deaf):
            world.loop.clog(hosts[leader], hosts[each])
        refused = await world.remove(leader, seconds=0.1)
        assert isinstance(refused, RequestTimedOut) and "not committed" in str(refused)
        world.cluster.crash(1, 2, 3)
        world.loop.heal()
        world.loop.cut(hosts[near], hosts[deaf])  # so that only the former leader has a majority
        world.cluster.on_new_leader = lambda node: world.loop.clog(hosts[node], hosts[deaf])
        world.cluster.boot(1, 2, 3)
        await world.cluster.until(
            lambda: leader in world.cluster.nodes and world.cluster.nodes[leader].started
        )
        core = world.cluster.nodes[leader].driver.core
        await world.cluster.until(lambda: core.is_leader)
        assert float("-inf") in core.response_times.values(), "the voter that never answers counts as heard"
        await world.cluster.until(lambda: core.match_index(near) >= core.journal.voters_index)
        await world.pass_time(0.2)
        assert core.commit_index < core.journal.voters_index
        world.cluster.on_new_leader = lambda _node: None
        world.loop.heal()
        await world.cluster.settle(b"after")

    run(test)


def test_a_voter_with_an_older_copy_comes_back_as_another_directory() -> None:
    """It may lack entries that it counted for: it is an observer until it is removed, and added again."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        older, other = (each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        world.cluster.crash(older)
        disk = world.cluster.hosts[older].disk
        with disk.undisturbed():
            copy = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.listdir(DIRECTORY)}
        world.cluster.boot(older)
        await world.cluster.settle(b"more")
        world.cluster.crash(older)
        world.cluster.wipe(older)
        with disk.undisturbed():
            make_durable_folder(disk, DIRECTORY)
            for name, content in copy.items():
                disk.write_file(f"{DIRECTORY}/{name}", content)
        world.law.forget(older)
        world.cluster.boot(older)
        await world.cluster.commit(b"again", older)
        found = world.cluster.nodes[older].driver
        assert not found.voters.is_voter and found.directory_id != UUID(int=older)
        world.directories[older] = found.directory_id
        assert await world.remove(older) is None
        again = msgspec.structs.replace(world.voter(older), directory=found.directory_id.bytes)
        assert await world.add(again) is None
        world.cluster.crash(other)
        await world.cluster.commit(b"with it", leader, older)

    run(test)
