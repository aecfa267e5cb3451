"""The quorum as a whole, in virtual time: elections, faults, snapshots, and what the state machine is told."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from raftlog.base.errors import InvalidRequest, NotController, RequestTimedOut
from raftlog.quorum import core, raft_links, wal
from raftlog.quorum.driver import MAX_UNCOMMITTED_BATCHES
from raftlog.quorum.pysyncobj_adapter import MessageSizes
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import DIRECTORY, QuorumCluster
from raftlog_chaos.simulator import SimLoop, hosts, simulate


def run_scenario(script: Callable[[QuorumCluster], Awaitable[Any]], voters: int = 3, **options: Any) -> Any:
    """Run a script in a new world with seeded chance; virtual seconds cost nothing."""

    async def program(loop: SimLoop) -> Any:
        world = QuorumCluster(loop, voters, **options)
        world.boot()
        result = await script(world)
        world.check()
        return result

    return simulate(program, seed=voters).result


async def seconds(world: QuorumCluster, waiting: Awaitable[Any]) -> float:
    started = world.loop.time()
    await waiting
    return world.loop.time() - started


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5, 7])
def test_any_number_of_voters_elects_and_commits(voters: int) -> None:
    """One, three, five and seven work; so do even numbers, which are warned about."""

    async def script(world: QuorumCluster) -> None:
        for number in range(20):
            await world.commit(b"batch %d" % number)
        await world.settle(b"end")

    run_scenario(script, voters)


def test_a_single_voter_leads_at_once() -> None:
    """There is nobody to wait for."""

    async def script(world: QuorumCluster) -> float:
        return await seconds(world, world.commit(b"first"))

    assert run_scenario(script, 1) < 0.05


def test_the_first_election_of_an_empty_log_waits_only_moments() -> None:
    """Three nodes are ready in a moment: 15 to 80 ms, not a whole election timeout."""

    async def script(world: QuorumCluster) -> float:
        return await seconds(world, world.leader())

    assert run_scenario(script) < 0.3


def test_a_dead_leader_is_replaced_in_moments() -> None:
    """kill -9: its connections break and its port refuses, so nobody waits for the election timeout."""

    async def script(world: QuorumCluster) -> list[float]:
        gaps = []
        for number in range(10):
            leader = await world.leader()
            world.crash(leader)
            gaps.append(await seconds(world, world.commit(b"after %d" % number, *world.nodes)))
            world.boot(leader)
            await world.settle(b"healed %d" % number)
        return gaps

    gaps = run_scenario(script)
    assert sorted(gaps)[5] < 0.25 and max(gaps) < 1.0, gaps


def test_voters_are_in_touch_with_the_leader_and_with_a_dead_one_no_more() -> None:
    """The link breaks with its process, long before anybody else leads: clients are not sent there meanwhile."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        await world.settle(b"linked")
        others = [node for node in world.nodes if node != leader]
        assert all(quorum.is_connected_to_leader(leader) for quorum in world.nodes.values())
        assert not any(world.nodes[node].is_connected_to_leader(node) for node in others)
        world.crash(leader)
        await world.until(
            lambda: not any(world.nodes[node].is_connected_to_leader(leader) for node in others), 0.01
        )
        assert await world.leader(among=others) in others

    run_scenario(script)


def test_a_leader_that_vanishes_without_a_word_is_replaced() -> None:
    """Power loss of a machine: no reset, no refusal; the election timeout decides."""

    async def script(world: QuorumCluster) -> float:
        leader = await world.leader()
        world.nodes.pop(leader)
        world.hosts[leader].crash(silent=True)
        return await seconds(world, world.commit(b"after", *world.nodes))

    assert run_scenario(script) < 2.0


