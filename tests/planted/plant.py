"""A planted bug, and the place of all of them: every module of this folder that has a list `PLANTS`.

A plant is a monkeypatch: raftlog itself has no switch for it. Its row names the hazard and the scenario that must
notice it, which is the same that sound code passes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.simulator import SimLoop

Scenario = Callable[[SimLoop, float], Coroutine[Any, Any, object]]
"""Raises AssertionError when a promise was broken; the number is its length in virtual seconds."""


class Plant(NamedTuple):
    """One row. `hazard`: a phrase. `seconds`: for the scenario, virtual. `note`: why that is a bug.

    `test` is a unit test that fails with the plant, for a bug that few seeds show.
    """

    name: str
    hazard: str
    scenario: Scenario
    plant: Callable[[pytest.MonkeyPatch], None]
    seconds: float = 3.0
    note: str = ""
    test: str = ""


@cache
def all_plants() -> Mapping[str, Plant]:
    """Every plant by its name, in the order of their modules."""
    plants: dict[str, Plant] = {}
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.name.startswith(("test_", "__")):
            continue
        for each in getattr(importlib.import_module(f"tests.planted.{found.name}"), "PLANTS", ()):
            assert each.name not in plants, f"two plants are called {each.name}"
            plants[each.name] = each
    return plants


def scenario_name(scenario: Scenario) -> str:
    """The name of a scenario for people: that of the registry, if it is there."""
    names = (name for name, each in SCENARIOS.items() if each is scenario)
    return next(names, getattr(scenario, "__name__", "?").replace("_", "-"))
