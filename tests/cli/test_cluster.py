"""`raftlog cluster health`: what a node says, in the words of the command line; without a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftlog.cli.cluster import health
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form


class Told:
    """An HTTP API of a node that returns the given responses in sequence."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        assert (method, path, body) == ("GET", "/v1/health", None)
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def told(status: str, *reasons: tuple[str, int, list[str]]) -> dict[str, Any]:
    fields = ("message", "count", "partitions")
    told = [{"code": "some_code", **dict(zip(fields, each, strict=True))} for each in reasons]
    return {"status": status, "reasons": told, "brokers": []}


GREEN = told("green")


def test_a_healthy_cluster_is_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0."""
    assert health(Told(GREEN), form=Form.TABLE) == 0
    assert capsys.readouterr().out == "green\n"


def test_reasons_name_the_first_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 7; a long list is counted, not printed."""
    names = [f"t-{number}" for number in range(20)]
    answer = told("red", ("53 partitions have no leader", 53, names), ("broker 3 is fenced", 1, []))
    assert health(Told(answer), form=Form.TABLE) == 7
    assert capsys.readouterr().out == (
        "red\n  53 partitions have no leader: t-0, t-1, t-2 and 50 more\n  broker 3 is fenced\n"
    )
    assert health(Told(told("yellow", ("1 partition moves", 1, ["t-5"]))), form=Form.JSON) == 7
    assert json.loads(capsys.readouterr().out) == {"status": "yellow", "reasons": ["1 partition moves: t-5"]}


def test_watching_prints_changes_until_all_is_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that does not answer is reported; an unchanged state is not repeated."""
    monkeypatch.setattr("raftlog.cli.cluster.POLL_INTERVAL_S", 0)
    red = told("red", ("no controller", 1, []))
    api = Told(red, red, Failure("no answer"), GREEN)
    assert health(api, watch=True, exit_when_healthy=True, form=Form.TABLE) == 0
    lines = [line[10:] if line[2:3] == ":" else line for line in capsys.readouterr().out.splitlines()]
    assert lines == ["red", "  no controller", "no answer", "green"]