@pytest.mark.parametrize("voters", [3, 5])
def test_a_minority_may_be_lost_and_a_lost_majority_stops_and_recovers(voters: int) -> None:
    """Without a majority nothing commits and the leader stands down; with it back, all goes on by itself."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        followers = [node for node in world.hosts if node != leader]
        minority, last = followers[: voters // 2], followers[voters // 2]
        world.crash(*minority)
        await world.commit(b"with a majority", *world.nodes)
        world.crash(last)
        world.append(b"without", leader)
        await world.until(lambda: not world.nodes[leader].leading, 1.5)
        await asyncio.sleep(5)
        assert not world.applied(b"without", leader) and world.nodes[leader].leader_id is None
        for node in (*minority, last):
            world.boot(node)
        await world.settle(b"whole again")

    run_scenario(script, voters)


def test_a_voter_that_was_cut_off_does_not_depose_the_leader() -> None:
    """Pre-vote (thesis §9.6): it asked in vain, so its term did not grow."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        term = world.nodes[leader].term
        outcast = next(node for node in world.hosts if node != leader)
        for other in world.hosts:
            if other != outcast:
                world.loop.cut(world.hosts[outcast], world.hosts[other])
        await asyncio.sleep(20)
        world.loop.heal()
        await world.commit(b"after")
        assert world.nodes[outcast].term == term and world.leading() == leader

    run_scenario(script)


def test_a_voter_that_lost_only_its_link_to_the_leader_does_not_depose_it() -> None:
    """A bridge topology (H23): the voter in the middle still hears the leader and says no."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        term = world.nodes[leader].term
        lonely = next(node for node in world.hosts if node != leader)
        world.loop.cut(world.hosts[leader], world.hosts[lonely])
        await asyncio.sleep(20)
        assert world.leading() == leader and world.nodes[leader].term == term
        world.loop.heal()
        await world.settle(b"after")

    run_scenario(script)


def test_a_paused_leader_is_replaced_and_learns_it() -> None:
    """SIGSTOP breaks no connection; on SIGCONT it hears of the higher term and its old proposals count for nothing."""

    async def script(world: QuorumCluster) -> None:
        old = await world.leader()
        world.hosts[old].pause()
        others = [node for node in world.hosts if node != old]
        world.append(b"too late", old)
        await world.commit(b"new reign", *others, seconds=3)
        world.hosts[old].resume()
        await world.until(lambda: not world.nodes[old].leading, 0.2)
        await world.settle(b"together")
        assert not world.applied(b"too late")

    run_scenario(script)


def test_a_paused_follower_does_not_depose_the_leader() -> None:
    """A stall of one's own is pushed behind: what the leader said lies unread in the socket."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        term = world.nodes[leader].term
        sleeper = next(node for node in world.hosts if node != leader)
        world.hosts[sleeper].pause()
        await asyncio.sleep(2.5)
        world.hosts[sleeper].resume()
        await world.settle(b"awake")
        assert world.nodes[leader].term == term

    run_scenario(script)


def test_power_loss_of_all_at_once_again_and_again_loses_nothing() -> None:
    """The whole cluster is killed 50 times with batches under way (#201 lost data in 1 of 20 such restarts)."""

    async def script(world: QuorumCluster) -> None:
        for number in range(50):
            await world.leader()
            for burst in range(5):
                world.append(b"%d.%d" % (number, burst))
            await asyncio.sleep(0.0005 * (number % 12))
            world.crash(*world.hosts)
            world.boot()
        await world.settle(b"end")

    run_scenario(script)


def test_a_voter_far_behind_gets_a_snapshot_and_restarts_from_it() -> None:
    """The log was cut below what it has; the installed snapshot and the log after it are durable."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        late = next(node for node in world.hosts if node != leader)
        world.crash(late)
        for number in range(60):
            await world.commit(b"batch %d" % number, *world.nodes)
        assert world.nodes[leader].driver.journal.first_index > 5
        world.boot(late)
        await world.settle(b"caught up")
        assert world.nodes[late].driver.journal.first_index > 5
        world.crash(*world.hosts)
        world.boot()
        await world.settle(b"restarted")

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_a_snapshot_of_many_chunks_arrives_whole() -> None:
    """Larger than one frame may be: chunks, each a heartbeat too."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        late = next(node for node in world.hosts if node != leader)
        world.crash(late)
        for number in range(12):
            await world.commit(b"%d " % number + b"x" * 400_000, *world.nodes)
        assert world.nodes[leader].driver.journal.first_index > 2
        world.boot(late)
        await world.settle(b"caught up")

    run_scenario(script, compaction=SnapshotPolicy(entries=10))


