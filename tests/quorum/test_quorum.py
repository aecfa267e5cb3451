"""The quorum as a whole, in virtual time: elections, faults, snapshots, and the calls of the state machine."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from raftlog.base.errors import InvalidRequest, NotController, RequestTimedOut
from raftlog.quorum import core, raft_links, wal
from raftlog.quorum.handshake_messages import Introduced
from raftlog.quorum.messages import MessageSizes
from raftlog.quorum.proposals import MAX_UNCOMMITTED_BATCHES
from raftlog.quorum.quorum import CUT_OFF
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import DIRECTORY, QuorumCluster
from raftlog_chaos.simulator import SimLoop, hosts, simulate


def run_scenario(script: Callable[[QuorumCluster], Awaitable[Any]], voters: int = 3, **options: Any) -> Any:
    """Run a script in a new world with seeded chance; virtual seconds are free."""

    async def program(loop: SimLoop) -> Any:
        cluster = QuorumCluster(loop, voters, **options)
        cluster.boot()
        result = await script(cluster)
        cluster.check()
        return result

    return simulate(program, seed=voters).result


async def seconds(cluster: QuorumCluster, waiting: Awaitable[Any]) -> float:
    started = cluster.loop.time()
    await waiting
    return cluster.loop.time() - started


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5, 7])
def test_any_number_of_voters_elects_and_commits(voters: int) -> None:
    """One voter, three, five and seven work; so do even numbers, with a warning."""

    async def script(cluster: QuorumCluster) -> None:
        for number in range(20):
            await cluster.commit(b"batch %d" % number)
        await cluster.settle(b"end")

    run_scenario(script, voters)


def test_a_single_voter_leads_at_once() -> None:
    """There is no other voter to wait for."""

    async def script(cluster: QuorumCluster) -> float:
        return await seconds(cluster, cluster.commit(b"first"))

    assert run_scenario(script, 1) < 0.05


def test_the_first_election_of_an_empty_log_waits_only_moments() -> None:
    """Three nodes are ready in a moment: 15 to 80 ms, not a whole election timeout."""

    async def script(cluster: QuorumCluster) -> float:
        return await seconds(cluster, cluster.leader())

    assert run_scenario(script) < 0.3


def test_a_dead_leader_is_replaced_in_moments() -> None:
    """kill -9: its connections break and its port refuses, so the others do not wait for the election timeout."""

    async def script(cluster: QuorumCluster) -> list[float]:
        gaps = []
        for number in range(10):
            leader = await cluster.leader()
            cluster.crash(leader)
            gaps.append(await seconds(cluster, cluster.commit(b"after %d" % number, *cluster.nodes)))
            cluster.boot(leader)
            await cluster.settle(b"healed %d" % number)
        return gaps

    gaps = run_scenario(script)
    assert sorted(gaps)[5] < 0.25 and max(gaps) < 1.0, gaps


def test_voters_are_in_touch_with_the_leader_and_with_a_dead_one_no_more() -> None:
    """The link breaks with its process, long before anybody else leads: clients are not sent there meanwhile."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        await cluster.settle(b"linked")
        others = [node for node in cluster.nodes if node != leader]
        assert all(quorum.is_connected_to_leader(leader) for quorum in cluster.nodes.values())
        assert not any(cluster.nodes[node].is_connected_to_leader(node) for node in others)
        cluster.crash(leader)
        await cluster.until(
            lambda: not any(cluster.nodes[node].is_connected_to_leader(leader) for node in others), 0.01
        )
        assert await cluster.leader(among=others) in others

    run_scenario(script)


def test_a_leader_that_vanishes_without_a_word_is_replaced() -> None:
    """Power loss of a machine: no reset, no refusal; the election timeout decides."""

    async def script(cluster: QuorumCluster) -> float:
        leader = await cluster.leader()
        cluster.nodes.pop(leader)
        cluster.hosts[leader].crash(silent=True)
        return await seconds(cluster, cluster.commit(b"after", *cluster.nodes))

    assert run_scenario(script) < 2.0


