"""The order of `raftlog cluster restart`, and what it waits for, at played nodes."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from raftlog.cli import exits, rolling_restart
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.rolling_restart import RollingRestart


@dataclass(slots=True)
class Played(HttpApi):
    """The HTTP APIs of three nodes that restart at once, and answer a few questions before they have caught up."""

    story: list[str] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 1))
    behind: Counter[int] = field(default_factory=Counter)
    """How often each node says yet that it has not caught up."""
    at_risk: Counter[int] = field(default_factory=Counter)
    """How often the restart of each node is not safe yet."""

    def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
        here = int(self.url[-1])
        where, _, what = path.removeprefix("/v1/").removeprefix("brokers/").partition("/")
        match (method, what or where):
            case "GET", "nodes":
                return {"data": [{"broker_id": each, "http_url": f"http://n{each}"} for each in self.started]}
            case "GET", "quorum":
                return {"leader_id": 2, "voters": [{"node_id": each} for each in (1, 2)]}
            case "GET", "live":
                return {"started_ms": self.started[here]}
            case "GET", "caught-up":
                return {"caught_up": _is_over(self.behind, here), "reasons": ["it copies"]}
            case "GET", "drain":
                return {"draining": where == "3"}
            case "GET", risks if risks.startswith("restart-risks"):
                safe = _is_over(self.at_risk, int(where))
                return {"safe": safe, "blocking": [] if safe else [RISK], "notes": []}
            case _, "drain":
                self.story.append(f"{'drain' if method == 'POST' else 'undrain'} {where} at {here}")
                return None
        raise AssertionError((method, path))


RISK = {"code": "offline", "message": "it would be offline", "count": 1, "partitions": ["t-0"]}


def _is_over(left: Counter[int], node_id: int) -> bool:
    left[node_id] -= 1
    return left[node_id] < 0


def roll(nodes: Played, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RollingRestart:
    """Return a run whose command has a node started anew."""

    def run(command: str, **_options: Any) -> subprocess.CompletedProcess[bytes]:
        node_id = int(command.removeprefix("restart "))
        nodes.story.append(command)
        nodes.started[node_id] += 1
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(rolling_restart.subprocess, "run", run)
    monkeypatch.setattr("raftlog.cli.node.PAUSE_S", 0)
    given = {"command": "restart {id}", "margin": 0, "wait_s": 60, "since_ms": 10, **options}
    return RollingRestart(nodes, **given)


def test_voters_come_first_and_the_leader_last_each_drained_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the API of another node. A broker that an operator drained stays drained."""
    nodes = Played("http://n1")
    roll(nodes, monkeypatch).run()
    assert nodes.story == [
        *("drain 1 at 2", "restart 1", "undrain 1 at 2"),
        "restart 3",
        *("drain 2 at 1", "restart 2", "undrain 2 at 1"),
    ]


def test_nothing_is_restarted_before_it_is_safe_and_the_last_one_has_caught_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are asked again until they hold."""
    nodes = Played("http://n1", behind=Counter({1: 3}), at_risk=Counter({3: 2}))
    roll(nodes, monkeypatch).run()
    assert capsys.readouterr().err.splitlines() == [
        "node 1: restarting",
        "node 1: waiting: it copies",
        "node 1: caught up",
        "node 3: waiting: 1 partitions: it would be offline: t-0",
        *("node 3: restarting", "node 3: caught up", "node 2: restarting", "node 2: caught up"),
    ]
    assert nodes.behind[1] < 0 and nodes.at_risk[3] < 0


def test_it_stands_still_where_it_is_not_safe_in_time_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that could not be restarted is undrained, and those that were are left alone."""
    nodes = Played("http://n1", at_risk=Counter({2: 1}))
    with pytest.raises(Failure) as stood:
        roll(nodes, monkeypatch, wait_s=0).run()
    assert stood.value.code == exits.UNHEALTHY
    assert str(stood.value).endswith("To resume: --since 10")
    assert stood.value.details == ("1 partitions: it would be offline: t-0",)
    assert nodes.story[-2:] == ["drain 2 at 1", "undrain 2 at 1"]
    nodes.started.update({1: 10, 3: 11})
    nodes.story.clear()
    roll(nodes, monkeypatch).run()
    assert nodes.story == ["drain 2 at 1", "restart 2", "undrain 2 at 1"]