def test_an_old_leader_with_proposals_of_its_own_takes_a_snapshot() -> None:
    """Its uncommitted tail goes, its loss is told first, and no proposal of it comes back."""

    async def script(world: QuorumCluster) -> None:
        old = await world.leader()
        others = [node for node in world.hosts if node != old]
        for other in others:
            world.loop.cut(world.hosts[old], world.hosts[other])
        for number in range(30):
            world.append(b"lost %d" % number, old)
        for number in range(60):
            await world.commit(b"kept %d" % number, *others)
        world.loop.heal()
        await world.settle(b"end")
        assert not any(data.startswith(b"lost") for data in world.oracle.committed)

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_a_slow_disk_slows_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs of 20 to 60 ms run beside the loop; messages queue meanwhile."""
    monkeypatch.setattr(hosts, "OFFLOAD_S", (0.02, 0.06))

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        term = world.nodes[leader].term
        for number in range(30):
            await world.commit(b"batch %d" % number)
        assert world.nodes[leader].term == term

    run_scenario(script)


def test_a_voter_that_was_away_loads_a_snapshot_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it was put into the link at once: beyond what may wait there (64 MiB) the link was cut, each time.

    Here both are smaller.
    """
    monkeypatch.setattr(raft_links, "UNSENT_BYTES_LIMIT", 512 * 1024)
    monkeypatch.setattr(core, "ROUND_BYTES", 128 * 1024)

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        away = next(node for node in world.hosts if node != leader)
        others = [node for node in world.hosts if node != away]
        world.crash(away)
        for number in range(24):
            await world.commit(b"%d%s" % (number, b"." * 200_000), *others)
        world.boot(away)
        await world.until(lambda: away in world.nodes and world.nodes[away].started)
        await world.until(lambda: world.machines[away].data == world.oracle.committed)
        assert world.nodes[away].driver.journal.first_index > 1, "it was sent a snapshot"
        assert world.leading() == leader

    run_scenario(script, compaction=SnapshotPolicy(entries=20), sizes=MessageSizes(chunk_bytes=64 * 1024))


@pytest.mark.parametrize("leads", [True, False])
def test_a_voter_that_withdrew_votes_but_is_elected_no_more(leads: bool) -> None:
    """A node that was ending was elected and led for 43 s, while its broker let nobody in."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        ending = leader if leads else next(node for node in world.hosts if node != leader)
        await world.hosts[ending].start(world.nodes[ending].hand_over())
        for number in range(3):
            await world.settle(b"round %d" % number)
            leader = await world.leader()
            assert leader != ending
            other = next(node for node in world.hosts if node not in (leader, ending))
            world.crash(leader)
            await world.until(lambda: world.leading() == other, 5)  # by the vote of the ending one  # noqa: B023
            world.hosts[other].call(world.nodes[other].driver.transfer_leadership)
            await asyncio.sleep(1)
            assert world.leading() == other, "it was asked to lead, and declined"
            world.boot(leader)

    run_scenario(script)


def test_a_leader_that_nobody_can_follow_lays_the_lead_down() -> None:
    """Nobody has all it has, so nobody can be asked to take over: the others elect when they have caught up."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        for other in world.hosts:
            if other != leader:
                world.loop.clog(world.hosts[leader], world.hosts[other])
        world.append(b"only here", leader)
        await asyncio.sleep(0.05)
        await world.hosts[leader].start(world.nodes[leader].hand_over())
        assert not world.nodes[leader].leading
        world.loop.heal()
        assert await world.leader() != leader

    run_scenario(script)


