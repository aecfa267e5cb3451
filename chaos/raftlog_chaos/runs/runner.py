"""Runs one case on a ground: quiet, faults, healing, and the final reading of everything. It does not judge.

The order is law: clients write before the first fault and until the cluster is whole again; only then they read all. A
phase ends once progress stops. Errors on the way are recorded rather than raised, so that the remaining phases still
happen.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from raftlog.testing.progress import STALL_S, Stalled, Wait
from raftlog_chaos.faults import FAULTS
from raftlog_chaos.faults.nemesis import Nemesis, Plan, RotatingMix, Step, Steps
from raftlog_chaos.history import Op, Recorder
from raftlog_chaos.runs.case import Case, Faults
from raftlog_chaos.runs.commit_meter import CommitMeter
from raftlog_chaos.runs.meter import Beats, Meter
from raftlog_chaos.runs.record import Phase, Record, injections
from raftlog_chaos.runs.rig import Rig, Unavailable
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.queue_workload import QueueOptions, QueueWorkload
from raftlog_chaos.workloads.schema_workload import SchemaOptions, SchemaWorkload

METER_TOPIC: Final = "heartbeats"
METER_PARTITIONS: Final = 3
REPLICAS: Final = 3
TOPIC_CONFIGS: Final = {"min.insync.replicas": "2"}
LOOK_S: Final = 0.1
"""How often the runner checks whether the cluster is whole, and reports progress."""
PHASE_STALL_S: Final = 2 * STALL_S
"""A phase ends where its own waits do not."""
SETTLE_S: Final = 0.5
"""Writing goes on so long after the cluster is whole."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run, for observers. `active` are the faults at work."""

    case: Case
    phase: str
    phase_s: float
    phase_of_s: float
    acked: int
    read: int
    active: tuple[str, ...] = ()


OnProgress = Callable[[Progress], object]


