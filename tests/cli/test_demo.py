"""Claims about the whole demo: a clean verdict under faults, and no leftovers after an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.marks import nightly
from tests.kit.waits import ended, run

pytestmark = [pytest.mark.clients, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "raftlog", "demo"]


@pytest.mark.nightly
def test_the_demo_ends_with_a_clean_verdict(tmp_path):
    """The main job end to end: a given file, three faults, another client library to read it back.

    .ci/run runs the demo from the wheel.
    """
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"line %d of a real file \xff\r\n" % number for number in range(5_000)))
    result = run([*COMMAND, "--file", str(text), "--records", "4000", "--json"], text=True)
    assert result.returncode == 0, result.stderr + result.stdout
    report = json.loads(result.stdout)
    assert report["clean"]
    assert report["records"] == report["verdict"]["read"] >= 4_000
    assert [outage["event"].split()[0] for outage in report["outages"]] == ["kill", "kill", "pause"]


@pytest.mark.parametrize("number", [signal.SIGINT, nightly(signal.SIGTERM)])
def test_an_interrupted_demo_takes_everything_down(number, tmp_path):
    """Ctrl-C in the middle leaves no process and no folder."""
    with subprocess.Popen(
        [*COMMAND, "--records", "100000000"], stderr=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}
    ) as demo:
        assert demo.stderr is not None
        assert "nodes ready" in demo.stderr.readline()
        pids = [path.name for path in Path("/proc").glob("[0-9]*") if str(tmp_path) in _command(path)]
        assert len(pids) == 3
        demo.send_signal(number)
        assert ended(demo) == 130
    assert not any(str(tmp_path) in _command(Path("/proc") / pid) for pid in pids)
    assert not list(tmp_path.iterdir())


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
