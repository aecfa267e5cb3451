"""The seed that last found each plant, in `last_seeds.txt`. A hunt tries it first, then all from the first on.

A change of the code may give a seed another run, so a line is a place to begin and no promise. `python -m tests.planted
--remember` writes what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_suffix(".txt")


def read(file: Path = FILE) -> dict[str, int]:
    """Return the seed of each plant that has one."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: int(seed) for name, seed in map(str.split, lines)}


def write(seeds: Mapping[str, int], file: Path = FILE) -> None:
    """Write a line for each plant, in the order of their names."""
    file.write_text("".join(f"{name} {seeds[name]}\n" for name in sorted(seeds)))


def in_order(last: int | None, seeds: Sequence[int]) -> list[int]:
    """Return the seeds to try, beginning with the one that found the plant last."""
    return [*seeds] if last is None else [last, *(each for each in seeds if each != last)]
