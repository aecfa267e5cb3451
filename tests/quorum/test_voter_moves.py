"""Voters that move to another address with their directory (KIP-853, UpdateRaftVoter)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    InvalidRequest,
    InvalidVoterKey,
    KafkaError,
    RequestTimedOut,
    VoterNotFound,
)
from raftlog.quorum.channel import ForeignCluster, Identity, OutboundChannel, dial
from raftlog.quorum.own_move import OwnMove
from raftlog.quorum.voters_record import Voter
from raftlog_chaos.scenarios.quorum_cluster import OBSERVER, PORT
from raftlog_chaos.simulator import SimLoop, simulate
from tests.quorum.changing import Changing, run


def test_a_voter_moves_to_another_address() -> None:
    """With its directory: the others dial it there, and so does a node that hears of the set for the first time."""

    async def test(world: Changing) -> None:
        def move(voter: Voter) -> Coroutine[Any, Any, KafkaError | None]:
            return world.ask(lambda changes, until: changes.move(voter, until))

        await world.begin()
        world.cluster.boot_observer()
        leader = await world.cluster.leader()
        moved = next(each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(moved)
        there = msgspec.structs.replace(world.voter(moved), port=9999)
        refused = await move(there)
        assert isinstance(refused, RequestTimedOut) and "cannot be reached" in str(refused), refused
        world.cluster.ports[moved] = 9999
        world.cluster.boot(moved)
        await world.cluster.commit(b"back", moved)
        assert await move(there) is None
        ends = world.cluster.nodes[leader].driver.journal.last_index
        assert await move(there) is None
        assert world.cluster.nodes[leader].driver.journal.last_index == ends, "the same address again"
        world.cluster.crash(*(each for each in (1, 2, 3, 4) if each not in (leader, moved)))
        await world.cluster.commit(b"with it", leader, moved, OBSERVER)
        for quorum in (world.cluster.nodes[leader], world.cluster.observers[OBSERVER]):
            assert quorum.voters[moved] == (there.host, 9999)
        refusals = [
            (await move(msgspec.structs.replace(there, directory=UUID(int=99).bytes)), VoterNotFound),
            (await move(msgspec.structs.replace(there, voter_id=4)), VoterNotFound),
            (await move(msgspec.structs.replace(there, host="0.0.0.0")), InvalidRequest),
        ]
        for error, kind in refusals:
            assert isinstance(error, kind), error

    run(test)


def test_a_move_keeps_voters_that_another_leader_added_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead was lost and won again while the leader dialled the new address."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        changes = world.cluster.nodes[leader].voter_requests

        async def added_meanwhile(voter: Voter) -> UUID:
            record = changes._driver.voters.current
            assert record is not None
            extended = record.with_voter(world.voter(4))
            await changes._driver.change_voters(lambda: extended).committed
            return voter.directory_id

        monkeypatch.setattr(changes, "_directory_at", added_meanwhile)
        moved = next(each for each in (1, 2, 3) if each != leader)
        there = msgspec.structs.replace(world.voter(moved), port=9999)
        assert await world.ask(lambda changes, until: changes.move(there, until), node=leader) is None
        record = world.cluster.nodes[leader].driver.voters.current
        assert record is not None and record.ids == [1, 2, 3, 4] and record.find(moved) == there

    run(test)


def test_a_node_with_an_old_set_finds_a_leader_that_has_moved() -> None:
    """The other voters, which it finds, say where the leader is now."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        moved, other = (each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(4, moved)
        world.cluster.ports[moved] = 9999
        world.cluster.boot(moved)
        await world.cluster.commit(b"back", moved)
        there = msgspec.structs.replace(world.voter(moved), port=9999)
        assert await world.ask(lambda changes, until: changes.move(there, until)) is None
        await world.cluster.commit(b"moved", moved, other)
        world.cluster.nodes[other].stop_candidacy()
        world.cluster.crash(leader)
        await world.cluster.until(lambda: world.cluster.leading() == moved)
        world.cluster.boot(4)
        await world.cluster.commit(b"found", 4)

    run(test)


def test_voters_that_all_moved_find_each_other_by_their_configs() -> None:
    """The set has their former addresses alone, and no node is left that could change it."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        world.cluster.crash(1, 2, 3, 4)
        moved = {node: (host, 9999) for node, (host, _) in world.cluster.voters.items()}
        for node in (1, 2, 3):
            world.cluster.configs[node] = moved
            world.cluster.ports[node] = 9999
        world.cluster.boot(1, 2, 3)
        leader = await world.cluster.leader()
        assert world.cluster.nodes[leader].own_move is not None
        await world.cluster.until(lambda: world.addresses_in_the_set() == moved)
        assert world.cluster.leading() != leader, "another leader tried its address"

    run(test)


def test_voters_that_all_moved_find_each_other_beside_controllers_that_do_not_vote() -> None:
    """Those dial them by their own configs, so that the voters have links, but none to each other."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        nodes = tuple(world.cluster.hosts)
        world.cluster.crash(*nodes)
        moved = {node: (host, 9999) for node, (host, _) in world.cluster.voters.items()}
        world.cluster.configs.update(dict.fromkeys(nodes, moved))
        world.cluster.ports.update(dict.fromkeys(moved, 9999))
        world.cluster.boot(4)
        await world.pass_time(12)
        world.cluster.boot(1, 2, 3)
        await world.cluster.until(lambda: world.addresses_in_the_set() == moved, 60)

    run(test)


