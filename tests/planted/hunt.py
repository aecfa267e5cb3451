"""Hunts a planted bug, seed by seed, and separates findings of a scenario from errors of the plant itself.

A plant is found if an assertion of a scenario, a checker or raftlog failed. A plant is broken if its own code fails
(AttributeError and the like), even if a node only logs that. It is also broken if the scenario fails at the same seed
without the plant.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from raftlog.base.log import configure_log
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.loop import OVER_THE_LIMIT
from tests.planted.plant import Plant, Scenario

ROOT = Path(__file__).resolve().parents[2]

RECOVERY_S = 900.0
"""Virtual seconds that a scenario may go on beyond its own length."""

STEPS_AT_MOST = 400_000
"""Callbacks of one run: a cluster in an endless loop has been found out by then."""

_OWN_FAULT = re.compile(
    r"\b(AttributeError|TypeError|NameError|UnboundLocalError|ImportError|RecursionError|NotImplementedError)\b"
)


class BrokenPlant(Exception):
    """The plant or the scenario failed, not the harness's check of raftlog."""


class Catch(NamedTuple):
    """How a hunt ended. `seed` None: no finding in `tried` seeds; 0: a unit test found it.

    `seconds` is processor time, of a unit test elapsed time.
    """

    seed: int | None
    tried: int
    seconds: float
    seen: str

    @property
    def by_limit(self) -> bool:
        """Whether the scenario only spent its steps or its time, so that no judge found anything."""
        return self.seen.startswith(f"seed {self.seed}: {OVER_THE_LIMIT}")


class ErrorLog:
    """A stream for the nodes' log: keeps the errors of one run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line)

    def flush(self) -> None:
        """Do no work: all lines are written at once."""

    def isatty(self) -> bool:
        return False


_errors = ErrorLog()


def listen() -> None:
    """Collect the nodes' errors from now on; once in a separate process, before its first log line."""
    configure_log(level="error", format="json", stream=_errors)


def run_seed(scenario: Scenario, seconds: float, seed: int) -> str | None:
    """Run a scenario once; return its finding, None if all was well. Raises BrokenPlant."""
    _errors.lines.clear()
    seen: str | None = None

    async def run(loop: SimLoop) -> None:
        loop.max_steps = STEPS_AT_MOST
        await scenario(loop, seconds)

    try:
        simulate(run, seed=seed, limit_s=seconds + RECOVERY_S)
    except AssertionError as error:
        seen = " ".join(str(error).split()) or repr(error)
    except Exception as error:
        raise BrokenPlant(f"seed {seed}: {error!r}") from error
    for text in (seen or "", *_errors.lines):
        if _OWN_FAULT.search(text):
            raise BrokenPlant(f"seed {seed}: {text[-400:]}")
    return seen


def run_test(plant: Plant) -> Catch:
    """Run the plant's test with it and without it. Raises BrokenPlant unless it fails with the plant alone."""
    began_at = time.monotonic()
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.planted.planting", plant.test)
    ends = [
        subprocess.run([*command, *more], cwd=ROOT, capture_output=True, check=False).returncode
        for more in (("--plant", plant.name), ())
    ]
    if ends != [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK]:
        raise BrokenPlant(f"{plant.test} ends with {ends[0]}, and with {ends[1]} without the plant")
    return Catch(0, 0, time.monotonic() - began_at, f"by {plant.test}")


def hunt(plant: Plant, seeds: Iterable[int], *, budget_s: float = float("inf")) -> Catch:
    """Plant the bug and try seeds until its scenario notices it, or `budget_s` of processor time are over.

    Raises BrokenPlant, also where the scenario fails at the same seed without the plant.
    """
    began_at = time.process_time()
    tried = 0
    for seed in seeds:
        tried += 1
        with pytest.MonkeyPatch.context() as patch:
            try:
                plant.plant(patch)
            except Exception as error:
                raise BrokenPlant(f"it does not fit the code: {error!r}") from error
            seen = run_seed(plant.scenario, plant.seconds, seed)
        spent = time.process_time() - began_at
        if seen is not None:
            if (alone := run_seed(plant.scenario, plant.seconds, seed)) is not None:
                raise BrokenPlant(f"seed {seed} fails without the plant: {alone}")
            return Catch(seed, tried, spent, seen)
        if spent > budget_s:
            break
    return Catch(None, tried, time.process_time() - began_at, "")