class Runner:
    """One run of one case. `keep` gets every operation of the history.

    Raises Unavailable if a case needs schema registries and there are none.
    """

    def __init__(
        self,
        case: Case,
        ground: Rig,
        *,
        seed: int,
        keep: Callable[[Op], object],
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._ground = ground
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self.record = Record(
            case,
            ground.testbed.name,
            seed,
            began_at=self._loop.time(),
            began_wall_s=ground.wall_s(),
        )
        self._keep = keep
        self._recorder = Recorder(lambda: int((self._loop.time() - self.record.began_at) * 1e9), self._note)
        chance = random.Random(f"{seed}/{case.name}")
        self._nemesis = Nemesis(ground.testbed, random.Random(chance.random()), plan_of(case.faults))
        self._workload = LogWorkload(
            self._recorder, ground.open_port, random.Random(chance.random()), options_of(case)
        )
        self._queue: QueueWorkload | None = None
        if case.queue_terms is not None and ground.queue_ports is not None:
            self._queue = QueueWorkload(
                self._recorder, ground.queue_ports, random.Random(chance.random()), queue_options_of(case)
            )
        self._schemas: SchemaWorkload | None = None
        if case.workload.registrars:
            if ground.registries is None:
                raise Unavailable("has no schema registries")
            options = SchemaOptions(case.workload.registrars)
            self._schemas = SchemaWorkload(
                self._recorder, ground.registries, random.Random(chance.random()), options
            )
        self._meter: Meter | None = None
        self._commit_meter: CommitMeter | None = None
        self._stalled = ""
        """Why the last phase was aborted."""

    def _note(self, op: Op) -> None:
        self.record.tally.keep(op)
        self._keep(op)

    async def run(self) -> Record:
        """Run all phases. Nodes are left running; the opener of the place closes it."""
        record, case = self.record, self.record.case
        record.not_run = missing(case.faults.names, self._ground)
        try:
            async with self._phase("start"):
                await self._begin()
            async with self._phase("quiet", case.faults.quiet_s):
                await asyncio.sleep(case.faults.quiet_s)
            async with self._phase("faults", case.faults.seconds):
                await self._nemesis.run(case.faults.seconds)
            async with self._phase("heal"):
                await self._heal()
            async with self._phase("read"):
                await self._read()
        finally:
            await self._end()
        return record

    @asynccontextmanager
    async def _phase(self, name: str, planned_s: float = 0.0) -> AsyncIterator[None]:
        """Run a phase that lasts as long as planned, and longer as long as anything progresses."""
        began_s = self._now_s()
        watch: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(None) as limit:
                watch = asyncio.ensure_future(self._watch(name, planned_s, limit))
                yield
        except TimeoutError:
            self.record.troubles.append(self._stalled)
        except (AssertionError, OSError, RuntimeError, ValueError) as error:
            self.record.troubles.append(f"{name}: {type(error).__name__}: {error}")
        finally:
            if watch is not None:
                watch.cancel()
            self.record.phases.append(Phase(name, began_s, self._now_s()))

    def _now_s(self) -> float:
        return self._loop.time() - self.record.began_at

    async def _watch(self, phase: str, of_s: float, limit: asyncio.Timeout) -> None:
        """Report the progress of the phase repeatedly, and end it once progress stops."""
        began_s, tally = self._now_s(), self.record.tally
        wait: Wait | None = None
        while True:
            now_s = self._now_s()
            if wait is None and now_s - began_s >= of_s:
                wait = self._wait(f"the phase {phase} ends", self._progress, stall_s=PHASE_STALL_S)
            try:
                if wait is not None:
                    wait.pause()
            except Stalled as error:
                self._stalled = str(error)
                limit.reschedule(self._loop.time())
                return
            self._gather(now_s)
            active = tuple(
                f"{each.fault} {each.target}".strip()
                for each in self.record.injections
                if each.until_s >= now_s
            )
            self._on_progress(
                Progress(self.record.case, phase, now_s - began_s, of_s, tally.acked, tally.read, active)
            )
            await asyncio.sleep(LOOK_S)

    def _progress(self) -> str:
        tally = self.record.tally
        settled = f", {len(self._queue.settled)} of a queue" if self._queue else ""
        settled += f", {self._schemas.registered} schemas" if self._schemas else ""
        acks = sum(len(each.acked_at) for each in self._meter.beats) if self._meter else 0
        return f"{tally.acked} writes and {acks} beats acknowledged, {tally.read} records read{settled}"

    def _wait(self, what: str, seen: Callable[[], object], *, stall_s: float = STALL_S) -> Wait:
        return Wait(what, seen=seen, signs=self._ground.signs, clock=self._loop.time, stall_s=stall_s)

    def _gather(self, now_s: float) -> None:
        self.record.injections = list(injections(self._nemesis.timeline, self.record.began_at, now_s))

    # --- the phases

    async def _begin(self) -> None:
        port = self._ground.open_port(self._recorder.new_process(), "writer")
        try:
            await port.create_topic(
                METER_TOPIC,
                partitions=METER_PARTITIONS,
                replicas=min(REPLICAS, self.record.case.nodes),
                configs=TOPIC_CONFIGS,
            )
        finally:
            await port.close()
        self._meter = self._ground.open_meter(METER_TOPIC, METER_PARTITIONS)
        await self._meter.start()
        if self.record.case.is_about_coordinators and self._ground.open_commit_meter is not None:
            self._commit_meter = self._ground.open_commit_meter(METER_TOPIC)
            await self._commit_meter.start()
        self._workload.start()
        for each in (self._queue, self._schemas):
            if each is not None:
                each.start()

    async def _heal(self) -> None:
        self._see_fallen()
        await self._nemesis.calm()
        began_s = self._now_s()
        lacks = await self._lacks()
        wait = self._wait("the cluster is whole", lambda: "; ".join(lacks))
        while lacks:
            try:
                wait.pause()
            except Stalled as error:
                self.record.troubles.append(str(error))
                return
            await asyncio.sleep(LOOK_S)
            lacks = await self._lacks()
        self.record.whole_after_s = self._now_s() - began_s
        await asyncio.sleep(SETTLE_S)

    async def _lacks(self) -> list[str]:
        testbed = self._ground.testbed
        view = await testbed.view()
        return view.lacks(testbed.nodes)

    async def _read(self) -> None:
        for meter in (self._meter, self._commit_meter):
            if meter is not None:
                await meter.stop()
        missing = await self._workload.finish(STALL_S, signs=self._ground.signs)
        if self._queue is not None:
            due = self._workload.generator.acked
            left = await self._queue.finish(due, STALL_S, signs=self._ground.signs)
            self.record.troubles += [
                f"{key}: the share group begins at {self._queue.starts.get(key)}, but {offset} was acknowledged"
                for key, offset in sorted(left.items())
            ]
        if self._schemas is not None:
            nodes = await self._schemas.finish(STALL_S, signs=self._ground.signs)
            self.record.troubles += [f"node {each}: its schemas cannot be read" for each in nodes]
        self.record.read_all = not missing
        self.record.troubles += [
            f"{key}: not read up to offset {offset}, which was acknowledged"
            for key, offset in sorted(missing.items())
        ]

    def _see_fallen(self) -> None:
        seen = [f"node {node}: {how}" for node, how in self._ground.testbed.fallen().items()]
        self.record.fallen += [each for each in seen if each not in self.record.fallen]

    async def _end(self) -> None:
        self._see_fallen()
        self._gather(self._now_s())
        if self._meter is not None:
            await self._meter.stop()
            self.record.meter_errors = self._meter.errors
            self.record.beats = [_shifted(each, self.record.began_at) for each in self._meter.beats]
        if self._commit_meter is not None:
            await self._commit_meter.stop()
            self.record.troubles += self._commit_meter.faults
            self.record.commits = {
                name: [_shifted(each, self.record.began_at) for each in beats]
                for name, beats in self._commit_meter.beats.items()
            }
        self._workload.stop()
        async with self._phase("end"):
            await self._workload.close()
        self.record.troubles += self._workload.faults
        if self._queue is not None:
            async with self._phase("end of the queue"):
                await self._queue.close()
            self.record.troubles += self._queue.faults
        if self._schemas is not None:
            async with self._phase("end of the registry"):
                await self._schemas.close()
            self._schemas.port.close()
            self.record.troubles += self._schemas.faults
        self.record.left_behind = list(self._ground.left_behind)


def _shifted(beats: Beats, by_s: float) -> Beats:
    return Beats(array("d", (each - by_s for each in beats.acked_at)), beats.took_s)


def plan_of(faults: Faults) -> Plan:
    """Return the nemesis's plan for a case."""
    if faults.steps:
        return Steps([Step(each.fault, each.for_s, each.rest_s) for each in faults.steps])
    return RotatingMix(faults.period_s, faults.quiet_share, faults.mix)


def options_of(case: Case) -> LogOptions:
    """Return the workload's options for a case."""
    workload = case.workload
    return LogOptions(
        clients=workload.clients,
        writers=workload.writers,
        readers=workload.readers,
        careless=workload.careless,
        transformers=workload.transformers,
        subscribe=workload.subscribe,
        members=workload.members,
        txn=workload.transactions,
        rate=workload.rate,
        keys=workload.keys,
        partitions=workload.partitions,
        replicas=min(REPLICAS, case.nodes),
        topic_configs=TOPIC_CONFIGS,
        writes_per_key=workload.writes_per_key,
        longest=workload.longest,
        crash_every_s=workload.crash_every_s,
    )


def queue_options_of(case: Case) -> QueueOptions:
    """Return the options of a case's workers: they read every topic that is written to."""
    log, terms = options_of(case), case.queue_terms
    assert terms is not None
    topics = -(-log.keys // log.partitions)
    return QueueOptions(
        group=f"{log.prefix}-queue",
        keys=tuple(
            f"{log.prefix}{topic}-{index}" for topic in range(topics) for index in range(log.partitions)
        ),
        workers=case.workload.workers,
        terms=terms,
        crash_every_s=log.crash_every_s,
    )


def missing(names: tuple[str, ...], ground: Rig) -> dict[str, str]:
    """Return the faults that a place can't inject, and what it lacks."""
    abilities = ground.testbed.abilities
    return {
        name: f"{ground.testbed.name} lacks {', '.join(sorted(FAULTS[name].needs - abilities))}"
        for name in names
        if not FAULTS[name].needs <= abilities
    }