@pytest.mark.parametrize("voters", [3, 5])
def test_a_minority_may_be_lost_and_a_lost_majority_stops_and_recovers(voters: int) -> None:
    """Without a majority no entry commits and the leader stands down; with it back, all goes on by itself."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        followers = [node for node in cluster.hosts if node != leader]
        minority, last = followers[: voters // 2], followers[voters // 2]
        cluster.crash(*minority)
        await cluster.commit(b"with a majority", *cluster.nodes)
        cluster.crash(last)
        cluster.append(b"without", leader)
        await cluster.until(lambda: not cluster.nodes[leader].leading, 1.5)
        await asyncio.sleep(5)
        assert not cluster.applied(b"without", leader) and cluster.nodes[leader].leader_id is None
        for node in (*minority, last):
            cluster.boot(node)
        await cluster.settle(b"whole again")

    run_scenario(script, voters)


def test_a_voter_that_was_cut_off_does_not_depose_the_leader() -> None:
    """Pre-vote (thesis §9.6): it asked in vain, so its term did not grow."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        term = cluster.nodes[leader].term
        outcast = next(node for node in cluster.hosts if node != leader)
        for other in cluster.hosts:
            if other != outcast:
                cluster.loop.cut(cluster.hosts[outcast], cluster.hosts[other])
        await asyncio.sleep(20)
        cluster.loop.heal()
        await cluster.commit(b"after")
        assert cluster.nodes[outcast].term == term and cluster.leading() == leader

    run_scenario(script)


def test_a_voter_that_lost_only_its_link_to_the_leader_does_not_depose_it() -> None:
    """A bridge topology: the voter in the middle still hears the leader and says no."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        term = cluster.nodes[leader].term
        lonely = next(node for node in cluster.hosts if node != leader)
        cluster.loop.cut(cluster.hosts[leader], cluster.hosts[lonely])
        await asyncio.sleep(20)
        assert cluster.leading() == leader and cluster.nodes[leader].term == term
        cluster.loop.heal()
        await cluster.settle(b"after")

    run_scenario(script)


def test_a_paused_leader_is_replaced_and_learns_it() -> None:
    """SIGSTOP breaks no connection; on SIGCONT it sees the higher term and its old proposals are void."""

    async def script(cluster: QuorumCluster) -> None:
        old = await cluster.leader()
        cluster.hosts[old].pause()
        others = [node for node in cluster.hosts if node != old]
        cluster.append(b"too late", old)
        await cluster.commit(b"new reign", *others, seconds=3)
        cluster.hosts[old].resume()
        await cluster.until(lambda: not cluster.nodes[old].leading, 0.2)
        await cluster.settle(b"together")
        assert not cluster.applied(b"too late")

    run_scenario(script)


def test_a_paused_follower_does_not_depose_the_leader() -> None:
    """A stall of its own is taken into account: the leader's messages lie unread in the socket."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        term = cluster.nodes[leader].term
        sleeper = next(node for node in cluster.hosts if node != leader)
        cluster.hosts[sleeper].pause()
        await asyncio.sleep(2.5)
        cluster.hosts[sleeper].resume()
        await cluster.settle(b"awake")
        assert cluster.nodes[leader].term == term

    run_scenario(script)


def test_power_loss_of_all_at_once_again_and_again_loses_nothing() -> None:
    """The whole cluster is killed 50 times with batches under way (#201 lost data in 1 of 20 such restarts)."""

    async def script(cluster: QuorumCluster) -> None:
        for number in range(50):
            await cluster.leader()
            for burst in range(5):
                cluster.append(b"%d.%d" % (number, burst))
            await asyncio.sleep(0.0005 * (number % 12))
            cluster.crash(*cluster.hosts)
            cluster.boot()
        await cluster.settle(b"end")

    run_scenario(script)


def test_a_voter_far_behind_gets_a_snapshot_and_restarts_from_it() -> None:
    """The log was cut below what it has; the installed snapshot and the log after it are durable."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        late = next(node for node in cluster.hosts if node != leader)
        cluster.crash(late)
        for number in range(60):
            await cluster.commit(b"batch %d" % number, *cluster.nodes)
        assert cluster.nodes[leader].driver.journal.first_index > 5
        cluster.boot(late)
        await cluster.settle(b"caught up")
        assert cluster.nodes[late].driver.journal.first_index > 5
        cluster.crash(*cluster.hosts)
        cluster.boot()
        await cluster.settle(b"restarted")

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_a_snapshot_of_many_chunks_arrives_whole() -> None:
    """Larger than one frame may be: chunks, each a heartbeat too."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        late = next(node for node in cluster.hosts if node != leader)
        cluster.crash(late)
        for number in range(12):
            await cluster.commit(b"%d " % number + b"x" * 400_000, *cluster.nodes)
        assert cluster.nodes[leader].driver.journal.first_index > 2
        cluster.boot(late)
        await cluster.settle(b"caught up")

    run_scenario(script, compaction=SnapshotPolicy(entries=10))


