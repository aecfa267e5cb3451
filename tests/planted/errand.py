"""A job of a worker process: hunt a plant, or run a scenario without any."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.planted.hunt import BrokenPlant, Catch, hunt, listen, run_seed, run_test
from tests.planted.plant import Plant, all_plants


class Task(NamedTuple):
    """Work for a process of its own, by name, since functions don't travel."""

    plant: str
    seeds: Sequence[int]
    budget_s: float = 0.0
    control: bool = False


class Outcome(NamedTuple):
    task: Task
    catch: Catch | None
    fault: str = ""

    @property
    def seed(self) -> int | None:
        """The seed that found the plant; 0: a unit test did; None: nothing, or the plant is broken."""
        return self.catch.seed if self.catch else None


def carry_out(task: Task) -> Outcome:
    """Hunt a plant or, as a control, run its scenario without it."""
    listen()
    plant = all_plants()[task.plant]
    try:
        if task.control:
            return _control(task, plant)
        catch = run_test(plant) if plant.test else hunt(plant, task.seeds, budget_s=task.budget_s)
        return Outcome(task, catch)
    except BrokenPlant as error:
        return Outcome(task, None, f"broken: {error}")


def _control(task: Task, plant: Plant) -> Outcome:
    began_at = time.process_time()
    for seed in task.seeds:
        seen = run_seed(plant.scenario, plant.seconds, seed)
        if seen is not None:
            return Outcome(task, None, f"without a plant, seed {seed}: {seen}")
    return Outcome(task, Catch(None, len(task.seeds), time.process_time() - began_at, ""))