def test_an_observer_finds_voters_that_all_moved_by_its_config() -> None:
    """It has read a set with their former addresses, from a voter that has no leader yet, and left that voter."""

    async def test(world: Changing) -> None:
        await world.begin()
        world.cluster.boot_observer()
        await world.cluster.commit(b"before", 1, 2, 3, OBSERVER)
        await world.pass_time(4)
        world.cluster.crash(1, 2, 3, 4)
        world.cluster.crash_observer()
        moved = {node: (host, 9999) for node, (host, _) in world.cluster.voters.items()}
        for node in (1, 2, 3, OBSERVER):
            world.cluster.configs[node] = moved
        world.cluster.ports.update(dict.fromkeys((1, 2, 3), 9999))
        world.cluster.boot(1)
        world.cluster.boot_observer()
        await world.pass_time(20)
        world.cluster.boot(2, 3)
        await world.cluster.commit(b"after", 1, 2, 3, OBSERVER)

    run(test)


def test_an_observer_lives_on_although_another_cluster_is_at_the_addresses_of_its_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dials them while the present voters are away, and the newest set names other addresses."""

    async def dial_another_cluster(
        identity: Identity, kind: Any, address: tuple[str, int], **how: Any
    ) -> OutboundChannel:
        if address[1] == PORT:
            raise ForeignCluster("node 1 belongs to cluster theirs, node 9 to cluster ours")
        return await dial(identity, kind, address, **how)

    async def test(world: Changing) -> None:
        await world.begin()
        world.cluster.boot_observer()
        await world.cluster.commit(b"before", 1, 2, 3, OBSERVER)
        moved = {node: (world.addresses[node][0], 9999) for node in (1, 2, 3)}
        for node, there in moved.items():
            world.cluster.crash(node)
            world.cluster.configs[node] = {**world.cluster.voters, node: there}
            world.cluster.ports[node] = 9999
            world.cluster.boot(node)
            await world.cluster.commit(b"back %d" % node, node)
        await world.cluster.until(lambda: world.addresses_in_the_set() == moved)
        await world.cluster.commit(b"moved", 1, 2, 3, OBSERVER)
        await world.pass_time(4)
        monkeypatch.setattr("raftlog.quorum.observer.dial", dial_another_cluster)
        world.cluster.crash(1, 2, 3)
        await world.pass_time(20)
        world.cluster.boot(1, 2, 3)
        await world.cluster.commit(b"after", 1, 2, 3, OBSERVER)

    run(test)


def test_a_moved_voter_asks_again_after_a_refusal() -> None:
    """The same leader, once others reach it there; a leader hands the lead over once, not again and again."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        moved = next(each for each in (1, 2, 3) if each != leader)
        world.cluster.crash(moved)
        host, _ = world.addresses[moved]
        world.cluster.configs[moved] = {**world.cluster.voters, moved: (host, 9999)}
        world.cluster.boot(moved)  # at its former address: the new one does not lead there yet
        await world.cluster.commit(b"back", moved)
        await world.pass_time(12)
        assert world.addresses_in_the_set()[moved] == (host, PORT) and world.cluster.leading() == leader
        world.cluster.crash(leader)
        await world.cluster.until(lambda: world.cluster.leading() is not None)
        world.cluster.crash(*(each for each in (1, 2, 3, 4) if each not in (leader, moved)))
        world.cluster.boot(*(each for each in (1, 2, 3, 4) if each != moved))
        await world.cluster.leader()
        elections = len(world.law.leaders)
        await world.pass_time(30)
        assert len(world.law.leaders) <= elections + 1
        world.cluster.crash(moved)
        world.cluster.ports[moved] = 9999
        world.cluster.boot(moved)
        await world.cluster.until(lambda: world.addresses_in_the_set()[moved] == (host, 9999))

    run(test)


class _Led:
    """A quorum of two that this voter leads, after each hand over again. No node reaches its address."""

    leading = may_have_moved = True
    voters: ClassVar = {1: ("n1", PORT), 2: ("n2", PORT)}
    own_move = Voter(1, UUID(int=1).bytes, "n1", 9999)

    def __init__(self, loop: SimLoop) -> None:
        self.handed_over: list[float] = []
        self._loop = loop

    async def transfer_leadership(self) -> None:
        self.handed_over.append(round(self._loop.time()))


