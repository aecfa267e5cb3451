"""A run of the fuzzer within this machine: chunks of frames, each from its own seed, in several processes.

Of each chunk most frames go through the decoders alone, a part through whole nodes in a simulated world. A run may
begin at any chunk of its seed: chunks are independent.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raftlog_chaos.fuzz.decoding import try_decoding
from raftlog_chaos.fuzz.draw import KnownValues
from raftlog_chaos.fuzz.error_log import hear_errors
from raftlog_chaos.fuzz.findings import Finding, Slow, Slowest
from raftlog_chaos.fuzz.frames import Frame, Frames, mutants
from raftlog_chaos.fuzz.grammar import load_schemas
from raftlog_chaos.fuzz.stuck import Stuck, bounded
from raftlog_chaos.fuzz.wire import Tally
from raftlog_chaos.fuzz.world import Plan, play, replay

CHUNK: Final = 20_000
"""Frames of one chunk."""
HANDLED: Final = 2_000
"""The number of them that go through whole nodes."""
MUTANTS: Final = 3
"""The number of mutants of each frame for the decoders."""
MEMORY_BYTES: Final = 1536 << 20
"""Memory limit of one process of the fuzzer, including its simulated nodes."""
STUCK_S: Final = 300.0
"""Processor time of one world, which takes seconds."""
KEPT: Final = 20
"""Findings of one kind that are looked at in a chunk."""


class Chunk(NamedTuple):
    """The result of one chunk."""

    seed: str
    outcomes: Counter[str]
    handled: int
    answered: int
    closed: int
    handshakes: int
    findings: list[Finding]
    slowest: list[Slow]
    peak_bytes: int


@dataclass(slots=True)
class Summary:
    """The sum of many chunks."""

    frames: int = 0
    handled: int = 0
    answered: int = 0
    closed: int = 0
    handshakes: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0
    next_chunk: int = 0
    """All chunks before this chunk are in the sum: an interrupted run can go on from it."""
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[str, Finding]] = field(default_factory=dict)
    """Keyed by key: the seed of the chunk, and the smallest finding of that kind."""
    slowest: Slowest = field(default_factory=Slowest)

    def add(self, chunk: Chunk) -> list[Finding]:
        """Add a chunk; return the findings that are new."""
        self.frames += sum(chunk.outcomes.values()) + chunk.handled
        self.handled += chunk.handled
        self.answered += chunk.answered
        self.closed += chunk.closed
        self.handshakes += chunk.handshakes
        self.peak_bytes = max(self.peak_bytes, chunk.peak_bytes)
        self.outcomes += chunk.outcomes
        self.slowest.add(chunk.slowest)
        new = []
        for finding in chunk.findings:
            known = self.findings.get(finding.key)
            if known is None or _size(finding) < _size(known[1]):
                self.findings[finding.key] = (chunk.seed, finding)
            if known is None:
                new.append(finding)
        return new


def _size(finding: Finding) -> int:
    return sum(map(len, finding.frames))


def run_chunk(seed: str, frames: int = CHUNK, handled: int = HANDLED) -> Chunk:
    """Run one chunk in this process."""
    findings: list[Finding] = []
    slowest = Slowest()
    outcomes = _decode_all(seed, frames - handled, findings, slowest)
    tally = _play_all(seed, handled, findings)
    slowest.add(tally.slowest.worst())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MEMORY_BYTES:
        findings.append(Finding("memory", f"the process took {peak >> 20} MiB", "", ()))
    return Chunk(
        seed=seed,
        outcomes=outcomes,
        handled=tally.frames,
        answered=tally.answered,
        closed=tally.closed,
        handshakes=tally.handshakes,
        findings=findings[:KEPT],
        slowest=slowest.worst(),
        peak_bytes=peak,
    )


def _decode_all(seed: str, count: int, findings: list[Finding], slowest: Slowest) -> Counter[str]:
    frames, rng = Frames(seed), random.Random(f"{seed}/mutants")
    outcomes: Counter[str] = Counter()
    while (done := sum(outcomes.values())) < count:
        drawn = frames.next()
        family = [
            drawn,
            *(Frame(each, f"{drawn.kind}, mutated") for each in mutants(drawn.data, rng, MUTANTS)),
        ]
        for frame in family[: count - done]:
            outcome = try_decoding(frame.data, frame.kind, slowest)
            if isinstance(outcome, Finding):
                findings.append(outcome)
                outcome = "refused"
            outcomes[outcome] += 1
    return outcomes


def _play_all(seed: str, count: int, findings: list[Finding]) -> Tally:
    """Go on in a new world after each finding, until that many frames were sent."""
    whole = Tally()
    number = 0
    while whole.frames < count and number < KEPT:
        known = KnownValues()
        frames = Frames(f"{seed}/{number}", known)
        world_seed = random.Random(f"{seed}/{number}").randrange(1 << 30)
        plan = Plan(iter(frames.next, None), count - whole.frames, known)
        try:
            with bounded(STUCK_S):
                tally = play(plan, seed=world_seed)
        except Stuck as error:
            findings.append(Finding.of(error, "handlers", f"world {seed}/{number}", ()))
            break
        findings += [reduced(each, world_seed) for each in tally.findings]
        whole.frames += tally.frames
        whole.answered += tally.answered
        whole.closed += tally.closed
        whole.handshakes += tally.handshakes
        whole.slowest.add(tally.slowest.worst())
        number += 1
    return whole


def reduced(finding: Finding, world_seed: int) -> Finding:
    """Return the finding with as few frames as bring it about in a new world; all, if fewer do not."""
    for last in (1, 2, 4, 16):
        some = finding.frames[-last:]
        if len(some) < len(finding.frames) and _comes_about(finding, some, world_seed):
            return finding._replace(frames=some)
    return finding


def _comes_about(finding: Finding, frames: tuple[bytes, ...], world_seed: int) -> bool:
    return any(each.key == finding.key for each in replay(finding.port, frames, seed=world_seed).findings)


# --- several processes


def run_campaign(
    summary: Summary,
    frames: int,
    *,
    seed: int,
    jobs: int,
    first: int = 0,
    on_progress: Callable[[Summary, list[Finding]], object],
) -> None:
    """Run chunks from the first on until so many frames were sent; add each to the summary and call `on_progress`.

    After an interruption the summary has the chunks that were finished.
    """
    began = time.monotonic()
    seeds = _seeds(seed, frames, first)
    summary.next_chunk, ahead = first, set[int]()
    with ProcessPoolExecutor(jobs, initializer=_prepare) as pool:
        try:
            running: set[Future[Chunk]] = {pool.submit(run_chunk, *each) for each in _some(seeds, jobs)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    new = summary.add(each.result())
                    ahead.add(number_of(each.result().seed))
                    while summary.next_chunk in ahead:
                        summary.next_chunk += 1
                    summary.seconds = time.monotonic() - began
                    on_progress(summary, new)
                running |= {pool.submit(run_chunk, *each) for each in _some(seeds, len(done))}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _seeds(seed: int, frames: int, first: int) -> Iterator[tuple[str, int, int]]:
    for number in range((frames + CHUNK - 1) // CHUNK):
        size = min(CHUNK, frames - number * CHUNK)
        yield f"{seed}/{first + number}", size, size * HANDLED // CHUNK


def number_of(seed: str) -> int:
    """Return the number of a chunk within the seed of its run."""
    return int(seed.rpartition("/")[2])


def _some(seeds: Iterator[tuple[str, int, int]], count: int) -> Iterable[tuple[str, int, int]]:
    for _ in range(count):
        each = next(seeds, None)
        if each is not None:
            yield each


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; one decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    hear_errors()
    load_schemas()
