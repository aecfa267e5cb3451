"""Faults of a node's disk: slow, full, failing, or with a bit that has rotted."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import AtFollower, OneNodeFault, any_of
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class SlowDisk(OneNodeFault):
    """Every sync of one node's disk is slow."""

    name = "slow-disk"
    needs = frozenset({Ability.SLOW_DISK})
    slow_s: ClassVar[tuple[float, ...]] = (0.005, 0.02, 0.1, 0.5)
    """How much longer each sync takes, seconds."""

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(slow_s=chance.choice(self.slow_s)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())


class SlowFollower(AtFollower, SlowDisk):
    """A follower's disk is so slow that it lags behind."""

    name = "slow-follower"
    slow_s = (0.5, 1.0, 2.0)
    """How much longer each sync takes, seconds: about replica.lag.time.max.ms in tests."""


class FullDisk(OneNodeFault):
    """One node's disk is full."""

    name = "full-disk"
    needs = frozenset({Ability.FULL_DISK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(full=True))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
        await testbed.start(node_id)


class FailingDisk(OneNodeFault):
    """Reads, writes or syncs of one node's disk fail with EIO; the node may stop itself, as it should."""

    name = "failing-disk"
    needs = frozenset({Ability.FAILING_DISK, Ability.KILL})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(failing=chance.choice(("read", "write", "sync"))))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
        # A node that took its log directory offline runs on without it, and tries it again at its next start.
        await testbed.kill(node_id)
        await testbed.start(node_id)


class OutOfFiles(OneNodeFault):
    """The system has no file descriptors left for some files of one node (EMFILE); its disk works."""

    name = "out-of-files"
    needs = frozenset({Ability.OUT_OF_FILES, Ability.KILL})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(failing="open"))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
        # A change that was stopped half-way takes the log directory offline, until the node starts again.
        await testbed.kill(node_id)
        await testbed.start(node_id)


class FlipBit:
    """One bit of a segment rots on one node: it must be noticed, never served, and repaired from the leader."""

    name: ClassVar[str] = "flip-bit"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FLIP_BIT})
    destructive: ClassVar[bool] = True

    def __init__(self, only: int | None = None) -> None:
        """`only`: the node that rotted before. That rot may be undetected yet, and all other nodes must stay sound."""
        self.only = only

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        """Pick a node without which every partition is whole."""
        view = await testbed.view()
        nodes = testbed.nodes if self.only is None else (self.only,)
        node_id = any_of(frozenset(each for each in nodes if view.is_whole_without(each)), chance)
        if node_id is None or not await testbed.flip_bit(node_id, chance.random()):
            return ""
        self.only = node_id
        return f"node {node_id}"

    async def heal(self, testbed: Testbed) -> None:
        """Leave it: the cluster repairs it."""
