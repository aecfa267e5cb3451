"""Changes of voters' addresses in the scenario `voters-change`.

A voter that starts at another address sends UpdateVoter to the leader, as a node does. No committed set of voters may
name an address at which its voter never listened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from raftlog.metadata.controller_api import UpdateVoter, decode_request, encode
from raftlog.quorum.client import ControllerClient
from raftlog.quorum.own_move import OwnMove
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.voters_record import VotersRecord
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster, WatchedNode
from raftlog_chaos.simulator.env import SimEnv

ASK_S: Final = 10.0
"""Timeout of an UpdateVoter request, virtual seconds."""


class OwnMoves:
    """Has each voter with a new address send UpdateVoter to every new leader, over the network."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self._cluster = cluster

    def watch(self, quorum: Quorum, machine: WatchedNode) -> None:
        """Watch a node. Call this before the node starts."""
        env = SimEnv(self._cluster.hosts[quorum.node_id])
        client = ControllerClient(env, quorum, local=lambda: quorum.on_request)
        moves, changed = OwnMove(quorum, partial(_ask, client)), machine.leadership_changed
        running: list[asyncio.Task[None]] = []

        async def answer(payload: bytes, _peer: int) -> bytes:
            request = decode_request(payload)
            assert isinstance(request, UpdateVoter)
            return encode(await quorum.change_voters(request))

        def leadership_changed(leader_id: int | None, term: int, leading: bool) -> None:
            changed(leader_id, term, leading)
            if leader_id is not None and quorum.started and quorum.may_have_moved:
                for each in running:
                    each.cancel()
                running[:] = [asyncio.get_running_loop().create_task(moves.run())]

        quorum.on_request = answer
        machine.leadership_changed = leadership_changed  # type: ignore[method-assign]


async def _ask(client: ControllerClient, request: UpdateVoter) -> None:
    await client.submit(encode(request), ASK_S)


class HeardAddresses:
    """The addresses at which each node has ever listened, and a check of committed voter sets against them."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._heard = {node: {address} for node, address in addresses.items()}

    def add(self, node: int, address: tuple[str, int]) -> None:
        self._heard[node].add(address)

    def check(self, record: VotersRecord) -> None:
        """Raise AssertionError if a voter set names an address at which that voter never listened."""
        for node, address in record.addresses().items():
            assert address in self._heard[node], (
                f"the set names {address} for node {node}, which it never had"
            )
