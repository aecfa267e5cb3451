"""Finds suites and testbeds, in this package and in the folder of `--chaos-dir`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from raftlog_chaos.faults import FAULTS
from raftlog_chaos.runs.rig import OpenTestbed, Unavailable
from raftlog_chaos.testbeds.testbed import Ability

SUITES: Final = Path(__file__).parents[1] / "suites"
NAMES: Final = ("processes", "namespaces", "compose")
"""The testbeds of this package, in the order in which they are tried: fewest requirements first."""


def find_suites(folder: Path | None) -> Path:
    """Return the folder of case files: `suites` in the given folder, or this package's. Raises FileNotFoundError."""
    suites = SUITES if folder is None else folder / "suites"
    if not suites.is_dir():
        raise FileNotFoundError(f"there is no folder {suites}")
    return suites


class TestbedKind:
    """One kind of testbed: its abilities, and how to open it."""

    def __init__(self, name: str, module: ModuleType) -> None:
        self.name = name
        self._module = module

    @property
    def abilities(self) -> frozenset[Ability]:
        """The abilities of a testbed of this kind."""
        return frozenset(self._module.ABILITIES)

    def why_not_here(self) -> str:
        """Return the reason why this machine cannot have such a testbed, or ""."""
        return str(getattr(self._module, "why_not_here", str)())

    def lacks(self, faults: Iterable[str]) -> list[str]:
        """Return the faults that cannot be injected here."""
        return [each for each in faults if not FAULTS[each].needs <= self.abilities]

    async def open(
        self, directory: Path, *, nodes: int, settings: Mapping[str, str], seed: int, secured: bool = False
    ) -> OpenTestbed:
        """Start a cluster with its files in `directory`. Raises Unavailable, or the error of the start."""
        more: dict[str, bool] = {}
        if secured:
            if not getattr(self._module, "CAN_SECURE", False):
                raise Unavailable("has no listener with TLS and logins")
            more["secured"] = True
        testbed: OpenTestbed = await self._module.open_testbed(
            directory, nodes=nodes, settings=settings, seed=seed, **more
        )
        return testbed


def _load(path: Path) -> ModuleType:
    """Import a file that is not part of a package."""
    name = f"raftlog_chaos_testbed_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_testbeds(folder: Path | None = None) -> dict[str, TestbedKind]:
    """Return testbeds by name: first this package's in the order of NAMES, then the files in `folder`/testbeds."""
    modules = {name: importlib.import_module(f"raftlog_chaos.testbeds.{name}") for name in NAMES}
    own = sorted((folder / "testbeds").glob("[!_]*.py")) if folder is not None else []
    modules |= {path.stem: _load(path) for path in own}
    return {name: TestbedKind(name, module) for name, module in modules.items()}


def fitting(testbeds: Mapping[str, TestbedKind], faults: Iterable[str]) -> list[TestbedKind]:
    """Return the testbeds in the order to try them: first the testbed that can inject the most faults."""
    names = tuple(faults)
    return sorted(testbeds.values(), key=lambda each: len(each.lacks(names)))
