"""A quorum of several voters in one process, over loopback, for tests."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

from raftlog.base.env import Env
from raftlog.quorum.quorum import Quorum
from tests.kit.waits import PATIENCE_S

SECRET = b"a secret of the tests"


class RecordingStateMachine:
    """A state machine that records every call, in order."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.calls: list[tuple[Any, ...]] = []

    def apply(self, data: bytes) -> None:
        self.data.append(data)
        self.calls.append(("apply", data))

    def snapshot(self) -> Callable[[], bytes]:
        captured = tuple(self.data)
        return lambda: b"\n".join(captured)

    def restore(self, data: bytes) -> None:
        self.data = data.split(b"\n") if data else []
        self.calls.append(("restore", len(self.data)))

    def leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        self.calls.append(("leader", leader_id, term, leading))


def bound_socket(port: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    """Wait for a condition, looking at it as often as the loop turns."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


class QuorumCluster:
    """Voters 1..n; each can be stopped and started again on its folder and port."""

    def __init__(self, path: Any, voters: int, **options: Any) -> None:
        self.path = path
        self.options = options
        self.sockets = {node: bound_socket() for node in range(1, voters + 1)}
        self.addresses = {node: sock.getsockname() for node, sock in self.sockets.items()}
        self.nodes: dict[int, Quorum] = {}
        self.tapes: dict[int, RecordingStateMachine] = {}
        self.envs: dict[int, Env] = {}

    async def start(self, *nodes: int) -> None:
        for node in nodes or tuple(self.addresses):
            sock = self.sockets.pop(node, None) or bound_socket(self.addresses[node][1])
            self.tapes[node] = RecordingStateMachine()
            self.envs[node] = self.envs.get(node) or Env(random=random.Random(node))
            self.nodes[node] = Quorum(
                self.envs[node],
                node_id=node,
                voters=self.addresses,
                directory=f"{self.path}/{node}",
                secret=SECRET,
                cluster_id=lambda: None,
                machine=self.tapes[node],
                **self.options,
            )
            await self.nodes[node].start(sock)

    async def stop(self, *nodes: int) -> None:
        for node in nodes or tuple(self.nodes):
            await self.nodes.pop(node).stop()

    async def leader(self, seconds: float = PATIENCE_S) -> Quorum:
        """Wait until a node leads and all running nodes know it; return it."""

        def agreed() -> bool:
            leaders = {node.leader_id for node in self.nodes.values()}
            return leaders != {None} and len(leaders) == 1 and self._leading() is not None

        await until(agreed, seconds)
        leader = self._leading()
        assert leader is not None
        return leader

    def _leading(self) -> Quorum | None:
        return next((node for node in self.nodes.values() if node.leading), None)

    async def commit(self, *batches: bytes) -> None:
        """Append on the leader and wait until every running node applied them."""
        leader = await self.leader()
        for batch in batches:
            leader.append(batch)
        await until(lambda: all(self.tapes[node].data[-1:] == [batches[-1]] for node in self.nodes))
