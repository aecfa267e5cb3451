"""A controller that makes itself a voter, and replaces its own lost disk (KIP-1186)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from raftlog.base.config import load_config
from raftlog.base.errors import KafkaError, RequestTimedOut
from raftlog.metadata.controller_api import AddVoter, RemoveVoter
from raftlog.quorum.auto_join import AutoJoin, AutoLeave, own_address
from raftlog_chaos.scenarios.quorum_cluster import OBSERVER
from tests.quorum.changing import Changing, run


class Joining:
    """A node that joins, and what it asks of the leader."""

    def __init__(self, world: Changing, node: int) -> None:
        self.world, self.node = world, node
        self.asked: list[AddVoter | RemoveVoter] = []
        self.refuses: KafkaError | None = None

    async def _ask(self, request: AddVoter | RemoveVoter, _seconds: float) -> None:
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        refused = await self.world.ask(lambda changes, _until: changes.carry_out(request))
        if refused is not None:
            raise refused

    async def look(self) -> None:
        quorum = self.world.cluster.nodes[self.node]
        await AutoJoin(quorum, self.world.addresses[self.node], self._ask).look()


def test_an_observer_makes_itself_a_voter_once() -> None:
    """Not before the voters can change, and not again when it votes."""

    async def test(world: Changing) -> None:
        world.cluster.boot()
        await world.cluster.leader()
        node = Joining(world, 4)
        await node.look()
        assert node.asked == [], "static voters"
        assert await world.make_dynamic() is None
        await world.cluster.settle(b"dynamic")
        await node.look()
        (asked,) = node.asked
        assert isinstance(asked, AddVoter) and (asked.voter_id, asked.by) == (4, "node 4")
        await world.cluster.settle(b"joined")
        await node.look()
        assert len(node.asked) == 1 and world.cluster.nodes[4].driver.voters.is_voter

    run(test)


def test_a_voter_with_a_new_disk_replaces_its_former_directory() -> None:
    """The leader removes that first; the node asks again after a refusal."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        lost = next(each for each in (1, 2, 3) if each != leader)
        await world.cluster.settle(b"before")
        world.cluster.crash(lost)
        world.cluster.wipe(lost)
        world.law.forget(lost)
        world.directories[lost] = UUID(int=99)
        world.cluster.configs[lost] = {n: at for n, at in world.cluster.voters.items() if n != lost}
        world.cluster.boot(lost)
        await world.cluster.commit(b"follows", lost)
        node = Joining(world, lost)
        node.refuses = RequestTimedOut("another change of the voters is under way")
        await node.look()
        node.refuses = None
        await node.look()
        await world.cluster.commit(b"removed", lost)
        await node.look()
        assert [type(each) for each in node.asked] == [RemoveVoter, RemoveVoter, AddVoter]
        record = world.cluster.nodes[leader].driver.voters.current
        assert record is not None and record.directories()[lost] == UUID(int=99)

    run(test)


def test_a_node_without_a_controller_leaves_with_its_own_directory_alone() -> None:
    """Another node may have its id: a removal would take that node's vote."""

    async def test(world: Changing) -> None:
        await world.begin()
        world.cluster.boot_observer()
        await world.cluster.commit(b"begin again", 1, 2, 3, OBSERVER)
        observer = world.cluster.observers[OBSERVER]
        asked: list[AddVoter | RemoveVoter] = []

        async def ask(request: AddVoter | RemoveVoter, _seconds: float) -> None:
            asked.append(request)

        leaves = AutoLeave(observer, ask)
        assert leaves.next_request() is None, "it never voted"
        leaves.node_id = 2
        observer.identity = replace(observer.identity, directory_id=UUID(int=99))
        assert leaves.next_request() is None, "that is another node's directory"
        observer.identity = replace(observer.identity, directory_id=UUID(int=2))
        await leaves.look()
        assert [(type(each), each.voter_id, each.by) for each in asked] == [(RemoveVoter, 2, "node 2")]

    run(test)


@pytest.mark.parametrize(
    ("listeners", "voters", "address"),
    [
        ("CONTROLLER://ctrl:9094", "1@one:9093", ("ctrl", 9094)),
        ("CONTROLLER://:9094", "1@one:9093,4@four:9093", ("four", 9093)),
        ("CONTROLLER://:9094", "1@one:9093", None),
    ],
)
def test_a_node_knows_its_address(listeners: str, voters: str, address: tuple[str, int] | None) -> None:
    """From its own entry in the list of voters, or else from its listener."""
    given = {"node.id": "4", "process.roles": "controller", "controller.quorum.voters": voters}
    assert own_address(load_config({**given, "listeners": listeners})) == address
