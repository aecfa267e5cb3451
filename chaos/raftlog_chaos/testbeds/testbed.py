"""A testbed: everything that can be done to a cluster, whatever world it lives in: the simulator, processes,
namespaces, containers.

A place runs on an asyncio loop, real or simulated, and only *does* things; what to do and when is the faults' and the
nemesis's. Every method returns once the deed is done, not once its consequences have shown.

The abilities of testbeds of real processes, and their means (the simulator has all but the last three):

| ability | processes on loopback | in network namespaces |
|---|---|---|
| kill, terminate, pause | signals | the same |
| cut, cut-one-way, lossy-link | no | packets dropped by nftables where they arrive |
| slow-link | no | netem, or without it a process that holds packets back |
| slow-disk, full-disk, failing-disk, clock | the node does it to itself (`faults/node_faults.py`) | the same |
| start-clock | libfaketime, where it is installed | the same |
| power-cut | kill -9, and what was not synced is taken from the files (`faults/power_cut.py`) | the same |
| out-of-files, log-trouble | no; real ones are in `tests/clients/test_standard_error.py` | no |
| flip-bit, wipe | the node's files (`faults/harm.py`) | the same |
| roll-back | the node's files are copied, and replaced by that copy | the same |
| lose-identity | the node's meta.properties is emptied, or of another cluster, for one start | the same |
| clone | a second process with a copy of the node's folders, at another address | no |
| restart-in-turn | `raftlog cluster restart` (`restart_in_turn.py`) | no |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from raftlog.faults.troubled_disk import DiskTrouble

NODE_ID: Final = "{node.id}"
"""In a setting that goes to all nodes: the node's own."""


def settings_by_node(settings: Mapping[str, str], nodes: int) -> dict[int, dict[str, str]]:
    """Return the settings of each node."""
    return {
        node_id: {name: value.replace(NODE_ID, str(node_id)) for name, value in settings.items()}
        for node_id in range(1, nodes + 1)
    }


class Ability(StrEnum):
    """An ability that a fault may need and a testbed may lack. A fault that needs more than a place has is *not run*,
    never passed.
    """

    KILL = "kill"
    TERMINATE = "terminate"
    PAUSE = "pause"
    CUT = "cut"
    CUT_ONE_WAY = "cut-one-way"
    SLOW_LINK = "slow-link"
    LOSSY_LINK = "lossy-link"
    SLOW_DISK = "slow-disk"
    FULL_DISK = "full-disk"
    FAILING_DISK = "failing-disk"
    POWER_CUT = "power-cut"
    FLIP_BIT = "flip-bit"
    WIPE = "wipe"
    ROLL_BACK = "roll-back"
    CLOCK = "clock"
    OUT_OF_FILES = "out-of-files"
    LOG_TROUBLE = "log-trouble"
    START_CLOCK = "start-clock"
    LOSE_IDENTITY = "lose-identity"
    CLONE = "clone"
    RESTART_IN_TURN = "restart-in-turn"


class PartitionView(NamedTuple):
    """The state of a partition, by the newest metadata. `leader` is None without a leader."""

    leader: int | None
    isr: frozenset[int]
    replicas: frozenset[int]


