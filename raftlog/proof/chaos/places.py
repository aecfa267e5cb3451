"""Finds the folder of suites and places, and opens a place by its name, which is that of a file there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from raftlog.proof.chaos.ground import OpenPlace
from raftlog.proof.faults import FAULTS
from raftlog.proof.place import Ability

FOLDER: Final = "chaos"
FIRST: Final = ("processes", "namespaces")
IN_WHEEL: Final = Path(__file__).parents[2] / "_chaos"


def find_folder(given: Path | None) -> Path:
    """Return the folder of suites and places: the given one, ./chaos, the checkout's, or the wheel's copy.

    Raises FileNotFoundError.
    """
    checkout = Path(__file__).parents[3] / FOLDER
    tried = [given] if given is not None else [Path(FOLDER), checkout, IN_WHEEL]
    for folder in tried:
        if (folder / "suites").is_dir() and (folder / "places").is_dir():
            return folder.resolve()
    raise FileNotFoundError(f"no suites and places in {' or '.join(str(each) for each in tried)}")


class PlaceFile:
    """One file of the folder's places: what it says it can do, and how it is opened."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._module = load(path)

    @property
    def abilities(self) -> frozenset[Ability]:
        """What a place of this kind can do."""
        return frozenset(self._module.ABILITIES)

    def lacks(self, faults: Iterable[str]) -> list[str]:
        """Return those of the faults that can't be injected here."""
        return [each for each in faults if not FAULTS[each].needs <= self.abilities]

    async def open(self, directory: Path, *, nodes: int, settings: Mapping[str, str], seed: int) -> OpenPlace:
        """Start a cluster with its files in that folder. Raises Unavailable, or what starting it raises."""
        place: OpenPlace = await self._module.open_place(directory, nodes=nodes, settings=settings, seed=seed)
        return place


def load(path: Path) -> ModuleType:
    """Return the module in a file of the folder, which is no package; each is loaded once."""
    name = f"raftlog_chaos_places_{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def read_places(folder: Path) -> dict[str, PlaceFile]:
    """Return the folder's places by name, in the order in which they are tried: who needs least of a machine first."""
    paths = {path.stem: path for path in sorted((folder / "places").glob("*.py"))}
    names = [*(name for name in FIRST if name in paths), *(name for name in paths if name not in FIRST)]
    return {name: PlaceFile(paths[name]) for name in names if not name.startswith("_")}


def fitting(places: Mapping[str, PlaceFile], faults: Iterable[str]) -> list[PlaceFile]:
    """Return the places in the order in which to try them: who can inject most of the faults first."""
    names = tuple(faults)
    return sorted(places.values(), key=lambda each: len(each.lacks(names)))
