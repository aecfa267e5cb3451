"""The judge: compares measurements of nodes and bystanders around one attack with limits. Knows no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final, Literal, NamedTuple

import msgspec

from raftlog_chaos.attacks.registry import Attack

MIB: Final = 1 << 20
Status = Literal["passed", "failed"]


class Limits(NamedTuple):
    """Limits for a cluster under attack."""

    p99_s: float = 1.0
    """The maximum p99 latency of the bystanders' acknowledgements, and of their reads."""
    busy: float = 5.0
    """The same as a multiple of their waiting time without any attack, on a busy machine."""
    peak_bytes: int = 256 * MIB
    """Resident memory of a node above idle, at every sample."""
    rest_bytes: int = 32 * MIB
    """The same once the attack is over."""
    series_bytes: int = 16 * MIB
    """How much more it may be after several attacks: freed memory lies scattered, and the next attack reuses it."""
    warm_bytes: int = 128 * MIB
    """The same when the next attack begins before all is back; the end of the session judges what is left then."""
    settle_s: float = 60.0
    """Seconds after the attack within which memory, files and connections must be back."""
    still_s: float = 20.0
    """Seconds without progress after which the bystanders' records are no longer awaited."""
    files: int = 16
    """File descriptors above the idle node's, once settled: segments roll, brokers reconnect."""
    stall_s: float = 0.25
    """Longest time that a node's loop may compute without a turn for others, seconds."""

    def of_series(self) -> Limits:
        """Return the limits of a cluster that several attacks strike."""
        return self._replace(rest_bytes=self.rest_bytes + self.series_bytes)


class Times(msgspec.Struct, frozen=True):
    """Seconds that bystanders waited. `open`: how many still wait; their age so far is counted in."""

    count: int = 0
    p99_s: float = 0.0
    max_s: float = 0.0
    open: int = 0


def times_of(took_s: Sequence[float], still_open_s: Sequence[float] = ()) -> Times:
    """Return the figures of finished waits; unfinished waits count with their age so far."""
    ordered = sorted([*took_s, *still_open_s])
    if not ordered:
        return Times()
    return Times(len(ordered), ordered[max(0, ceil(len(ordered) * 0.99) - 1)], ordered[-1], len(still_open_s))


class NodeObservation(msgspec.Struct, kw_only=True):
    """One node around an attack. Bytes are resident memory; `stall_s` None: it does not answer."""

    idle_bytes: int = 0
    peak_bytes: int = 0
    rest_bytes: int = 0
    idle_files: int = 0
    rest_files: int = 0
    strangers: dict[str, int] = {}
    """Connections of the attacker that it still holds, by port."""
    stall_s: float | None = 0.0
    ended: str = ""
    """The reason of its end; empty: it runs."""


class ClusterObservation(msgspec.Struct, kw_only=True):
    """Everything seen around one attack."""

    nodes: dict[int, NodeObservation]
    sends: Times = Times(1)
    reads: Times = Times(1)
    calm_s: float = 0.0
    """The bystanders' p99 before the first attack."""
    failed: list[str] = []
    """Errors of the bystanders."""
    fenced: list[str] = []
    errors: list[str] = []
    """Errors with a traceback in the nodes' logs."""
    records: list[str] = []
    """Acknowledged records that are lost, doubled or changed."""
    settled_s: float | None = 0.0
    """Seconds until memory, files and connections were back; None: not in time."""
    is_warm: bool = False
    """Memory was not back yet after `settled_s`, all else was; the end of the session judges the memory."""
    answered: str = ""
    seconds: float = 0.0
    guarded: str = ""
    """The reason why the attack was cut off to save the machine."""
    broken: str = ""
    """An answer that contradicts the attack's claim, or the failure of the attack itself."""


class Outcome(msgspec.Struct, kw_only=True):
    """One attack's result, as the report has it."""

    attack: str
    port: str
    claim: str
    status: Status
    faults: list[str]
    seen: ClusterObservation

    @property
    def peak_above_idle(self) -> dict[int, int]:
        """By node, how far its memory rose, bytes."""
        return {node: max(0, each.peak_bytes - each.idle_bytes) for node, each in self.seen.nodes.items()}


