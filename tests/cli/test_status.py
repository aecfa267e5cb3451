"""`raftlog status` and `raftlog top`: a cluster on one screen, and live."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from dataclasses import replace

import pytest

from raftlog.cli import exits
from raftlog.cli.cluster_view import ClusterView, GroupLine, Rates, lag_of, named_brokers, rates_between
from raftlog.cli.partition_view import Partition
from raftlog.cli.top_screen import heading, screen, tables
from tests.cli.live import CommandLine
from tests.kit.waits import ended

ORDERS = [Partition("orders", number, number + 1, (1, 2), (1, 2)) for number in range(2)]
VIEW = ClusterView(
    100.0,
    "id",
    1,
    [
        {
            "broker": each,
            "state": "unfenced",
            "leads": 1,
            "replicas": 2,
            "in_sync": 2,
            "controller": each == 1,
        }
        for each in (1, 2)
    ],
    [*ORDERS, Partition("slow", 0, -1, (1, 2), (1,)), Partition("__consumer_offsets", 0, 1, (1, 2), (1, 2))],
    {("orders", 0): 1000, ("orders", 1): 10, ("slow", 0): 5},
    [
        GroupLine("a", "stable", "classic", 3),
        GroupLine("b", "empty", "share", None),
        GroupLine("c", "stable", "consumer", 70),
    ],
)


def test_rates_are_what_end_offsets_grow_by() -> None:
    """By topic and by leader. A first view has none, and a topic that was made anew has 0."""
    assert rates_between(None, VIEW) == Rates({}, {})
    later = replace(VIEW, at=102.0, ends={("orders", 0): 1400, ("orders", 1): 4, ("slow", 0): 5})
    assert rates_between(VIEW, later) == Rates({"orders": 200.0, "slow": 0.0}, {1: 200.0, 2: 0.0, -1: 0.0})


def test_lag_counts_partitions_with_a_committed_offset() -> None:
    """A partition that is unknown here, as of an internal topic, is left out."""
    assert lag_of({("orders", 0): 900, ("orders", 1): 20, ("other", 0): 1}, VIEW.ends) == 100
    assert lag_of({("other", 0): 1}, VIEW.ends) is None and lag_of({}, VIEW.ends) is None


def test_ids_of_fenced_brokers_are_no_count() -> None:
    """`fenced 2` beside `2 brokers` was read as two fenced brokers."""
    down = replace(VIEW, brokers=[VIEW.brokers[0], VIEW.brokers[1] | {"state": "fenced"}])
    assert "2 brokers (fenced: broker 2)" in heading(down, Rates({}, {}))
    assert [named_brokers(each) for each in ([], [2], [1, 3])] == ["-", "broker 2", "brokers 1, 3"]


def test_the_busiest_comes_first_and_internal_topics_on_request() -> None:
    """A topic without a leader says so; groups are in the order of their lag."""
    assert VIEW.leaderless == [VIEW.partitions[2]] == VIEW.under_replicated
    _, (_, topics), (_, groups) = tables(VIEW, Rates({"slow": 1.0}, {}), internal=False)
    assert [(each["topic"], each["leaders"], each["records"]) for each in topics] == [
        ("slow", "none:1", "5"),
        ("orders", "1:1 2:1", "1,010"),
    ]
    assert [(each["group"], each["lag"]) for each in groups] == [("c", "70"), ("a", "3"), ("b", "-")]
    _, (_, topics), _ = tables(VIEW, Rates({}, {}), internal=True)
    assert [each["topic"] for each in topics] == ["__consumer_offsets", "orders", "slow"]


@pytest.mark.parametrize("width", [20, 50, 80, 110, 200])
@pytest.mark.parametrize("height", [5, 12, 20, 50])
def test_a_terminals_size_cuts_whole_columns_and_rows_with_a_sign(width: int, height: int) -> None:
    """No line wraps, no table disappears in silence, and the last line says how to end it."""
    view = replace(VIEW, groups=[GroupLine(f"group-{each}", "stable", "classic", each) for each in range(40)])
    lines = [line for line, _ in screen(view, Rates({}, {}), internal=False, width=width, height=height)]
    assert len(lines) <= height and max(map(len, lines)) <= width and lines[-1].startswith("q ends it")
    if height > 12 and width >= 50:
        assert any(line.startswith("group ") and line.endswith("lag") for line in lines)
        (more,) = (line for line in lines if line.startswith("… "))
        shown = sum(line.startswith("group-") for line in lines)
        assert more == f"… {40 - shown} more groups" and shown
    if height == 5:
        assert "too low" in lines[-1] or width == 20
    narrow = [line for line, _ in screen(view, Rates({}, {}), internal=False, width=36, height=50)]
    assert "too narrow for: " in narrow[-1] and not any(
        "…" in line for line in narrow[:-1] if "more" not in line
    )


@pytest.mark.slow
def test_q_ends_what_is_watched_at_a_terminal(raftlog: CommandLine) -> None:
    """Between two views, and the terminal is as before."""
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    command = [sys.executable, "-m", "raftlog", "top", "--interval", "60", "-b", raftlog.bootstrap]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        said = b""
        while b"q ends it" not in said:
            said += os.read(controller, 4096)
        os.write(controller, b"xq")
        assert ended(process) == exits.OK
    assert termios.tcgetattr(terminal) == before
    os.close(controller)
    os.close(terminal)


@pytest.mark.slow
def test_the_screens_show_what_the_cluster_has(raftlog: CommandLine, ten: str) -> None:
    """Once, and live: two views without a terminal. `status` ends with the exit code of the health."""
    raftlog("consume", "-G", f"{ten}-group", "-X", "auto.offset.reset=earliest", "-e", "-c", "4", ten)
    raftlog("share-group", "reset", f"{ten}-queue", "-t", ten, "--to-earliest", "--execute")
    ran = raftlog("status", "-o", "json")
    found = json.loads(ran.stdout)
    assert ran.returncode in (exits.OK, exits.UNHEALTHY) and found["health"]["status"]
    if found["health"]["status"] in ("green", "yellow", "red"):
        assert (ran.returncode == exits.OK) == (found["health"]["status"] == "green")
    assert found["cluster"] and found["brokers"] == len(found["nodes"]) == 3 and len(found["voters"]) == 3
    assert found["records"] >= 10 and found["without_a_leader"] == 0
    assert "largest lag" in raftlog("status").stdout and found["largest_lag"] is not None
    ran = raftlog("top", "--num", "2", "--interval", "0.2")
    assert ran.returncode == exits.OK and ran.stdout.count("records/s  records") == 2
    (line,) = {line for line in ran.stdout.splitlines() if line.startswith(f"{ten}-group ")}
    assert line.split()[-1] == "6"
    (line,) = {line for line in ran.stdout.splitlines() if line.startswith(f"{ten}-queue ")}
    assert line.split()[-2:] == ["share", "10"]