def test_an_old_leader_with_proposals_of_its_own_takes_a_snapshot() -> None:
    """Its uncommitted tail goes, its loss is reported first, and no proposal of it comes back."""

    async def script(cluster: QuorumCluster) -> None:
        old = await cluster.leader()
        others = [node for node in cluster.hosts if node != old]
        for other in others:
            cluster.loop.cut(cluster.hosts[old], cluster.hosts[other])
        for number in range(30):
            cluster.append(b"lost %d" % number, old)
        for number in range(60):
            await cluster.commit(b"kept %d" % number, *others)
        cluster.loop.heal()
        await cluster.settle(b"end")
        assert not any(data.startswith(b"lost") for data in cluster.oracle.committed)

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_a_slow_disk_slows_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs of 20 to 60 ms run beside the loop; messages queue meanwhile."""
    monkeypatch.setattr(hosts, "OFFLOAD_S", (0.02, 0.06))

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        term = cluster.nodes[leader].term
        for number in range(30):
            await cluster.commit(b"batch %d" % number)
        assert cluster.nodes[leader].term == term

    run_scenario(script)


def test_a_voter_that_was_away_loads_a_snapshot_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it was put into the link at once: beyond what may wait there (64 MiB) the link was cut, each time.

    Here both are smaller.
    """
    monkeypatch.setattr(raft_links, "UNSENT_BYTES_LIMIT", 512 * 1024)
    monkeypatch.setattr(core, "ROUND_BYTES", 128 * 1024)

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        away = next(node for node in cluster.hosts if node != leader)
        others = [node for node in cluster.hosts if node != away]
        cluster.crash(away)
        for number in range(24):
            await cluster.commit(b"%d%s" % (number, b"." * 200_000), *others)
        cluster.boot(away)
        await cluster.until(lambda: away in cluster.nodes and cluster.nodes[away].started)
        await cluster.until(lambda: cluster.machines[away].data == cluster.oracle.committed)
        assert cluster.nodes[away].driver.journal.first_index > 1, "it was sent a snapshot"
        assert cluster.leading() == leader

    run_scenario(script, compaction=SnapshotPolicy(entries=20), sizes=MessageSizes(chunk_bytes=64 * 1024))


@pytest.mark.parametrize("leads", [True, False])
def test_a_voter_that_withdrew_votes_but_is_elected_no_more(leads: bool) -> None:
    """A voter that was ending was elected and led for 43 s, while its broker admitted no client."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        ending = leader if leads else next(node for node in cluster.hosts if node != leader)
        await cluster.hosts[ending].start(cluster.nodes[ending].hand_over())
        for number in range(3):
            await cluster.settle(b"round %d" % number)
            leader = await cluster.leader()
            assert leader != ending
            other = next(node for node in cluster.hosts if node not in (leader, ending))
            cluster.crash(leader)
            await cluster.until(lambda: cluster.leading() == other, 5)  # by the vote of the leaving voter # noqa: B023
            cluster.hosts[other].call(cluster.nodes[other].driver.transfer_leadership)
            await asyncio.sleep(1)
            assert cluster.leading() == other, "it was asked to lead, and declined"
            cluster.boot(leader)

    run_scenario(script)


def test_a_leader_without_a_possible_successor_resigns() -> None:
    """No voter has all its entries, so none can take over: the others elect when they have caught up."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        for other in cluster.hosts:
            if other != leader:
                cluster.loop.clog(cluster.hosts[leader], cluster.hosts[other])
        cluster.append(b"only here", leader)
        await asyncio.sleep(0.05)
        await cluster.hosts[leader].start(cluster.nodes[leader].hand_over())
        assert not cluster.nodes[leader].leading
        cluster.loop.heal()
        assert await cluster.leader() != leader

    run_scenario(script)


