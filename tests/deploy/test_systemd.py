"""Claims about deploy/systemd: systemd understands the unit, the node is shut in, and it still runs."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.base.config import load_config, parse_file
from raftlog.cli import exits
from raftlog.node import CONTROLLED_SHUTDOWN_S
from raftlog.process import STOP_S
from raftlog.testing.node_process import environment_of_nodes
from raftlog.testing.ports import LOOPBACK, HeldPorts
from tests.kit import waits

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "raftlog.service"
EXPOSURE = 15
"""Tenths of what `systemd-analyze security` calls exposure; a unit without hardening has 96."""

PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
"""Of prctl(2), Linux 6.3: what MemoryDenyWriteExecute asks of the kernel."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here (Debian's package systemd)"
)


def settings(name: str) -> list[str]:
    """Return the values of each line of the unit that begins so."""
    lines = UNIT.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what `systemd-analyze` says, which needs no systemd that runs."""
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@needs_systemd
def test_systemd_understands_each_line_of_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` has no complaints, and names an invalid line."""
    unit = tmp_path / UNIT.name
    right = UNIT.read_text().replace("/opt/raftlog/bin/raftlog", sys.executable)
    unit.write_text(right)
    judged = analyze("verify", "--man=no", str(unit))
    assert (judged.returncode, judged.stderr) == (0, "")
    unit.write_text(right.replace("ProtectSystem=strict", "ProtectSystem=very"))
    assert "protect system value" in analyze("verify", "--man=no", str(unit)).stderr


@needs_systemd
def test_the_unit_is_exposed_no_more_than_it_must_be(tmp_path: Path) -> None:
    """`systemd-analyze security` fails beyond the threshold, as it does where one line is missing."""
    judged = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(UNIT))
    assert judged.returncode == 0, judged.stdout
    open_unit = tmp_path / UNIT.name
    open_unit.write_text(UNIT.read_text().replace("CapabilityBoundingSet=\n", ""))
    assert analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(open_unit)).returncode != 0


def test_the_example_is_a_config_without_warnings() -> None:
    """The unit's variable gives the secret, and the unit lets it write its folder."""
    text = (SYSTEMD / "raftlog.properties").read_text()
    config = load_config(
        parse_file(text, name="raftlog.properties"), environment={"RAFTLOG_CLUSTER_SECRET": "s" * 32}
    )
    assert config.warnings == ()
    assert config.log_dirs == (f"/var/lib/{settings('StateDirectory')[0]}",)


def test_a_stop_has_time_for_a_controlled_shutdown_and_a_wrong_config_is_not_tried_again() -> None:
    """The supervisor of several brokers stops them itself, so only it gets the signal."""
    assert int(settings("TimeoutStopSec")[0]) > CONTROLLED_SHUTDOWN_S + STOP_S
    (waits_first,) = settings("ExecStop")
    program, _, wait_s = waits_first.rpartition(" ")
    assert program == "-/opt/raftlog/bin/raftlog node wait-safe --wait", "a failure is no reason not to stop"
    assert int(wait_s) < int(settings("TimeoutStopSec")[0]), "the limit counts for each command"
    assert settings("RestartPreventExitStatus") == [str(exits.USAGE)]
    assert settings("KillMode") == ["mixed"]


def test_a_node_whose_network_comes_late_is_not_given_up() -> None:
    """systemd stops trying after five failures by default, and then the node is away until an operator looks."""
    assert settings("StartLimitIntervalSec") == ["0"]
    assert settings("Restart") == ["on-failure"]


@pytest.fixture
def ports() -> Iterator[list[int]]:
    held = HeldPorts(3)
    yield held.ports
    held.release()


def _deny_write_execute() -> None:
    if ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
        raise OSError("this kernel has no PR_SET_MDWE")


@pytest.mark.clients
def test_a_node_runs_without_memory_that_is_written_and_executed(tmp_path: Path, ports: list[int]) -> None:
    """MemoryDenyWriteExecute is in the unit: the event loop, msgspec and ctypes must do without."""
    assert settings("MemoryDenyWriteExecute") == ["yes"]
    if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip("this kernel has no PR_SET_MDWE")
    overrides = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{ports[0]},CONTROLLER://{LOOPBACK}:{ports[1]}",
        "raftlog.admin.listener": f"{LOOPBACK}:{ports[2]}",
    }
    flags = [part for name, value in overrides.items() for part in ("--override", f"{name}={value}")]
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "raftlog", "server", *flags],
            stdout=log,
            stderr=log,
            env=environment_of_nodes(),
            preexec_fn=_deny_write_execute,  # noqa: PLW1509 - it calls prctl only
        )

    def ready() -> bool:
        assert node.poll() is None, (tmp_path / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{ports[2]}/v1/ready", timeout=30):
                return True
        except OSError:
            return False

    try:
        waits.until(ready, "the node is ready")
        node.send_signal(signal.SIGTERM)
        assert waits.ended(node) == exits.OK
    finally:
        node.kill()
        node.wait()
