"""Claims about the tutorial and the README: every code block runs, in order, and prints what is shown below it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of, reading, shows
from tests.house.source import ROOT

TUTORIAL = ROOT / "docs" / "pages" / "tutorial"
README = ROOT / "README.md"
ON_SPARK = "first-spark-job"


@pytest.mark.taste
@pytest.mark.clients
@pytest.mark.nightly
def test_the_lessons_can_be_followed(tmp_path: Path) -> None:
    """Installing, a first cluster, a first failover: one folder, one cluster, in this order."""
    with reading(tmp_path) as reader:
        for lesson in ("index", "first-cluster", "first-failover"):
            reader.follow(TUTORIAL / f"{lesson}.md")


@pytest.mark.taste
@pytest.mark.spark
def test_the_lesson_about_spark_can_be_followed(tmp_path: Path) -> None:
    """A topic becomes a table of Parquet files."""
    with reading(tmp_path) as reader:
        reader.follow(TUTORIAL / f"{ON_SPARK}.md")


@pytest.mark.taste
@pytest.mark.clients
@pytest.mark.nightly
def test_what_the_readme_shows_works(tmp_path: Path) -> None:
    """Its commands and its lines of Python; `make demo` and `make test` are targets that .ci/run runs."""
    with reading(tmp_path) as reader:
        reader.follow(README)


def test_building_the_documentation_installs_no_plugin_of_pytest(tmp_path: Path) -> None:
    """A newcomer's own pytest, in the same virtual environment, would print their warnings."""
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", "docs"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--group docs" in printed
    assert "--group dev" not in printed


def test_every_lesson_is_followed() -> None:
    """A page that is added is added above."""
    assert {page.stem for page in TUTORIAL.glob("*.md")} == {
        "index",
        "first-cluster",
        "first-failover",
        ON_SPARK,
    }
    assert all(blocks_of(page) for page in TUTORIAL.glob("*.md"))


def test_what_is_printed_is_compared_but_for_its_numbers() -> None:
    """The comparison can fail: on a word, on a missing line; not on a number or on what `...` stands for."""
    assert shows("3 nodes ready in 1.2 s\n  more\n", "3 nodes ready in 0.9 s\n")
    assert shows("one two three\nfour", "one ... three\n")
    assert not shows("one two", "one three\n")
    assert not shows("one\n", "one\ntwo\n")