def test_the_only_voter_leads_to_its_end() -> None:
    """There is no other voter to hand over to, and its broker may need a controller to the last."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.commit(b"first")
        await cluster.hosts[1].start(cluster.nodes[1].hand_over())
        await cluster.commit(b"last")

    run_scenario(script, 1)


def test_a_full_disk_gives_the_lead_away_and_comes_back_by_itself() -> None:
    """ENOSPC on the leader: it falls silent, another leads, and it rejoins within seconds of space returning."""

    async def script(cluster: QuorumCluster) -> None:
        poor = await cluster.leader()
        cluster.hosts[poor].disk.fail("write", error=errno.ENOSPC)
        cluster.append(b"does not fit", poor)
        others = [node for node in cluster.hosts if node != poor]
        await cluster.until(lambda: not cluster.nodes[poor].leading, 1)
        with pytest.raises(NotController):
            cluster.nodes[poor].append(b"refused")
        await cluster.commit(b"elsewhere", *others, seconds=5)
        cluster.hosts[poor].disk.mend()
        await cluster.settle(b"space again")

    run_scenario(script)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["open", "write"])
def test_a_process_out_of_files_gives_the_lead_away_and_comes_back_by_itself(
    operation: str, error: int
) -> None:
    """A rewrite of the journal needs a descriptor: clients took the last descriptor, which ended the voter for good."""

    async def script(cluster: QuorumCluster) -> None:
        poor = await cluster.leader()
        under = f"{DIRECTORY}/{wal.NAME}" if operation == "open" else DIRECTORY
        cluster.hosts[poor].disk.fail(operation, under=under, error=error)
        others = [node for node in cluster.hosts if node != poor]
        for number in range(60):
            cluster.append(b"%d" % number)
            await asyncio.sleep(0.01)
        await cluster.until(lambda: cluster.leading() in others, 5)
        await cluster.commit(b"elsewhere", *others, seconds=5)
        cluster.hosts[poor].disk.mend()
        await cluster.settle(b"files again")

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_broken_disk_stops_the_voter_for_good(operation: str) -> None:
    """EIO, or a failed sync, which must not be retried: the voter is silent and the others go on."""

    async def script(cluster: QuorumCluster) -> None:
        broken = await cluster.leader()
        cluster.may_fail = True
        cluster.hosts[broken].disk.fail(operation)
        cluster.append(b"dies with it", broken)
        others = [node for node in cluster.hosts if node != broken]
        await cluster.until(lambda: not cluster.nodes[broken].leading, 1)
        assert isinstance(cluster.oracle.failures[0], OSError)
        await cluster.commit(b"elsewhere", *others, seconds=5)
        cluster.hosts[broken].disk.mend()
        await asyncio.sleep(3)
        assert not cluster.nodes[broken].leading and not cluster.applied(b"elsewhere", broken)

    run_scenario(script)


def test_a_state_machine_that_raises_stops_its_voter_only() -> None:
    """PySyncObj would try the entry again for ever, on every node."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        sick, well = [node for node in cluster.hosts if node != leader]
        cluster.machines[sick].broken = cluster.may_fail = True
        await cluster.commit(b"indigestible", leader, well)
        await cluster.until(lambda: cluster.oracle.failures)
        assert [str(each) for each in cluster.oracle.failures] == ["the state machine is broken"]
        await cluster.commit(b"next", leader, well)

    run_scenario(script)


def test_a_transfer_hands_over_without_an_election_timeout() -> None:
    """Controlled shutdown: the lead moves within milliseconds without losing an entry."""

    async def script(cluster: QuorumCluster) -> float:
        await cluster.commit(b"before")
        old = await cluster.leader()
        started = cluster.loop.time()
        done = cluster.hosts[old].start(cluster.nodes[old].transfer_leadership())
        await cluster.until(lambda: cluster.leading() not in (None, old), 1)
        gap = cluster.loop.time() - started
        assert await done
        await cluster.settle(b"after")
        return gap

    assert run_scenario(script) < 0.1