def test_the_only_voter_leads_to_its_end() -> None:
    """There is nobody to hand over to, and its broker may need a controller to the last."""

    async def script(world: QuorumCluster) -> None:
        await world.commit(b"first")
        await world.hosts[1].start(world.nodes[1].hand_over())
        await world.commit(b"last")

    run_scenario(script, 1)


def test_a_full_disk_gives_the_lead_away_and_comes_back_by_itself() -> None:
    """ENOSPC on the leader: it falls silent, another leads, and it rejoins within seconds of space returning (H18)."""

    async def script(world: QuorumCluster) -> None:
        poor = await world.leader()
        world.hosts[poor].disk.fail("write", error=errno.ENOSPC)
        world.append(b"does not fit", poor)
        others = [node for node in world.hosts if node != poor]
        await world.until(lambda: not world.nodes[poor].leading, 1)
        with pytest.raises(NotController):
            world.nodes[poor].append(b"refused")
        await world.commit(b"elsewhere", *others, seconds=5)
        world.hosts[poor].disk.mend()
        await world.settle(b"space again")

    run_scenario(script)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["open", "write"])
def test_a_process_out_of_files_gives_the_lead_away_and_comes_back_by_itself(
    operation: str, error: int
) -> None:
    """A rewrite of the journal needs a descriptor: clients took the last one, which ended the voter for good."""

    async def script(world: QuorumCluster) -> None:
        poor = await world.leader()
        under = f"{DIRECTORY}/{wal.NAME}" if operation == "open" else DIRECTORY
        world.hosts[poor].disk.fail(operation, under=under, error=error)
        others = [node for node in world.hosts if node != poor]
        for number in range(60):
            world.append(b"%d" % number)
            await asyncio.sleep(0.01)
        await world.until(lambda: world.leading() in others, 5)
        await world.commit(b"elsewhere", *others, seconds=5)
        world.hosts[poor].disk.mend()
        await world.settle(b"files again")

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_broken_disk_stops_the_voter_for_good(operation: str) -> None:
    """EIO, or a failed sync, which must not be retried (H17): the voter is silent and the others go on."""

    async def script(world: QuorumCluster) -> None:
        broken = await world.leader()
        world.may_fail = True
        world.hosts[broken].disk.fail(operation)
        world.append(b"dies with it", broken)
        others = [node for node in world.hosts if node != broken]
        await world.until(lambda: not world.nodes[broken].leading, 1)
        assert isinstance(world.oracle.failures[0], OSError)
        await world.commit(b"elsewhere", *others, seconds=5)
        world.hosts[broken].disk.mend()
        await asyncio.sleep(3)
        assert not world.nodes[broken].leading and not world.applied(b"elsewhere", broken)

    run_scenario(script)


def test_a_state_machine_that_raises_stops_its_voter_only() -> None:
    """PySyncObj would try the entry again for ever, on every node."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        sick, well = [node for node in world.hosts if node != leader]
        world.machines[sick].broken = world.may_fail = True
        await world.commit(b"indigestible", leader, well)
        await world.until(lambda: world.oracle.failures)
        assert [str(each) for each in world.oracle.failures] == ["the state machine is broken"]
        await world.commit(b"next", leader, well)

    run_scenario(script)


def test_a_transfer_hands_over_without_an_election_timeout() -> None:
    """Controlled shutdown: the lead moves within milliseconds and nothing is lost."""

    async def script(world: QuorumCluster) -> float:
        await world.commit(b"before")
        old = await world.leader()
        started = world.loop.time()
        done = world.hosts[old].start(world.nodes[old].transfer_leadership())
        await world.until(lambda: world.leading() not in (None, old), 1)
        gap = world.loop.time() - started
        assert await done
        await world.settle(b"after")
        return gap

    assert run_scenario(script) < 0.1


def test_what_may_be_proposed_is_bounded() -> None:
    """Not leading, too large, too much uncommitted: refused with errors a client may retry, or must not."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        quorum, follower = (
            world.nodes[leader],
            world.nodes[next(node for node in world.hosts if node != leader)],
        )
        with pytest.raises(NotController):
            follower.append(b"x")
        with pytest.raises(InvalidRequest):
            quorum.append(b"x" * wal.MAX_COMMAND_BYTES)
        for node in world.hosts:
            if node != leader:
                world.loop.cut(world.hosts[leader], world.hosts[node])
        filled: list[int] = []

        def fill() -> None:
            try:
                for count in range(MAX_UNCOMMITTED_BATCHES + 1):
                    quorum.append(b"%d@%d.%d" % (count, leader, quorum.term))
            except RequestTimedOut:
                filled.append(count)

        world.hosts[leader].call(fill)
        await world.until(lambda: filled, 1)
        assert filled == [MAX_UNCOMMITTED_BATCHES]
        world.loop.heal()
        await world.settle(b"drained")
        assert world.nodes[world.leading() or 0].driver._waiting_bytes == 0

    run_scenario(script)


