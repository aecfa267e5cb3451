"""A testbed that is only a model: running nodes, cut links, disks in trouble. Every call takes effect at once."""

from __future__ import annotations

import asyncio

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, PartitionView

EVERYTHING = frozenset(Ability)


class ModelTestbed:
    """See `Place`. `deeds` is all that was done to it; three partitions, each led by another node.

    A node that is started is ready after `start_s` seconds of the loop.
    """

    name = "model"

    def __init__(self, nodes: int = 3, abilities: frozenset[Ability] = EVERYTHING) -> None:
        self.nodes = tuple(range(1, nodes + 1))
        self.abilities = abilities
        self.running = set(self.nodes)
        self.paused: set[int] = set()
        self.start_s = 0.0
        self._ready_at: dict[int, float] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.slow: dict[tuple[int, int], tuple[float, float]] = {}
        self.disks = dict.fromkeys(self.nodes, DiskTrouble())
        self.clocks = dict.fromkeys(self.nodes, 0)
        self.logs = dict.fromkeys(self.nodes, 0.0)
        self.out_of_sync: set[int] = set()
        self.copies: set[int] = set()
        self.clones: set[int] = set()
        self.deeds: list[tuple[str, int]] = []

    async def view(self) -> ClusterState:
        everybody = frozenset(self.nodes)
        leaders = sorted(self.running) or [None]
        partitions = {
            f"t-{index}": PartitionView(
                leaders[index % len(leaders)], everybody - self.out_of_sync, everybody
            )
            for index in range(3)
        }
        partitions["_schemas-0"] = partitions["t-0"]
        running = frozenset(self.running)
        now = asyncio.get_running_loop().time()
        starting = {node_id for node_id, ready_at in self._ready_at.items() if ready_at > now}
        ready = running - self.paused - starting
        internal = {f"__transaction_state-{key.rpartition('-')[2]}": each for key, each in partitions.items()}
        return ClusterState(
            running, frozenset(self.paused), ready, min(running, default=None), partitions, internal
        )

    def is_well(self) -> bool:
        return (
            self.running == set(self.nodes)
            and not (self.paused or self.cuts or self.slow)
            and set(self.disks.values()) == {DiskTrouble()}
            and set(self.clocks.values()) == {0}
            and set(self.logs.values()) == {0.0}
        )

    def _note(self, deed: str, node: int) -> None:
        self.deeds.append((deed, node))

    async def start(self, node_id: int) -> None:
        if node_id not in self.running:
            self.running.add(node_id)
            self._ready_at[node_id] = asyncio.get_running_loop().time() + self.start_s

    async def kill(self, node_id: int) -> None:
        self._note("kill", node_id)
        self.running.discard(node_id)
        self.paused.discard(node_id)

    async def power_cut(self, node_id: int) -> None:
        self._note("power_cut", node_id)
        self.running.discard(node_id)
        self.paused.discard(node_id)

    async def terminate(self, node_id: int) -> None:
        self._note("terminate", node_id)
        self.running.discard(node_id)

    async def restart_in_turn(self) -> None:
        for node_id in self.nodes:
            await self.terminate(node_id)
            await self.start(node_id)

    async def pause(self, node_id: int) -> None:
        self._note("pause", node_id)
        self.paused.add(node_id)

    async def resume(self, node_id: int) -> None:
        self.paused.discard(node_id)

    async def cut(self, source: int, target: int) -> None:
        self._note("cut", target)
        self.cuts.add((source, target))

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        self._note("slow_link", target)
        self.slow[source, target] = (delay_s, loss)

    async def heal_links(self) -> None:
        self.cuts.clear()
        self.slow.clear()

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        if trouble != DiskTrouble():
            self._note("trouble_disk", node_id)
        self.disks[node_id] = trouble

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        assert 0 <= chance <= 1
        self._note("flip_bit", node_id)
        return True

    async def wipe(self, node_id: int) -> None:
        assert node_id not in self.running, "a running node's data is pulled away"
        self._note("wipe", node_id)

    async def copy_disk(self, node_id: int) -> None:
        assert node_id not in self.running, "a running node's data is copied"
        self.copies.add(node_id)

    async def roll_back(self, node_id: int, *, metadata: bool) -> bool:
        assert node_id not in self.running, "a running node's data is pulled away"
        self._note("roll_back", node_id)
        return node_id in self.copies

    async def start_without_identity(self, node_id: int, *, foreign: bool) -> None:
        assert node_id not in self.running, "a running node's identity is taken away"
        self._note("start_without_identity", node_id)

    async def start_clone(self, node_id: int) -> None:
        assert node_id in self.running, "a clone is a second process"
        self._note("start_clone", node_id)
        self.clones.add(node_id)

    async def end_clone(self, node_id: int) -> None:
        self.clones.discard(node_id)

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        if offset_ms:
            self._note("set_clock", node_id)
        self.clocks[node_id] = offset_ms

    async def trouble_log(self, node_id: int, rate: float) -> None:
        if rate:
            self._note("trouble_log", node_id)
        self.logs[node_id] = rate

    async def set_start_clock(self, node_id: int, offset_ms: int) -> None:
        assert node_id not in self.running, "its clock is wrong from its start on"
        if offset_ms:
            self._note("set_start_clock", node_id)
        self.clocks[node_id] = offset_ms