def test_a_leader_with_an_address_that_is_refused_leads_ever_longer() -> None:
    """From 5 seconds to 640: each hand over costs its successor's clients a moment."""

    async def program(loop: SimLoop) -> None:
        async def ask(request: object) -> None:
            raise AssertionError("a leader asks no other")

        quorum = _Led(loop)
        moves = OwnMove(quorum, ask)  # type: ignore[arg-type]
        spans = []
        for _ in range(9):
            began_at, count = loop.time(), len(quorum.handed_over)
            run_once = asyncio.ensure_future(moves.run())
            while len(quorum.handed_over) == count:
                await asyncio.sleep(0.5)
            run_once.cancel()
            spans.append(round(quorum.handed_over[-1] - began_at))
        assert spans == [5, 10, 20, 40, 80, 160, 320, 640, 640]

    simulate(program, seed=1)


def test_a_moved_voter_asks_again_if_the_set_with_its_address_is_truncated() -> None:
    """Its log still has that set when it first hears of a leader without it, and loses it with the next message."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        moved, *others = (each for each in world.cluster.hosts if each != leader)
        there, nodes = (world.addresses[moved][0], 9999), world.cluster.nodes
        world.cluster.crash(moved)
        await world.cluster.until(lambda: not nodes[leader].linked(moved))
        world.cluster.configs[moved] = {**world.cluster.voters, moved: there}
        world.cluster.ports[moved] = 9999
        world.cluster.boot(moved)
        await world.cluster.until(lambda: nodes[leader].linked(moved))
        for each in others:
            world.loop.clog(world.cluster.hosts[leader], world.cluster.hosts[each])
        await world.cluster.until(lambda: nodes[moved].started and nodes[moved].voters[moved] == there)
        world.cluster.crash(leader, moved)
        world.loop.heal()
        world.cluster.boot(moved)
        await world.cluster.leader(among=others)
        await world.cluster.commit(b"without it", moved)
        await world.cluster.until(lambda: world.addresses_in_the_set().get(moved) == there)

    run(test, voters=(1, 2, 3, 4, 5), nodes=5)


def test_an_address_that_others_cannot_reach_is_refused() -> None:
    """With a sentence that names it: loopback beside hosts, a leader's own, and one with another directory."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        moved = next(each for each in (1, 2, 3) if each != leader)
        host, port = world.addresses[moved]
        refusals = [
            (msgspec.structs.replace(world.voter(moved), host="localhost"), InvalidRequest, "localhost:9093"),
            (
                msgspec.structs.replace(world.voter(leader), port=9),
                RequestTimedOut,
                f"n{leader}:9 reaches it",
            ),
            (
                msgspec.structs.replace(world.voter(moved), host=f"n{leader}"),
                RequestTimedOut,
                f"at n{leader}:9093",
            ),
        ]
        for voter, kind, words in refusals:
            refused = await world.ask(lambda changes, until, voter=voter: changes.move(voter, until))  # type: ignore[misc]
            assert isinstance(refused, kind) and words in str(refused), refused
        refused = await world.add(msgspec.structs.replace(world.voter(4), host="127.0.0.1"))
        assert isinstance(refused, InvalidRequest) and "127.0.0.1:9093" in str(refused)
        assert world.addresses_in_the_set()[moved] == (host, port)

    run(test)


def test_the_directory_at_a_new_address_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the node may listen there."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        moved = next(each for each in (1, 2, 3) if each != leader)

        async def another(voter: Voter) -> UUID:
            return UUID(int=99)

        monkeypatch.setattr(world.cluster.nodes[leader].voter_requests, "_directory_at", another)
        there = msgspec.structs.replace(world.voter(moved), port=9999)
        refused = await world.ask(lambda changes, until: changes.move(there, until), node=leader)
        assert isinstance(refused, InvalidVoterKey) and f"at n{moved}:9999" in str(refused)

    run(test)


def test_the_only_voter_tries_its_own_address() -> None:
    """No other voter could: a wrong port is refused, its own new address is not."""

    async def test(world: Changing) -> None:
        await world.begin()
        wrong = msgspec.structs.replace(world.voter(1), port=9)
        refused = await world.ask(lambda changes, until: changes.move(wrong, until))
        assert isinstance(refused, RequestTimedOut) and "cannot be reached at n1:9" in str(refused)
        world.cluster.crash(1)
        world.cluster.configs[1] = {1: ("n1", 9999)}
        world.cluster.ports[1] = 9999
        world.cluster.boot(1)
        await world.cluster.until(lambda: world.addresses_in_the_set() == {1: ("n1", 9999)})

    run(test, voters=(1,))


def test_a_voter_knows_that_it_has_moved() -> None:
    """Its config names another address of itself than the newest set."""

    async def test(world: Changing) -> None:
        await world.begin()
        assert world.cluster.nodes[2].own_move is None and world.cluster.nodes[4].own_move is None
        world.cluster.crash(2)
        world.cluster.configs[2] = {**world.cluster.voters, 2: ("two", 9999)}
        world.cluster.ports[2] = 9999
        world.cluster.boot(2)
        await world.cluster.commit(b"back", 2)
        moved = world.cluster.nodes[2].own_move
        assert moved == Voter(2, UUID(int=2).bytes, "two", 9999)

    run(test)
