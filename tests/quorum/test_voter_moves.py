"""Voters that move to another address with their directory (KIP-853, UpdateRaftVoter)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import msgspec

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