class ClusterState(NamedTuple):
    """The cluster as it looks from outside."""

    running: frozenset[int]
    """Nodes with an existing process, also paused nodes."""
    paused: frozenset[int]
    ready: frozenset[int]
    """Nodes that run and are unfenced."""
    controller: int | None
    partitions: Mapping[str, PartitionView]
    """The partitions of the workload by key, "topic-partition"."""
    internal: Mapping[str, PartitionView] = MappingProxyType({})
    """Likewise the partitions with the coordinators' state: their leaders are the coordinators."""
    voters_behind: frozenset[int] = frozenset()
    """Voters that lack metadata, or have a new disk with an unrecorded directory."""
    voters_linked: bool = False
    """Whether each voter is known to be linked to each other, so that all know its newest start."""

    def lacks(self, nodes: Iterable[int]) -> list[str]:
        """Return the reasons why a cluster of these nodes is not whole, a line each; empty if it is."""
        missing = sorted(set(nodes) - self.ready)
        lines = [f"nodes {missing} are not ready"] if missing else []
        if self.controller is None:
            lines.append("there is no controller")
        if not self.partitions:
            lines.append("there are no partitions")
        if self.voters_behind:
            lines.append(f"voters {sorted(self.voters_behind)} lack metadata, or are not recorded")
        return lines + [
            f"{key}: leader {each.leader}, ISR {sorted(each.isr)} of {sorted(each.replicas)}"
            for key, each in (*self.partitions.items(), *self.internal.items())
            if each.leader is None or each.isr != each.replicas
        ]

    def is_whole_without(self, node_id: int) -> bool:
        """Return whether every partition has its other replicas in its ISR, at least two: the node's data may be
        destroyed.

        The other voters have all metadata as well.
        """
        return (
            bool(self.partitions)
            and self.voters_behind <= {node_id}
            and all(
                each.isr >= each.replicas - {node_id} and len(each.replicas - {node_id}) >= 2
                for each in (*self.partitions.values(), *self.internal.values())
            )
        )


class Testbed(Protocol):
    """A cluster for fault injection. Nodes are named by their ids."""

    name: str
    nodes: tuple[int, ...]
    abilities: frozenset[Ability]

    async def view(self) -> ClusterState: ...

    async def start(self, node_id: int) -> None:
        """Start a stopped node; a running node is left alone."""

    async def kill(self, node_id: int) -> None:
        """Kill -9; written but unsynced data survives, as in the page cache."""

    async def power_cut(self, node_id: int) -> None:
        """Kill -9; unsynced data is lost or torn."""

    async def terminate(self, node_id: int) -> None:
        """Send SIGTERM and return at once. The node stops by itself."""

    async def restart_in_turn(self) -> None:
        """Restart all nodes, one after the other, each only when that is safe; returns once all have caught up."""

    async def pause(self, node_id: int) -> None: ...

    async def resume(self, node_id: int) -> None: ...

    async def cut(self, source: int, target: int) -> None:
        """Drop everything from source to target, in silence; the other way stays. Clients are not affected."""

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        """Delay packets from source to target by so much, and lose that share of them (they are sent again)."""

    async def heal_links(self) -> None:
        """Undo every cut and every slow link."""

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        """Set the state of a node's disk; `DiskTrouble()` heals it."""

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        """Flip one bit in a batch of the workload's topics, at that place (0 to 1) of all; False without a batch."""

    async def wipe(self, node_id: int) -> None:
        """Empty a node's disk: partitions, metadata log, identity. The node must not run."""

    async def copy_disk(self, node_id: int) -> None:
        """Keep a copy of a node's folders, in place of an earlier copy; real nodes must not run."""

    async def roll_back(self, node_id: int, *, metadata: bool) -> bool:
        """Replace a node's logs by the copy, and its metadata, if that is wanted; the node must not run. False: there
        is no copy."""

    async def start_without_identity(self, node_id: int, *, foreign: bool) -> None:
        """Start a stopped node with an empty meta.properties, or another cluster's, and put its own back when it has
        ended. A node that does not refuse that, or does not name the folder, is a violation."""

    async def start_clone(self, node_id: int) -> None:
        """Start a second process of a running node, with a copy of its folders."""

    async def end_clone(self, node_id: int) -> None:
        """Kill it. A clone that has become ready, or has not logged that it is a copy, is a violation."""

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        """Let a node's wall clock jump, relative to the true time."""

    async def trouble_log(self, node_id: int, rate: float) -> None:
        """Let that share of the lines that a node logs fail to be written; 0 heals it."""

    async def set_start_clock(self, node_id: int, offset_ms: int) -> None:
        """Let a node that does not run have a wall clock that is so far from the true time when it starts."""
