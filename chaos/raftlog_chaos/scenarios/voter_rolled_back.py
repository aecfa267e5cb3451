"""A voter comes back with an older copy of its metadata folder, so that it has lost entries and votes.

Whichever two voters are left, no acknowledged topic may be lost. An older copy gives no vote once it has met a voter
with newer knowledge. Voters that were only killed, at any moment of their start, must elect without help.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final
from uuid import UUID

from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.voter_identity import LOOK_S, STALE_S, VoterIdentity
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.simulator.medium import Folder
from raftlog_chaos.simulator.testbed import METADATA

EVERYTHING: Final = "/data"
WRITTEN_S: Final = 1.0
"""All voters have written their state to disk within this, virtual seconds."""

CHANGES: Final = 12
"""A start makes about as many changes of the metadata folder before it asks for votes."""


class VoterRolledBack(VoterIdentity):
    """The stage of `VoterIdentity`, and what a copy that is too old does there."""

    def voter_directory(self, node_id: int) -> UUID | None:
        """Return the directory id by which a running voter goes, or None."""
        node = self.cluster.nodes[node_id].node
        quorum = node.control.quorum if node is not None else None
        return quorum.driver.directory_id if quorum is not None and quorum.started else None

    def bring_back(self, victim: int, copied: Folder) -> None:
        """Replace a stopped node's folders by the copy, or only the metadata."""
        folder = self.chance.choice((EVERYTHING, METADATA))
        self.cluster.nodes[victim].host.disk.restore(copied, folder)

    async def _copy_and_restart(self, victim: int) -> Folder:
        """Copy a node's disk, and let it live once more, so that all have heard of a newer incarnation."""
        copied = self.cluster.nodes[victim].host.disk.snapshot()
        self.cluster.restart(victim, power_loss=self.power())
        await self.whole()
        await self.cluster.until(lambda: len(self._incarnations(victim)) == 2, SERVED_S, "links to the voter")
        await asyncio.sleep(WRITTEN_S)
        return copied

    async def _found_out(self, victim: int, former: UUID | None) -> None:
        def is_another() -> bool:
            return self.voter_directory(victim) not in (None, former)

        await self.cluster.until(
            is_another, SERVED_S, f"voter {victim} finds out that its folder is an older copy"
        )

    async def _start_unseen(self, victim: int) -> None:
        for _ in range(2):
            self.cluster.start(victim)
            await asyncio.sleep(WRITTEN_S)
            self.cluster.crash(victim)

    # -- what is done

    async def older_copy_and_laggard(self) -> None:
        """Roll back a voter that had a topic, while another lacks it: the two elect no leader without the third."""
        leader = await self.controller()
        victim, laggard = self._followers_of(leader)
        copied = await self._copy_and_restart(victim)
        leader = await self.controller()
        if victim == leader:
            return
        former = self.voter_directory(victim)
        self._cut_controllers(laggard, [leader, victim])
        if not await self.create(leader, victim):
            self.loop.heal()
            return
        self.cluster.crash(leader, victim)
        self.bring_back(victim, copied)
        if self.chance.random() < 0.5:  # what it heard is on its disk
            self.cluster.restart(laggard)
        if (
            self.chance.random() < 0.5
        ):  # the older copy is started more often than the newer folder was, unseen
            await self._start_unseen(victim)
        self.loop.heal()
        self.cluster.start(victim)
        await self._nobody_leads("the only one with all metadata is down")
        await self._found_out(victim, former)
        if self.chance.random() < 0.5:  # nor once it was started again, with a number that no voter has heard
            self.cluster.restart(victim)
            await self._nobody_leads("the older copy was started once more")
        self.cluster.start(leader)

    async def older_copy_and_stale_leader(self) -> None:
        """Reconnect a deposed leader with a voter that lost its vote for the new leader with its newer folder."""
        first = await self.controller()
        victim = self._followers_of(first)[0]
        copied = await self._copy_and_restart(victim)
        leader = await self.controller()
        if victim == leader:
            return
        (heir,) = set(self.cluster.nodes) - {leader, victim}
        self._cut_controllers(leader, [heir, victim])
        for _ in range(int(STALE_S / LOOK_S)):
            if self.cluster.leader_id() == leader:
                await asyncio.sleep(LOOK_S)
        if self.cluster.leader_id() == heir and await self.create(heir, within_s=0.3):
            self.cluster.crash(victim)
            self.bring_back(victim, copied)
            self.loop.heal()
            self._cut_controllers(heir, [leader, victim])
            self.cluster.start(victim)
            await self.create(leader, within_s=2.0)
        self.loop.heal()

    async def older_copy_of_the_same_incarnation(self) -> None:
        """Restore a copy made while the voter ran, so no number is missing: its leader knows that it had more."""
        leader = await self.controller()
        victim = self._followers_of(leader)[0]
        former = self.voter_directory(victim)
        copied = self.cluster.nodes[victim].host.disk.snapshot()
        await self.create()
        await self.create()
        await self.whole()
        await asyncio.sleep(WRITTEN_S)
        if await self.controller() != leader:
            return
        self.cluster.crash(victim)
        self.bring_back(victim, copied)
        self.cluster.start(victim)
        await self._found_out(victim, former)

    async def killed_again_and_again(self) -> None:
        """Kill all voters at moments of their start, and restart only two of them: they elect a leader."""
        before = {each: self.voter_directory(each) for each in self.cluster.nodes}
        absent = self.chance.choice(sorted(self.cluster.nodes))
        await asyncio.sleep(WRITTEN_S)
        others = [each for each in self.cluster.nodes if each != absent]
        self.cluster.crash(*self.cluster.nodes, power_loss=self.power())
        for _ in range(self.chance.choice((1, 2, 5))):
            self.cluster.start(*others)
            for each in others:
                if self.chance.random() < 0.5:
                    self.cluster.crash_at_work(each, self.chance.randrange(CHANGES), lambda: None)
            await asyncio.sleep(self.a_while(0.01, 0.1, 1.0))
            self.cluster.crash(*others, power_loss=self.power())
        for each in others:
            self.cluster.nodes[each].host.disk.disarm()
        self.cluster.start(*others)
        await self.cluster.until(lambda: self.cluster.leader_id() is not None, SERVED_S, "two of three elect")
        self.cluster.start(absent)
        await self.whole()
        after = {each: self.voter_directory(each) for each in self.cluster.nodes}
        assert after == before, f"voters were only killed, and passed for older copies: {before}, {after}"


async def voter_rolled_back(loop: SimLoop, seconds: float = 20.0) -> Report:
    """Roll voters back for some virtual seconds. Raises AssertionError."""
    scene = VoterRolledBack(loop)
    await scene.begin()
    acts = [
        scene.older_copy_and_laggard,
        scene.older_copy_and_stale_leader,
        scene.older_copy_of_the_same_incarnation,
        scene.killed_again_and_again,
    ]
    await scene.act_in_turn(acts, seconds)
    report = await scene.end()
    return replace(report, faults={**report.faults, **scene.met})
