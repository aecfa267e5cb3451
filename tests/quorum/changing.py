"""A simulated quorum of three voters and an observer with a log, for tests of voters that change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

from raftlog.base.errors import (
    KafkaError,
)
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.voter_requests import VoterRequests
from raftlog.quorum.voters_record import Voter
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster, WatchedNode
from raftlog_chaos.scenarios.voter_addresses import OwnMoves
from raftlog_chaos.scenarios.voters_change import Recorded, VotersProperties
from raftlog_chaos.simulator import SimLoop, simulate

Test = Callable[["Changing"], Coroutine[Any, Any, None]]


class Changing:
    """Nodes 1 to 4, or more, of which 1 to 3 are voters of the config."""

    def __init__(self, loop: SimLoop, voters: tuple[int, ...] = (1, 2, 3), nodes: int = 4) -> None:
        self.loop = loop
        self.cluster = QuorumCluster(loop, nodes)
        self.addresses = dict(self.cluster.voters)
        self.cluster.voters = {node: self.addresses[node] for node in voters}
        self.directories = {node: UUID(int=node) for node in self.cluster.hosts}
        self.law = self.cluster.law = VotersProperties(voters, self.directories)
        self.cluster.on_made = self._made
        self.initial = {node: UUID(int=node) for node in voters}
        self.moves = OwnMoves(self.cluster)

    def _made(self, quorum: Quorum, machine: WatchedNode) -> None:
        quorum.identity = replace(quorum.identity, directory_id=self.directories[quorum.node_id])
        quorum.recorded_voters = Recorded(machine, self.initial)
        self.moves.watch(quorum, machine)

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def addresses_in_the_set(self) -> dict[int, tuple[str, int]]:
        """Return the addresses of the voters by the newest set of the leader, or none without a leader."""
        leader = self.cluster.leading()
        return {} if leader is None else self.cluster.nodes[leader].voters

    def voter(self, node: int, directory: int | None = None) -> Voter:
        return Voter(node, UUID(int=node if directory is None else directory).bytes, *self.addresses[node])

    async def ask(
        self,
        change: Callable[[VoterRequests, float], Coroutine[Any, Any, None]],
        *,
        node: int | None = None,
        seconds: float = 5.0,
    ) -> KafkaError | None:
        """Ask a node (default: the leader), and return its refusal."""
        node = node or await self.cluster.leader()
        changes = self.cluster.nodes[node].voter_requests
        done: list[KafkaError | None] = []

        async def asked() -> None:
            try:
                await change(changes, self.loop.time() + seconds)
            except KafkaError as error:
                done.append(error)
            else:
                done.append(None)

        self.cluster.hosts[node].start(asked())
        await self.cluster.until(lambda: bool(done))
        return done[0]

    async def add(self, voter: Voter, **how: Any) -> KafkaError | None:
        return await self.ask(lambda changes, until: changes.add(voter, until), **how)

    async def remove(self, node: int, directory: int | None = None, **how: Any) -> KafkaError | None:
        directory_id = UUID(int=directory or node)
        return await self.ask(lambda changes, until: changes.remove(node, directory_id, until), **how)

    async def begin(self) -> None:
        self.cluster.boot()
        assert await self.make_dynamic() is None

    async def make_dynamic(self, seconds: float = 5.0) -> KafkaError | None:
        leader = await self.cluster.leader(among=[*self.initial])
        await self.cluster.commit(b"begin", *self.initial)
        return await self.ask(
            lambda changes, until: changes.make_dynamic(self.cluster.voters, until),
            node=leader,
            seconds=seconds,
        )


def run(test: Test, **options: Any) -> None:
    async def program(loop: SimLoop) -> None:
        await test(Changing(loop, **options))

    simulate(program, seed=1)
