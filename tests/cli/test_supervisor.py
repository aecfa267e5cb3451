"""`raftlog server --brokers N`: several brokers of one machine, kept running, and stopped in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from raftlog.base.config import NodeConfig, load_config
from raftlog.cli import exits, supervisor
from raftlog.cli.server import MAX_BROKERS
from raftlog.cli.server import main as server
from raftlog.cli.supervisor import PORT_STEP, CannotShare, Supervisor, broker_overrides
from raftlog.testing.ports import LOOPBACK, HeldPorts
from tests.kit.waits import PATIENCE_S, ended, run, until

SERVER = (sys.executable, "-m", "raftlog", "server")


def config_of(**settings: str) -> NodeConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return load_config({}, environment={}, flags=given, hostname="here.example", working_dir="/var/lib")


def configs_of(brokers: int, **settings: str) -> list[NodeConfig]:
    """Return what each broker's process reads."""
    base = {name.replace("_", "."): value for name, value in settings.items()}
    return [
        load_config(
            {}, environment={}, flags={**base, **own}, hostname="here.example", working_dir="/var/lib"
        )
        for own in broker_overrides(config_of(**settings), brokers)
    ]


def test_brokers_differ_in_id_ports_and_folders_and_share_a_rack_and_the_voters() -> None:
    """One process is one core: the first is as configured, the others do not vote."""
    first, second, third = configs_of(
        3,
        raftlog_admin_listener="127.0.0.1:8085",
        raftlog_admin_advertised_listener="door:80",
        raftlog_schema_registry_listener="127.0.0.1:8081",
        log_dirs="a,b",
    )
    assert [each.node_id for each in (first, second, third)] == [1, 2, 3]
    assert [sorted(each.roles) for each in (first, second, third)] == [
        ["broker", "controller"],
        ["broker"],
        ["broker"],
    ]
    assert [each.listeners[0].port for each in (first, second, third)] == [9092, 9102, 9112]
    assert [each.advertised_listeners[0].port for each in (first, second, third)] == [9092, 9102, 9112]
    assert [each.admin_listener for each in (first, second, third)] == [
        ("127.0.0.1", port) for port in (8085, 8095, 8105)
    ]
    assert [each.schema_registry_listener for each in (second, third)] == [
        ("127.0.0.1", 8091),
        ("127.0.0.1", 8101),
    ]
    assert [each.admin_advertised_listener for each in (second, third)] == [("door", 90), ("door", 100)]
    assert (second.log_dirs, second.metadata_log_dir) == (("/var/lib/a-2", "/var/lib/b-2"), "/var/lib/a-2")
    assert len({each.broker_rack for each in (first, second, third)}) == 1
    assert first.voters == second.voters == third.voters
    assert first.cluster_secret == third.cluster_secret


def test_a_rack_that_is_set_stays() -> None:
    """An operator's rack is the machine's own, or its data centre's."""
    assert {each.broker_rack for each in configs_of(2, broker_rack="r7")} == {"r7"}


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9102"}, "listeners: .* collide"),
        ({"raftlog_admin_listener": "127.0.0.1:9102"}, "listeners: .* collide"),
        ({"listeners": "PLAINTEXT://:65530,CONTROLLER://:9093"}, "port 65540"),
        (
            {"node_id": "1", "controller_quorum_voters": "1@one:9093,2@two:9093,3@three:9093"},
            "node.id: .* 1 to 2, .* has 2",
        ),
    ],
)
def test_a_config_that_has_no_room_for_the_brokers_is_refused(settings: dict[str, str], fault: str) -> None:
    """The error names the setting; no broker was started."""
    with pytest.raises(CannotShare, match=fault):
        broker_overrides(config_of(**settings), 2)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--brokers", "0"], f"1 to {MAX_BROKERS}, not 0"),
        (["--brokers", str(MAX_BROKERS + 1)], f"1 to {MAX_BROKERS}"),
        (["--brokers", "many"], "invalid int value"),
        (["--brokers", "2", "--exit-with-stdin"], "for one node"),
        (["--brokers", "2", "--enable-faults"], "for one node"),
        (["--brokers", "2", "--override", "listeners=PLAINTEXT://:9092,CONTROLLER://:9102"], "collide"),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for every faulty config."""
    with pytest.raises(SystemExit) as caught:
        server(arguments)
    assert caught.value.code == exits.USAGE
    assert fault in capsys.readouterr().err


class Supervised:
    """`raftlog server --brokers 3` that runs; its brokers' pids by node id, as /proc shows them."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        self._log = log

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [each for each in found if each["event"] == event]

    def pids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()]

    def brokers(self) -> set[int]:
        return set(self.client.list_topics(timeout=PATIENCE_S).brokers)


