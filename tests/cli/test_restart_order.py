"""The order of `raftlog cluster restart`, and what it waits for, at played nodes."""

from __future__ import annotations

import signal
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
    drained_by_an_operator: set[int] = field(default_factory=lambda: {3})
    names_itself: bool = True
    refused: Counter[str] = field(default_factory=Counter)
    """How often the answer to "drain 1" and the like is lost."""

    def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
        here = int(self.url[-1])
        where, _, what = path.removeprefix("/v1/").removeprefix("brokers/").partition("/")
        match (method, what or where):
            case "GET", "nodes":
                urls = {each: f"http://n{each}" if self.names_itself else None for each in self.started}
                return {"data": [{"broker_id": each, "http_url": url} for each, url in urls.items()]}
            case "GET", "quorum":
                voters = [{"node_id": each} for each in (1, 2)]
                return {"told_by_leader": True, "leader_id": 2, "voters": voters}
            case "GET", "live":
                return {"started_ms": self.started[here]}
            case "GET", "caught-up":
                return {"reasons": [] if _is_over(self.behind, here) else ["it copies"]}
            case "GET", "drain":
                return {"draining": int(where) in self.drained_by_an_operator}
            case "GET", risks if risks.startswith("restart-risks"):
                safe = _is_over(self.at_risk, int(where))
                return {"safe": safe, "blocking": [] if safe else [RISK], "notes": []}
            case _, "drain":
                self.story.append(f"{'drain' if method == 'POST' else 'undrain'} {where} at {here}")
                if not _is_over(self.refused, self.story[-1].split(" at ")[0]):
                    raise Failure("no answer", exits.UNREACHABLE)
                return None
        raise AssertionError((method, path))


RISK = {"code": "offline", "message": "it would be offline", "count": 1, "partitions": ["t-0"]}


def _is_over(left: Counter[Any], name: object) -> bool:
    left[name] -= 1
    return left[name] < 0


def roll(nodes: Played, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RollingRestart:
    """Return a run; its command has a node started anew."""

    def run(command: str, **_options: Any) -> subprocess.CompletedProcess[bytes]:
        node_id = int(command.removeprefix("restart "))
        nodes.story.append(command)
        nodes.started[node_id] += 1
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(rolling_restart.subprocess, "run", run)
    monkeypatch.setattr("raftlog.cli.node.PAUSE_S", 0)
    given = {"command": "restart {id}", "node_http": "", "margin": 0, "wait_s": 60, "done": set(), **options}
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
        "node 3: waiting: 1 partition: it would be offline: t-0",
        *("node 3: restarting", "node 3: caught up", "node 2: restarting", "node 2: caught up"),
    ]
    assert nodes.behind[1] < 0 and nodes.at_risk[3] < 0


def test_it_stands_still_where_it_is_not_safe_in_time_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that could not be restarted is undrained, and the restarted nodes are left alone."""
    nodes = Played("http://n1", at_risk=Counter({2: 1}))
    with pytest.raises(Failure) as stood:
        roll(nodes, monkeypatch, wait_s=0).run()
    assert stood.value.code == exits.UNHEALTHY
    assert str(stood.value).endswith("To resume: --skip 1,3")
    assert stood.value.details == ("1 partition: it would be offline: t-0",)
    assert nodes.story[-2:] == ["drain 2 at 1", "undrain 2 at 1"]
    nodes.story.clear()
    assert [each["node"] for each in roll(nodes, monkeypatch, done={1, 3}).plan()] == [2]
    roll(nodes, monkeypatch, done={1, 3}).run()
    assert nodes.story == ["drain 2 at 1", "restart 2", "undrain 2 at 1"]


def test_a_broker_is_not_left_drained_where_an_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been drained all the same; and the next is not restarted before it is undrained."""
    nodes = Played("http://n1", refused=Counter({"drain 1": 1}))
    with pytest.raises(Failure) as failed:
        roll(nodes, monkeypatch).run()
    assert failed.value.code == exits.UNREACHABLE
    assert nodes.story == ["drain 1 at 2", "undrain 1 at 2"]
    nodes = Played("http://n1", refused=Counter({"undrain 1": 2}))
    roll(nodes, monkeypatch).run()
    assert nodes.story[:6] == ["drain 1 at 2", "restart 1", *["undrain 1 at 2"] * 3, "restart 3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker is undrained, and the last line says how to resume."""
    nodes = Played("http://n1", behind=Counter({3: 1}))
    ends = roll(nodes, monkeypatch)
    run = rolling_restart.subprocess.run

    def interrupted(command: str, **options: Any) -> object:
        ran = run(command, **options)
        if command == "restart 3":
            signal.raise_signal(number)
        return ran

    nodes.drained_by_an_operator.clear()
    monkeypatch.setattr(rolling_restart.subprocess, "run", interrupted)
    assert ends.run() == exits.INTERRUPTED
    assert nodes.story[-3:] == ["drain 3 at 1", "restart 3", "undrain 3 at 1"]
    assert capsys.readouterr().err.splitlines()[-1] == (
        "interrupted; the others are not restarted. To resume: --skip 1"
    )


def test_nodes_are_asked_where_they_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers, a node's own address is no address for their host."""
    nodes = Played("http://other1", names_itself=False)
    with pytest.raises(Failure, match="set --node-http"):
        roll(nodes, monkeypatch).run()
    roll(nodes, monkeypatch, node_http="http://n{id}").run()
    assert len(nodes.story) == 7
    secure = Played("https://n1")
    with pytest.raises(Failure, match="is not HTTPS"):
        roll(secure, monkeypatch).run()
    with pytest.raises(Failure, match="there is no broker 9"):
        roll(nodes, monkeypatch, done={9}, node_http="http://n{id}").run()
