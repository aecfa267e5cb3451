"""A hunt begins with the seed that found its plant last, and no seed is left out or tried twice."""

from __future__ import annotations

from pathlib import Path

from tests.planted import last_seeds
from tests.planted.plant import all_plants


def test_last_seed_comes_first() -> None:
    """The others follow in their order, each once."""
    assert last_seeds.in_order(3, range(1, 6)) == [3, 1, 2, 4, 5]
    assert last_seeds.in_order(70, range(1, 4)) == [70, 1, 2, 3]
    assert last_seeds.in_order(None, range(1, 4)) == [1, 2, 3]


def test_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """A file that is not there yet has no seeds."""
    file = tmp_path / "seeds.txt"
    assert last_seeds.read(file) == {}
    last_seeds.write({"b": 2, "a": 11}, file)
    assert file.read_text() == "a 11\nb 2\n"
    assert last_seeds.read(file) == {"a": 11, "b": 2}


def test_each_line_names_a_plant() -> None:
    """A line of a plant that was dropped would stay for ever."""
    assert last_seeds.read().keys() <= all_plants().keys()
