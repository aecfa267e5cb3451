"""The nemesis injects faults into a testbed, heals them, and records when: on any loop, on any testbed.

One plan decides what comes next: `Steps` in turn, `RotatingMix` a few at a time that change. The laws: a
fault that needs more than the testbed has is recorded as not run. Destructive faults strike singly, and only while all
other nodes have everything. The next waits until the cluster is whole again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults import FAULTS
from raftlog_chaos.faults.disks import FlipBit
from raftlog_chaos.faults.fault import Fault
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

Event = Literal["inject", "heal", "not run"]

LOOK_S: Final = 0.05
"""How often a destructive fault checks whether the cluster is whole."""
RETURN_S: Final = 30.0
"""How long a step waits for the return of nodes from the step before."""
MAX_AT_ONCE: Final = 3
"""Kinds of faults in one period of a rotating mix."""
STRIKE_S: Final = 5.0
"""The mean time between faults of a mix, seconds."""
HEAL_RATE: Final = 0.7
"""How often all faults are healed before the next fault."""
DISK_TROUBLES: Final = frozenset({Ability.SLOW_DISK, Ability.FULL_DISK, Ability.FAILING_DISK})


class NemesisEvent(NamedTuple):
    """One action of the nemesis. `at_s` is loop seconds; for "not run", `target` is the reason."""

    at_s: float
    event: Event
    fault: str
    target: str


class Step(NamedTuple):
    """One fault for some seconds, then rest for some seconds."""

    fault: str
    for_s: float
    rest_s: float


class Steps(NamedTuple):
    """Faults in this order, again and again."""

    steps: Sequence[Step]


class RotatingMix(NamedTuple):
    """Every `period_s` up to three other faults, again and again; `quiet_share` of the periods have none."""

    period_s: float
    quiet_share: float
    faults: Sequence[str]


Plan = Steps | RotatingMix


class Nemesis:
    """Injects faults into a testbed by a plan. `timeline` and `counts` record them."""

    def __init__(self, testbed: Testbed, chance: random.Random, plan: Plan) -> None:
        self.testbed = testbed
        self.plan = plan
        self.timeline: list[NemesisEvent] = []
        self.counts: Counter[str] = Counter()
        """How often each fault struck a node."""
        self.active: list[tuple[Fault, str]] = []
        """Injected faults that are not healed yet, with their targets."""
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._wounded = False
        """A destructive fault struck, and the cluster was not seen whole since."""
        self._rotten: int | None = None
        """The node whose disk rots in this run: unread rot is not repaired, so no other disk may rot."""
        self._missing: set[str] = set()

    async def run(self, seconds: float) -> None:
        """Inject faults for so long. A fault at the end stays until `calm`."""
        end = self._loop.time() + seconds
        if isinstance(self.plan, Steps):
            await self._step(self.plan, end)
        else:
            await self._rotate(self.plan, end)

    async def calm(self) -> None:
        """Heal every fault, also of others, and start every node. Do not wait until the cluster is well."""
        testbed = self.testbed
        for fault, _ in tuple(self.active):
            await self.heal(fault)
        await testbed.heal_links()
        for node_id in testbed.nodes:
            await testbed.resume(node_id)
            if testbed.abilities & DISK_TROUBLES:
                await testbed.trouble_disk(node_id, DiskTrouble())
            if Ability.CLOCK in testbed.abilities:
                await testbed.set_clock(node_id, 0)
            await testbed.start(node_id)

    # --- one fault

    async def inject(self, name: str) -> Fault | None:
        """Inject a fault now. None if the testbed cannot, or if there is no node to strike."""
        kind = FAULTS[name]
        lacking = kind.needs - self.testbed.abilities
        if lacking:
            if name not in self._missing:
                self._missing.add(name)
                self._note("not run", name, f"{self.testbed.name} lacks {', '.join(sorted(lacking))}")
            return None
        if kind.destructive and not await self._may_destroy():
            return None
        fault = FlipBit(self._rotten) if kind is FlipBit else kind()
        target = await fault.inject(self.testbed, self._chance)
        if not target:
            return None
        if isinstance(fault, FlipBit):
            self._rotten = fault.only
        self._wounded |= kind.destructive
        self.counts[name] += 1
        self.active.append((fault, target))
        self._note("inject", name, target)
        return fault

    async def heal(self, fault: Fault) -> None:
        """Heal what `inject` returned."""
        for index, (each, target) in enumerate(self.active):
            if each is fault:
                del self.active[index]
                await fault.heal(self.testbed)
                self._note("heal", fault.name, target)
                return

    async def _may_destroy(self) -> bool:
        if any(fault.destructive for fault, _ in self.active):
            return False
        if self._wounded:
            self._wounded = not is_whole(await self.testbed.view(), self.testbed)
        return not self._wounded

    def _note(self, event: Event, fault: str, target: str) -> None:
        self.timeline.append(NemesisEvent(self._loop.time(), event, fault, target))

    # --- plans

    async def _step(self, plan: Steps, end: float) -> None:
        turn = 0
        while self._loop.time() < end:
            name, for_s, rest_s = plan.steps[turn % len(plan.steps)]
            turn += 1
            await self._returned(min(end, self._loop.time() + RETURN_S))
            if self._loop.time() >= end:
                return
            fault = await self._inject_within(name, min(end, self._loop.time() + for_s + rest_s))
            if fault is not None:
                await asyncio.sleep(min(for_s, max(0.0, end - self._loop.time())))
                await self.heal(fault)
            await asyncio.sleep(min(rest_s, max(0.0, end - self._loop.time())))

    async def _returned(self, until: float) -> None:
        """Wait until every running node is ready.

        A step is about its own fault. On a busy machine a restarted node takes seconds to come back. A fault that kills
        another node meanwhile leaves no majority, and measures that.
        """
        while self._loop.time() < until:
            view = await self.testbed.view()
            if view.running - view.paused <= view.ready:
                return
            await asyncio.sleep(LOOK_S)

    async def _inject_within(self, name: str, until: float) -> Fault | None:
        """Inject a step's fault as soon as there is a node to strike."""
        while (fault := await self.inject(name)) is None and name not in self._missing:
            if self._loop.time() + LOOK_S > until:
                break
            await asyncio.sleep(LOOK_S)
        return fault

    async def _rotate(self, plan: RotatingMix, end: float) -> None:
        able = [name for name in plan.faults if not FAULTS[name].needs - self.testbed.abilities]
        for name in plan.faults:
            if name not in able:
                await self.inject(name)  # notes that it is not run
        while self._loop.time() < end:
            period_end = min(end, self._loop.time() + plan.period_s)
            if able and self._chance.random() >= plan.quiet_share:
                await self._strike_until(period_end, self._draw(able))
            await asyncio.sleep(max(0.0, period_end - self._loop.time()))
            for fault, _ in tuple(self.active):
                await self.heal(fault)

    def _draw(self, able: Sequence[str]) -> list[str]:
        return self._chance.sample(able, self._chance.randint(1, min(MAX_AT_ONCE, len(able))))

    async def _strike_until(self, end: float, names: Sequence[str]) -> None:
        """Strike now and then, sometimes twice before healing; the same fault may strike another node next."""
        strike_s = min(STRIKE_S, end - self._loop.time())
        while (left := end - self._loop.time()) > 0:
            await self.inject(self._chance.choice(names))
            await asyncio.sleep(min(left, strike_s * self._chance.uniform(0.1, 0.6)))
            if self._chance.random() < HEAL_RATE:
                for fault, _ in tuple(self.active):
                    await self.heal(fault)
            await asyncio.sleep(
                max(0.0, min(end - self._loop.time(), strike_s * self._chance.uniform(0.0, 0.4)))
            )


def is_whole(view: ClusterState, testbed: Testbed) -> bool:
    """Return whether every node is ready, and every partition has a leader and all its replicas in sync."""
    return (
        view.ready == frozenset(testbed.nodes)
        and not view.voters_behind
        and all(
            each.leader is not None and each.isr == each.replicas
            for each in (*view.partitions.values(), *view.internal.values())
        )
    )
