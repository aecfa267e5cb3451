"""Decides which faults happen when, and heals everything in the end. Drives any place, on any loop.

The laws: what destroys data hits one and the same node for the whole run, and only while all others have everything;
whatever was injected is healed, in the order of injection; what the place can't do is noted as not run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from raftlog.proof.faults import FAULTS
from raftlog.proof.faults.fault import Fault
from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, DiskTrouble, Place

STRIKE_S: Final = 5.0
"""In a mix something new happens about this often."""
OVERLAP: Final = 1 / 3
"""So often a second fault is injected while one is at work."""
MOST_KINDS: Final = 3
"""So many kinds of faults make up a mix, at most."""

Event = Literal["inject", "heal", "not run"]


class Moment(NamedTuple):
    """One thing that the nemesis did. `at_s` is the loop's time; `target` "": nobody was there to be hit."""

    at_s: float
    event: Event
    fault: str
    target: str


class Step(NamedTuple):
    """One fault for so long, then rest for so long, seconds."""

    fault: str
    for_s: float
    rest_s: float


class Steps(NamedTuple):
    """One after the other, and round again."""

    steps: Sequence[Step]

    @property
    def faults(self) -> Sequence[str]:
        return [each.fault for each in self.steps]


class RotatingMix(NamedTuple):
    """Another mix of some of these faults every `period_s` seconds; `quiet_share` of the periods are without."""

    period_s: float
    quiet_share: float
    faults: Sequence[str]


Plan = Steps | RotatingMix


class Nemesis:
    """`run` for a while, then `calm`. `timeline` tells what was done."""

    def __init__(self, place: Place, chance: random.Random, plan: Plan) -> None:
        self.timeline: list[Moment] = []
        self._place = place
        self._chance = chance
        self._plan = plan
        self._active: list[tuple[Fault, str]] = []
        self._victim: int | None = None
        """The one node whose data may be destroyed in this run."""
        names = dict.fromkeys(plan.faults)
        self._possible = [each for each in names if FAULTS[each].needs <= place.abilities]
        for each in names:
            if each not in self._possible:
                self._note("not run", each, ", ".join(sorted(FAULTS[each].needs - place.abilities)))

    def _note(self, event: Event, fault: str, target: str) -> None:
        self.timeline.append(Moment(asyncio.get_running_loop().time(), event, fault, target))

    async def run(self, seconds: float) -> None:
        """Hurt the place for that long. What is at work then stays so until `calm`."""
        loop = asyncio.get_running_loop()
        end_at = loop.time() + seconds
        while loop.time() < end_at:
            if not self._possible:
                await self._sleep(seconds, end_at)
            elif isinstance(self._plan, Steps):
                await self._take_steps(self._plan, end_at)
            else:
                await self._rotate(self._plan, end_at)

    async def _sleep(self, seconds: float, end_at: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, end_at - asyncio.get_running_loop().time())))

    async def _take_steps(self, plan: Steps, end_at: float) -> None:
        loop = asyncio.get_running_loop()
        for step in plan.steps:
            if step.fault in self._possible and loop.time() < end_at:
                await self._inject(step.fault)
                await self._sleep(step.for_s, end_at)
                await self._heal_all()
                await self._sleep(step.rest_s, end_at)

    async def _rotate(self, plan: RotatingMix, end_at: float) -> None:
        """Let one period pass."""
        loop, chance = asyncio.get_running_loop(), self._chance
        period_end_at = min(loop.time() + plan.period_s, end_at)
        if chance.random() < plan.quiet_share:
            await self._sleep(plan.period_s, end_at)
            return
        kinds = chance.sample(self._possible, min(chance.randint(1, MOST_KINDS), len(self._possible)))
        strike_s = min(STRIKE_S, plan.period_s)
        while loop.time() < period_end_at:
            await self._sleep(strike_s * chance.uniform(0.0, 0.3), period_end_at)
            await self._inject(chance.choice(kinds))
            if chance.random() < OVERLAP:
                await self._sleep(strike_s * chance.uniform(0.0, 0.2), period_end_at)
                await self._inject(chance.choice(kinds))
            await self._sleep(strike_s * chance.uniform(0.2, 0.5), period_end_at)
            await self._heal_all()

    async def _inject(self, name: str) -> None:
        fault = FAULTS[name]()
        if fault.destructive and isinstance(fault, OneNode):
            fault.only = self._victim
        at_s = asyncio.get_running_loop().time()
        target = await fault.inject(self._place, self._chance)
        self.timeline.append(Moment(at_s, "inject", name, target))
        if target:
            self._active.append((fault, target))
            if fault.destructive and isinstance(fault, OneNode):
                self._victim = fault.node

    async def _heal_all(self) -> None:
        while self._active:
            fault, target = self._active[0]
            await fault.heal(self._place)
            self._active.pop(0)
            self._note("heal", fault.name, target)

    async def calm(self) -> None:
        """Heal everything, whoever did it, and start every node."""
        place = self._place
        await self._heal_all()
        await place.heal_links()
        for node in place.nodes:
            await place.resume(node)
            if place.abilities & {Ability.SLOW_DISK, Ability.FULL_DISK, Ability.FAILING_DISK}:
                await place.trouble_disk(node, DiskTrouble())
            if Ability.CLOCK in place.abilities:
                await place.set_clock(node, 0)
            await place.start(node)
