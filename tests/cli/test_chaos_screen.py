"""raftlog.cli.chaos_screen: what `raftlog chaos --list` says about this machine."""

from __future__ import annotations

from types import SimpleNamespace as Fake
from typing import Any

import pytest

from raftlog.cli.chaos_screen import listing


def kind(name: str, why_not: str) -> Any:
    return Fake(name=name, why_not_here=lambda: why_not, lacks=lambda _faults: [])


def test_a_testbed_that_this_machine_does_not_have_is_no_place_but_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A case that names it would refuse to run."""
    case: Any = Fake(
        name="pauses", suites=["ci"], title="Nodes pause", faults=Fake(seconds=20.0, names=["pause"])
    )
    testbeds = {
        "processes": kind("processes", ""),
        "compose": kind("compose", "there is no docker client"),
    }
    listing([case], testbeds)
    lines = capsys.readouterr().out.splitlines()
    assert "processes  Nodes pause" in lines[1] and "compose" not in lines[1]
    assert lines[2] == "not here: compose, since there is no docker client"
