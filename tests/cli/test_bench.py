"""Claims about the bench's table and options; its figures come from a real cluster."""

from __future__ import annotations

import json

import pytest
import typer

from raftlog.cli import exits
from raftlog.cli.bench import queues, registry
from raftlog.cli.bench.command import BenchOptions, _create_topic, as_json, as_table, run
from raftlog.cli.bench.figure import Figure

FIGURES = [
    Figure("start", "ready", 1.234, "s", 1.5, note="of 3"),
    Figure("start", "idle RSS per node", 81.0, "MB", 70.0),
    Figure("throughput", "100 B", 99.0, "MB/s", 70.0, "at least"),
    Figure("failover", "kill -9, client errors", 0, ""),
]


@pytest.mark.parametrize(
    ("value", "bound", "reached"),
    [(1.0, "at most", True), (3.0, "at most", False), (1.0, "at least", False), (2.0, "at least", True)],
)
def test_an_aim_is_a_bound_from_one_side(value, bound, reached):
    """Seconds must not exceed theirs, megabytes a second not fall short."""
    assert Figure("part", "name", value, "s", 2.0, bound).reached is reached
    assert Figure("part", "name", value, "s").reached is None


def test_the_table_marks_what_misses_its_aim():
    """And only that; parts are set apart by an empty line."""
    lines = list(as_table(FIGURES, load=0.1))
    assert [line for line in lines if "!" in line] == [line for line in lines if "RSS" in line]
    assert lines.count("") == 3
    assert "1.23 s  ≤ 1.5 s" in lines[2]


def test_json_holds_what_the_table_shows():
    """One document, each figure with its aim and whether it was reached."""
    document = json.loads("".join(as_json(FIGURES, load=0.1)))
    assert [each["reached"] for each in document["figures"]] == [True, False, True, None]
    assert document["figures"][0]["value"] == 1.234


def test_an_unknown_part_is_an_error_that_names_the_parts(capsys):
    """Before anything is started."""
    assert run(BenchOptions(only="speed", rounds=1)) == exits.USAGE
    assert "start, throughput, latency, failover, recovery, partitions" in capsys.readouterr().err


@pytest.mark.parametrize("data", ["", "10,", "0", "-1", "a few"])
def test_sizes_that_are_no_numbers_are_refused_before_anything_starts(data):
    """`--data` is a list of megabytes."""
    with pytest.raises(typer.BadParameter, match="MB"):
        run(BenchOptions(only="recovery", data=data))


@pytest.mark.clients
@pytest.mark.nightly
def test_many_workers_pass_the_death_of_a_node(monkeypatch):
    """With a few of the thousand: all accept all records, before and after."""
    monkeypatch.setattr(queues, "GROUPS", 4)
    monkeypatch.setattr(queues, "STEADY_S", 0.5)
    values = {each.name: each.value for each in queues.many_workers(Figure, _create_topic)}
    assert values["records accepted"] > 0 and values["records accepted by two nodes"] > 0
    assert values["20 workers of 4 groups look again"] > 0


@pytest.mark.clients
@pytest.mark.nightly
def test_the_registry_is_asked_at_its_leader_and_elsewhere():
    """With a few requests: both nodes answer, and each figure is a time."""
    figures = list(registry.requests(count=3, new=2, many=20))
    assert [each.name.partition(" p50 ")[2] for each in figures].count("at another node") == 2
    assert [each.name for each in figures].count("20 schemas read after a start") == 1
    assert len(figures) == 10 and all(each.value > 0 for each in figures)
