"""Voters that move to another address with their directory (KIP-853, UpdateRaftVoter)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    VoterNotFound,
)
from raftlog.quorum.voters_record import Voter
from raftlog_chaos.scenarios.quorum_cluster import OBSERVER
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
        changes = world.cluster.nodes[leader].voter_changes

        async def added_meanwhile(voter: Voter) -> None:
            record = changes._driver.voters.current
            assert record is not None
            extended = record.with_voter(world.voter(4))
            await changes._driver.change_voters(lambda: extended)

        monkeypatch.setattr(changes, "_why_unreached", added_meanwhile)
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
        there = world.cluster.nodes[leader].own_move
        assert there is not None and (there.host, there.port) == moved[leader]
        assert await world.ask(lambda changes, until: changes.move(there, until)) is None

    run(test)


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
