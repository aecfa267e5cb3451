"""`python -m tests.planted`: plants bugs, one per process, and shows within how many seeds the simulator finds each.

First the code as it is passes every scenario. Then each plant is hunted, first with the seed that found it last, then
from seed 1 on. Where few seeds show it, its unit test must fail. At the end each seed of `raftlog sim --regressions`
must find its plant. A change of the code may change the run of a seed. Its row then needs another seed, which --renew
finds and writes into the table.

Exits 1 if a scenario fails without a plant, or if a plant is broken. It also exits 1 if a plant isn't found, since that
is a gap in the harness.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from raftlog_chaos import regressions
from raftlog_chaos.regressions import REGRESSIONS
from tests.planted import last_seeds
from tests.planted.errand import Outcome, Task, carry_out
from tests.planted.plant import Plant, Scenario, all_plants, scenario_name

SEEN_CHARACTERS = 110
"""Of what was noticed, in the table."""
SEEN_WIDE = 600
"""Of the same, where plants are named (--only)."""
LIMIT_ONLY = "by the limit alone: "
"""Before what was noticed of a run that spent its steps or its time: no judge has said what is wrong."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 if every plant was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seeds", type=int, default=500, help="seeds tried for each plant")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this plant; repeatable"
    )
    parser.add_argument("--budget", type=float, default=600.0, help="processor seconds for each plant")
    parser.add_argument(
        "--controls", type=int, default=4, help="seeds of each scenario without any plant, first"
    )
    parser.add_argument(
        "--regressions", action="store_true", help="only the seeds of the regressions, each for its plant"
    )
    parser.add_argument(
        "--renew",
        action="store_true",
        help="only the seeds of the regressions; a row that finds nothing gets a seed that does",
    )
    parser.add_argument(
        "--remember",
        action="store_true",
        help="write the seeds that find plants, to be tried first next time",
    )
    options = parser.parse_args(arguments)
    options.regressions |= options.renew
    plants = all_plants()
    for name in options.only:
        if name not in plants:
            parser.error(f"no plant is called {name}; there are {', '.join(plants)}")
    chosen = [each for name, each in plants.items() if name in (options.only or plants)]
    began_at = time.monotonic()
    controls = [
        Task(each.name, [*range(1, options.controls + 1)], control=True) for each in _one_per_scenario(chosen)
    ]
    seeds = range(options.first, options.first + options.seeds)
    last = last_seeds.read()
    hunts = [
        Task(each.name, last_seeds.in_order(last.get(each.name), seeds), options.budget) for each in chosen
    ]
    if options.regressions:
        controls, hunts = [], []
        if options.only and not any(each.plant in options.only for each in REGRESSIONS):
            parser.error("no regression's seed finds any of these plants")
    told = [
        Task(each.plant, [each.seed], options.budget)
        for each in REGRESSIONS
        if not options.only or (options.regressions and each.plant in options.only)
    ]
    sound = not controls or _run_controls(controls, plants, options.jobs)
    found = 0
    for outcome in _hunt(hunts, plants, options.jobs, wide=bool(options.only)):
        found += outcome.seed is not None
        if options.remember and outcome.seed:
            last[outcome.task.plant] = outcome.seed
            last_seeds.write({name: seed for name, seed in last.items() if name in plants})
    if hunts:
        print(f"{found} of {len(hunts)} plants found in {time.monotonic() - began_at:.0f} s")
    lost = [each.task for each in _hunt(told, plants, options.jobs, wide=False) if each.seed is None]
    kept = len(told) - len(lost)
    if told:
        print(f"{kept} of {len(told)} seeds of the regressions find their plants")
    if options.renew and lost:
        kept += _renew([each._replace(seeds=seeds) for each in lost], plants, options.jobs)
    return 0 if sound and found == len(hunts) and kept == len(told) else 1


def _one_per_scenario(plants: Iterable[Plant]) -> list[Plant]:
    scenarios: dict[tuple[Scenario, float], Plant] = {}
    for each in plants:
        scenarios.setdefault((each.scenario, each.seconds), each)
    return list(scenarios.values())


def _run(tasks: list[Task], jobs: int) -> Iterable[Outcome]:
    """A fresh interpreter for each, so that no plant outlives its hunt."""
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(carry_out, tasks, chunksize=1)


def _run_controls(tasks: list[Task], plants: dict[str, Plant], jobs: int) -> bool:
    sound = True
    print("without a plant")
    for task, catch, fault in _run(tasks, jobs):
        plant = plants[task.plant]
        verdict = f"{catch.tried} seeds pass in {catch.seconds:.1f} s" if catch else fault
        print(f"  {scenario_name(plant.scenario)} ({plant.seconds:g} s): {verdict}", flush=True)
        sound = sound and catch is not None
    return sound


def _hunt(tasks: list[Task], plants: dict[str, Plant], jobs: int, *, wide: bool) -> Iterator[Outcome]:
    """Print how each hunt ended, and yield it."""
    if not tasks:
        return
    width = max(len(task.plant) for task in tasks)
    hazards = max(len(plants[task.plant].hazard) for task in tasks)
    scenarios = max(len(scenario_name(plants[task.plant].scenario)) for task in tasks)
    print(f"{'plant':{width}}  {'hazard':{hazards}}  {'scenario':{scenarios}}  seeds   time  seen")
    by_limit = 0
    for outcome in _run(tasks, jobs):
        yield outcome
        task, catch, fault = outcome
        plant = plants[task.plant]
        head = f"{plant.name:{width}}  {plant.hazard:{hazards}}  {scenario_name(plant.scenario):{scenarios}}"
        if catch is None:
            print(f"{head}  {fault}", flush=True)
            continue
        by_limit += catch.by_limit
        seen = f"{LIMIT_ONLY if catch.by_limit else ''}{catch.seen}"[: SEEN_WIDE if wide else SEEN_CHARACTERS]
        verdict = seen if catch.seed is not None else "NOT FOUND"
        print(f"{head}  {catch.tried:5}  {catch.seconds:4.0f} s  {verdict}", flush=True)
    if by_limit:
        print(f"{by_limit} found by the limit alone: the scenario never came to its judges")


def _renew(tasks: list[Task], plants: dict[str, Plant], jobs: int) -> int:
    """Hunt each plant, and write its first seed into the table of regressions. Return how many were found."""
    table = Path(regressions.__file__)
    found = 0
    for task, catch, fault in _run(tasks, jobs):
        if catch is None or not catch.seed:
            print(f"{task.plant}: {fault or 'NOT FOUND'}", flush=True)
            continue
        found += 1
        scenario = scenario_name(plants[task.plant].scenario)
        row = re.compile(rf'(Regression\("{scenario}", [\d.]+, )\d+(, "{task.plant}"\))')
        table.write_text(row.sub(rf"\g<1>{catch.seed}\g<2>", table.read_text()))
        print(f"{task.plant}: seed {catch.seed} after {catch.seconds:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