def conclude(attack: Attack, seen: ClusterObservation, limits: Limits) -> Outcome:
    """Return the outcome: failed if anything is beyond the limits."""
    faults = list(judge(seen, limits))
    return Outcome(
        attack=attack.name,
        port=attack.port,
        claim=attack.claim,
        status="failed" if faults else "passed",
        faults=faults,
        seen=seen,
    )


def judge(seen: ClusterObservation, limits: Limits) -> Iterator[str]:
    """Yield one line for each fault."""
    if seen.guarded:
        yield f"cut off to save the machine: {seen.guarded}"
        return
    for node, each in seen.nodes.items():
        if each.ended:
            yield f"node {node} ended: {each.ended}"
    yield from seen.fenced
    yield from seen.errors
    yield from seen.records
    yield from _of_bystanders(seen, limits)
    yield from seen.failed
    if seen.broken:
        yield seen.broken
    running = _running(seen.nodes)
    yield from _of_memory(running, limits)
    if seen.settled_s is None:
        yield from faults_at_rest(running, limits)
    for node, each in running.items():
        if each.stall_s is None:
            yield f"node {node} does not answer /metrics"
        elif each.stall_s > limits.stall_s:
            yield f"node {node}'s loop computed for up to {each.stall_s:g} s at a stretch"


def _of_bystanders(seen: ClusterObservation, limits: Limits) -> Iterator[str]:
    limit_s = max(limits.p99_s, limits.busy * seen.calm_s)
    for what, times in (("acknowledgements", seen.sends), ("reads", seen.reads)):
        if not times.count:
            yield f"bystanders: there were no {what}, so that nothing is shown"
        elif times.p99_s >= limit_s:
            waits = f", {times.open} still wait" if times.open else ""
            yield f"bystanders: p99 of {what} {times.p99_s:.2f} s, longest {times.max_s:.2f} s{waits}"


def _of_memory(nodes: Mapping[int, NodeObservation], limits: Limits) -> Iterator[str]:
    for node, each in nodes.items():
        above = each.peak_bytes - each.idle_bytes
        if above > limits.peak_bytes:
            yield f"node {node} took {above // MIB} MiB above its idle {each.idle_bytes // MIB} MiB"


def faults_at_rest(nodes: Mapping[int, NodeObservation], limits: Limits) -> Iterator[str]:
    """Yield one line for each thing that a node holds and had not when idle."""
    after = f"{limits.settle_s:g} s later"
    for node, each in nodes.items():
        above = each.rest_bytes - each.idle_bytes
        if above > limits.rest_bytes:
            yield f"node {node} keeps {above // MIB} MiB above idle {after}"
        if each.rest_files - each.idle_files > limits.files:
            yield f"node {node} keeps {each.rest_files - each.idle_files} more files open {after}"
        for port, count in each.strangers.items():
            yield f"node {node} holds {count} connections of the attacker at its {port} port {after}"


def keeps_only(seen: ClusterObservation, limits: Limits) -> bool:
    """Return whether the only faults are memory, files or connections still held: earlier attacks may have a part."""
    return set(judge(seen, limits)) <= set(faults_at_rest(_running(seen.nodes), limits))


def takes_only(seen: ClusterObservation, limits: Limits) -> bool:
    """Return whether the only faults are peaks of memory: what a warm node still had may have a part."""
    return set(judge(seen, limits)) <= set(_of_memory(_running(seen.nodes), limits))


def is_slow_only(seen: ClusterObservation, limits: Limits) -> bool:
    """Return whether the only faults are waits of the bystanders: a busy machine may have a part."""
    return set(judge(seen, limits)) <= set(_of_bystanders(seen, limits))


def is_settled(nodes: Mapping[int, NodeObservation], limits: Limits) -> bool:
    """Return whether memory, files and connections of all running nodes are back."""
    return not list(faults_at_rest(_running(nodes), limits))


def _running(nodes: Mapping[int, NodeObservation]) -> dict[int, NodeObservation]:
    return {node: each for node, each in nodes.items() if not each.ended}