@contextmanager
def supervised(home: Path) -> Iterator[Supervised]:
    log = home / "log"
    with ExitStack() as stack, log.open("wb") as output:
        port = hold_ports(stack)
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}"
        process = subprocess.Popen(
            [*SERVER, "--brokers=3", f"--override=listeners={listeners}", f"--override=log.dirs={home}/data"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        found = Supervised(process, port, log)
        try:
            until(lambda: len(found.lines("node_ready")) == 3, "three brokers are ready", seen=log.read_text)
            yield found
        finally:
            pids = found.pids() if process.poll() is None else []
            for pid in [process.pid, *pids]:
                if process.poll() is None or pid in pids:
                    os.kill(pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_brokers_that_end_come_back_and_all_end_with_their_supervisor(tmp_path: Path) -> None:
    """Three processes, one bootstrap address; kill -9 of a broker, then SIGTERM, which ends all of them."""
    with supervised(tmp_path) as found:
        assert found.brokers() == {1, 2, 3}
        pids = found.pids()
        assert len(pids) == 3
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: len(found.lines("node_ready")) == 4, "the broker is back", seen=found.pids)
        assert [each["exit_code"] for each in found.lines("broker_process_exited")] == [-signal.SIGKILL]
        pids = found.pids()
        found.process.send_signal(signal.SIGTERM)
        assert ended(found.process) == exits.OK
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert len(found.lines("node_stopped")) == 3
        assert found.lines("node_stopped")[-1]["node_id"] == 1, "the controller lets the others go first"
        assert all(each["leaderships_moved"] for each in found.lines("controlled_shutdown_ended")[:2])


@pytest.mark.slow
def test_brokers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """Without a supervisor they could not be stopped or restarted, and the next supervisor needs their ports."""
    with supervised(tmp_path) as found:
        pids = found.pids()
        found.process.kill()
        ended(found.process)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all brokers end")


@pytest.mark.slow
def test_a_config_that_no_broker_can_use_ends_the_supervisor(tmp_path: Path) -> None:
    """A node would refuse for ever what it refuses at its start."""
    result = run([*SERVER, "--brokers=2", "--override=num.partitions=0"])
    assert result.returncode == exits.USAGE
    assert b"num.partitions" in result.stderr


def hold_ports(stack: ExitStack) -> int:
    """Return a port that is reserved with its neighbours: the controller's port, and the ports of two more brokers."""
    for _ in range(100):
        first = HeldPorts(1)
        stack.callback(first.release)
        with ExitStack() as neighbours, suppress(OSError):
            for step in (1, PORT_STEP, 2 * PORT_STEP):
                holder = neighbours.enter_context(socket.socket())
                holder.bind((LOOPBACK, first.ports[0] + step))
                # only now: it would hide another holder, and lets a node listen where we only hold
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stack.push(neighbours.pop_all())
            return first.ports[0]
    raise AssertionError("no free ports")


async def test_a_broker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be out of processes or memory for a while; the other brokers go on."""
    tries: list[Sequence[str]] = []
    start = asyncio.create_subprocess_exec

    async def refuse_once(*command: str, **options: Any) -> asyncio.subprocess.Process:
        tries.append(command)
        if len(tries) == 1:
            raise BlockingIOError("no process is left")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse_once)
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.0)
    ends = [sys.executable, "-c", f"import sys; sys.exit({exits.USAGE})"]
    assert await Supervisor({1: ends}).run() == exits.USAGE
    assert len(tries) == 2