def test_all_that_was_committed_is_applied_before_one_leads() -> None:
    """The state machine of a new leader decides on everything (its no-op is applied first)."""

    async def script(world: QuorumCluster) -> None:
        for number in range(8):
            leader = await world.leader()
            for burst in range(10):
                world.append(b"%d.%d" % (number, burst))
            await world.until(partial(world.applied, b"%d.9" % number, leader))
            world.crash(leader)
            new = await world.leader(among=world.nodes)
            assert world.applied(b"%d.9" % number, new)
            world.boot(leader)

    run_scenario(script)


def test_the_quorum_describes_itself() -> None:
    """Leader, term, commit index, and each voter's position, as DescribeQuorum wants them (KIP-836)."""

    async def script(world: QuorumCluster) -> None:
        await world.commit(b"something")
        leader = await world.leader()
        await asyncio.sleep(0.3)
        described: list[Any] = []
        world.hosts[leader].call(lambda: described.append(world.nodes[leader].describe()))
        await world.until(lambda: described)
        about = described[0]
        assert (about.leader_id, about.leader_epoch) == (leader, world.nodes[leader].term)
        assert [voter.replica_id for voter in about.voters] == [1, 2, 3]
        assert {voter.log_end_offset for voter in about.voters} == {about.high_watermark}
        assert all(voter.last_caught_up_ms > 0 for voter in about.voters)

    run_scenario(script)


def test_an_idle_quorum_hardly_wakes() -> None:
    """It ticks on input and at deadlines: some 30 rounds a second on a leader of three, 10 on a follower, 0 alone."""

    async def script(world: QuorumCluster) -> dict[int, int]:
        leader = await world.leader()
        await world.settle(b"busy")
        rounds = dict.fromkeys(world.hosts, 0)
        for node, quorum in world.nodes.items():
            driver = quorum.driver
            tick = driver._tick

            def counted(node: int = node, tick: Callable[[], None] = tick) -> None:
                rounds[node] += 1
                tick()

            driver._tick = counted  # type: ignore[method-assign]
        await asyncio.sleep(10)
        return {0: rounds.pop(leader), **rounds}

    leader, *followers = run_scenario(script).values()
    assert leader <= 350 and max(followers) <= 120
    assert run_scenario(script, 1) == {0: 0}


def test_nobody_but_the_voters_joins_the_quorum() -> None:
    """A node that is not listed, or that claims an id already here, is turned away with the reason."""

    async def script(world: QuorumCluster) -> None:
        await world.leader()
        links = world.nodes[2]._links
        assert links is not None
        assert "two nodes 2" in str(links.refusal_reason(2))
        assert "not among controller.quorum.voters" in str(links.refusal_reason(9))
        assert "not the other way round" in str(links.refusal_reason(1))
        assert links.refusal_reason(3) is None

    run_scenario(script)