def test_what_may_be_proposed_is_bounded() -> None:
    """Not leading, too large, too much uncommitted: refused with errors a client may retry, or must not."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        quorum, follower = (
            cluster.nodes[leader],
            cluster.nodes[next(node for node in cluster.hosts if node != leader)],
        )
        with pytest.raises(NotController):
            follower.append(b"x")
        with pytest.raises(InvalidRequest):
            quorum.append(b"x" * wal.MAX_COMMAND_BYTES)
        for node in cluster.hosts:
            if node != leader:
                cluster.loop.cut(cluster.hosts[leader], cluster.hosts[node])
        filled: list[int] = []

        def fill() -> None:
            try:
                for count in range(MAX_UNCOMMITTED_BATCHES + 1):
                    quorum.append(b"%d@%d.%d" % (count, leader, quorum.term))
            except RequestTimedOut:
                filled.append(count)

        cluster.hosts[leader].call(fill)
        await cluster.until(lambda: filled, 1)
        assert filled == [MAX_UNCOMMITTED_BATCHES]
        cluster.loop.heal()
        await cluster.settle(b"drained")
        assert cluster.nodes[cluster.leading() or 0].driver._proposals.size_bytes == 0

    run_scenario(script)


def test_all_that_was_committed_is_applied_before_one_leads() -> None:
    """The state machine of a new leader decides on everything (its no-op is applied first)."""

    async def script(cluster: QuorumCluster) -> None:
        for number in range(8):
            leader = await cluster.leader()
            for burst in range(10):
                cluster.append(b"%d.%d" % (number, burst))
            await cluster.until(partial(cluster.applied, b"%d.9" % number, leader))
            cluster.crash(leader)
            new = await cluster.leader(among=cluster.nodes)
            assert cluster.applied(b"%d.9" % number, new)
            cluster.boot(leader)

    run_scenario(script)


def test_the_quorum_describes_itself() -> None:
    """Leader, term, commit index, and each voter's position, as DescribeQuorum wants them (KIP-836)."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.commit(b"something")
        leader = await cluster.leader()
        await asyncio.sleep(0.3)
        described: list[Any] = []
        cluster.hosts[leader].call(lambda: described.append(cluster.nodes[leader].describe()))
        await cluster.until(lambda: described)
        about = described[0]
        assert (about.leader_id, about.leader_epoch) == (leader, cluster.nodes[leader].term)
        assert [voter.replica_id for voter in about.voters] == [1, 2, 3]
        assert {voter.log_end_offset for voter in about.voters} == {about.high_watermark}
        assert all(voter.last_caught_up_ms > 0 for voter in about.voters)

    run_scenario(script)


def test_a_dead_voters_times_stay_and_a_slow_voter_is_caught_up_under_load() -> None:
    """The last time at which it had the whole log is kept (KIP-836), so its lag grows while it is dead."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        await cluster.commit(b"before")
        await asyncio.sleep(1)
        dead = next(each for each in cluster.nodes if each != leader)
        cluster.crash(dead)
        for number in range(20):
            await cluster.commit(b"%d" % number, *(cluster.nodes.keys() - {dead}))
            await asyncio.sleep(0.25)
        described: list[Any] = []
        cluster.hosts[leader].call(lambda: described.append(cluster.nodes[leader].describe()))
        await cluster.until(lambda: described)
        found = {each.replica_id: each for each in described[0].voters}
        now_ms, gone = found[leader].last_fetch_ms, found[dead]
        assert gone.log_end_offset < found[leader].log_end_offset
        assert now_ms - gone.last_fetch_ms >= 5_000
        assert 0 < gone.last_caught_up_ms <= gone.last_fetch_ms
        assert all(now_ms - each.last_caught_up_ms < 1_000 for each in found.values() if each is not gone)

    run_scenario(script)


def test_an_idle_quorum_hardly_wakes() -> None:
    """It ticks on input and at deadlines: some 30 rounds a second on a leader of three, 10 on a follower, 0 alone."""

    async def script(cluster: QuorumCluster) -> dict[int, int]:
        leader = await cluster.leader()
        await cluster.settle(b"busy")
        rounds = dict.fromkeys(cluster.hosts, 0)
        for node, quorum in cluster.nodes.items():
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


def test_only_voters_join_the_quorum() -> None:
    """A node that is not listed, or that claims an id already here, is turned away with the reason."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.leader()
        links = cluster.nodes[2]._links
        assert links is not None
        assert "two nodes 2" in str(links.refusal_reason(Introduced(2)))
        assert "not among controller.quorum.voters" in str(links.refusal_reason(Introduced(9)))
        assert "not the other way round" in str(links.refusal_reason(Introduced(1)))
        copy = links.refusal_reason(Introduced(1, incarnation=b"another process"))
        assert "node 1 runs already" in str(copy), (
            "a copy of a node with links to nobody hears that it is one"
        )
        assert links.refusal_reason(Introduced(3)) is None

    run_scenario(script)


@pytest.mark.parametrize("alone", [1, 3])
def test_a_node_without_a_leader_names_the_voters_that_refuse_it(alone: int) -> None:
    """So it is with a copy of a running node. Its readiness says so until a link is accepted, whoever dialled."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.leader()
        quorum, others = cluster.nodes[alone], sorted(cluster.nodes.keys() - {alone})
        for node in cluster.nodes.values():
            node.refuse_nodes(True)
        await asyncio.sleep(20)
        expected = "; ".join(f"node {each}: refused by the peer: {CUT_OFF}" for each in others)
        assert quorum.why_no_leader() == expected
        for node in cluster.nodes.values():
            node.refuse_nodes(False)
        await cluster.leader()
        await asyncio.sleep(10)
        assert quorum.why_no_leader() is None

    run_scenario(script)
