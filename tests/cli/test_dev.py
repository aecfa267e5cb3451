"""`raftlog dev`: a cluster until Ctrl-C, and no processes afterwards."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from raftlog.cli.client_settings import addresses_of
from raftlog.cli.dev import (
    FIRST_KAFKA_PORT,
    PARSERS,
    Asked,
    _folder,
    _is_free,
    _layout,
    _missing_parsers,
    _where,
    ports_of,
)
from raftlog.cli.dev_control import SOCKET
from raftlog.cli.dev_nodes import LAYOUT, POINTER, TEMPORARY, folder_of, is_node, logs_at, running_at
from raftlog.cli.dev_secure import NATIVE
from raftlog.cli.doctor import network
from raftlog.cli.exits import DENIED, NOT_FOUND, UNREACHABLE, USAGE, Failure
from raftlog.cli.listener_probe import NOT_KAFKA
from raftlog.cli.target import Target
from raftlog.client.errors import NotConnected, Refused
from raftlog.schemas.formats import PACKAGES
from raftlog.testing.ports import HeldPorts
from tests.cli.live import CommandLine, invoke
from tests.kit.marks import taste
from tests.kit.waits import PATIENCE_S, ended, run, until

pytestmark = pytest.mark.slow


class Dev:
    """`raftlog dev` that runs, and what it said."""

    def __init__(self, process: subprocess.Popen[str], said: str) -> None:
        self.process = process
        self.said = said
        found = re.search(r"Kafka +(\S+)", said)
        assert found, said
        self.bootstrap = found[1]

    def end(self, number: int) -> int:
        """Send a signal and wait; returns the exit code."""
        self.process.send_signal(number)
        return ended(self.process)


@contextmanager
def dev(home: Path, *arguments: str) -> Iterator[Dev]:
    process = subprocess.Popen(
        [sys.executable, "-m", "raftlog", "dev", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(home)},
    )
    try:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said and (line := process.stdout.readline()):
            said += line
        yield Dev(process, said)
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    """Return a port for --port: it is free, and so are the others of three nodes."""
    while True:
        held = HeldPorts(1)
        held.release()
        if (port := held.ports[0]) > FIRST_KAFKA_PORT and all(map(_is_free, ports_of(port, 3))):
            return port


def refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as attempt:
        return attempt.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize("number", taste([signal.SIGINT], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_whatever_ends_it_leaves_no_process_no_port_and_no_file(folder: Path, number: int) -> None:
    """Ctrl-C, a stop, a closed terminal: all the same."""
    with dev(folder, "--nodes", "1", "--port", str(free_port())) as running:
        assert not refuses(running.bootstrap) and list(folder.iterdir())
        (place,) = folder.iterdir()
        assert running.end(number) == 0
        assert refuses(running.bootstrap)
        assert running.process.stdout is not None
        assert running.process.stdout.read() == f"the cluster in {place} has ended\n"
    assert not list(folder.iterdir())


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_ctrl_c_ends_it_well_without_a_place_for_its_last_line(folder: Path, closed: str) -> None:
    """The terminal may be gone, and the exit code is the same."""
    command = [sys.executable, "-m", "raftlog", "dev", "--nodes", "1", "--port", str(free_port())]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    with process:
        assert process.stdout is not None
        while (line := process.stdout.readline()) and "Ctrl-C" not in line:
            continue
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert ended(process) == 0
    assert not list(folder.iterdir())


def test_the_nodes_end_with_it_even_when_it_is_killed(folder: Path) -> None:
    """kill -9 of the parent process leaves files, but no processes."""
    with dev(folder, "--nodes", "1", "--port", str(free_port())) as running:
        running.end(signal.SIGKILL)
        while not refuses(running.bootstrap):
            continue


def test_a_kept_folder_goes_on_at_the_same_addresses_with_the_same_records(folder: Path) -> None:
    """--data: the second cluster is the first, also in its number of nodes."""
    data = folder / "data"
    arguments = ("--data", str(data), "--nodes", "2", "--port", str(free_port()))
    with dev(folder, *arguments) as first:
        raftlog = CommandLine(first.bootstrap)
        assert raftlog("topic", "create", "kept", "-p", "1").returncode == 0
        assert raftlog("produce", "-t", "kept", stdin=b"here\n").returncode == 0
        first.end(signal.SIGTERM)
    with dev(folder, "--data", str(data)) as second:
        assert second.bootstrap == first.bootstrap and first.bootstrap.count(":") == 2
        assert CommandLine(second.bootstrap)("consume", "-t", "kept", "-e").stdout == "here\n"
    assert (data / "dev.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("", "is empty"),
        ("\0" * 212, "is empty"),
        ('{"secret": "a", ', "is damaged (no JSON from line 1, column 17 on)"),
        ('{"kafka": {}, "controller": {}, "http": {}}', "is damaged (it has no 'secret')"),
        ('{"secret": "a", "kafka": [], "controller": {}, "http": {}}', "is damaged ("),
    ],
)
def test_a_folder_whose_layout_is_lost_is_refused_in_words(tmp_path: Path, left: str, said: str) -> None:
    """A power cut left it so before it was synced; the words say what it was for, and what to do."""
    (tmp_path / "dev.json").write_text(left)
    code, _, errors = invoke("dev", "--data", str(tmp_path))
    assert code == USAGE
    words = " ".join(errors.split())
    assert f"{tmp_path / 'dev.json'} {said}" in words and "put back a copy of it" in words


@pytest.mark.taste
@pytest.mark.nightly
def test_the_settings_that_dev_secure_prints_let_each_user_do_what_is_said(folder: Path) -> None:
    """Pasted as printed: the writer creates and writes, the reader reads, and other users are refused."""
    data = folder / "data"
    arguments = ("--secure", "--data", str(data), "--nodes", "1", "--port", str(free_port()))
    with dev(folder, *arguments) as running:
        printed = _printed_settings(running.said)
        assert set(printed) == {
            NATIVE,
            "Python (confluent-kafka)",
            "Python (kafka-python)",
            "Java",
        }
        native = printed[NATIVE]
        assert printed["Python (confluent-kafka)"] == native
        assert (
            f'username="writer" password="{native["sasl.password"]}"' in printed["Java"]["sasl.jaas.config"]
        )
        failures: list[object] = []
        producer = Producer(native)
        producer.produce("orders", b"one", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(PATIENCE_S) == 0 and failures == [None]
        other = KafkaProducer(**printed["Python (kafka-python)"])
        assert other.send("orders", b"two").get(PATIENCE_S).topic == "orders"
        other.close()
        assert "may read topics, in any group" in running.said
        reader = str(data / "clients" / "reader.properties")
        raftlog = CommandLine(running.bootstrap)
        assert sorted(raftlog("consume", "-t", "orders", "-e", "-F", reader).stdout.split()) == ["one", "two"]
        assert raftlog("produce", "-t", "orders", "-F", reader, stdin=b"three\n").returncode == DENIED
        _try_kcat(running.said)
        assert raftlog("topic", "list", "-m", "2").returncode != 0
        running.end(signal.SIGTERM)
    assert {path.stat().st_mode & 0o777 for path in (data / "clients").iterdir()} == {0o600}
    code, _, err = invoke("dev", "--data", str(data))
    assert code == USAGE and "say --secure" in err
    with dev(folder, "--secure", "--data", str(data)) as again:
        assert _printed_settings(again.said) == printed


def _try_kcat(said: str) -> None:
    """Run the printed kcat command if kcat is installed."""
    found = re.search(r"(?m)^  (kcat .*)$", said)
    assert found, said
    if shutil.which("kcat"):
        ran = run([*shlex.split(found[1]), "-e"], text=True)
        assert ran.returncode == 0 and ran.stdout, ran.stderr


def _printed_settings(said: str) -> dict[str, dict[str, Any]]:
    """Return the settings that are to be pasted, by their headings."""
    found: dict[str, dict[str, Any]] = {}
    for heading, block in re.findall(r"(?m)^  # (.*)\n((?:    .*\n)+)", said):
        lines = textwrap.dedent(block)
        if lines.startswith("settings = "):
            found[heading] = ast.literal_eval(lines.removeprefix("settings = "))
        else:
            found[heading] = dict(line.split("=", 1) for line in lines.splitlines())
    return found


def test_console_is_at_the_printed_address_and_may_inject_faults_on_request(folder: Path) -> None:
    """A folder that began with --enable-faults keeps them, and another folder cannot add them later."""
    data = folder / "data"
    port = ("--port", str(free_port()))
    with dev(folder, "--nodes", "1", "--data", str(data), "--enable-faults", *port) as running:
        found = re.search(r"Open (http://\S+) in a browser", running.said)
        assert found, running.said
        with urlopen(Request(found[1], headers={"Accept": "text/html"})) as page:
            assert b"/console/app.js" in page.read()
        with urlopen(f"{found[1]}/v1/faults") as faults:
            assert json.load(faults)["enabled"] is True
        running.end(signal.SIGTERM)
    assert json.loads((data / "dev.json").read_text())["faults"] is True
    (data / "dev.json").write_text(
        (data / "dev.json").read_text().replace('"faults": true', '"faults": false')
    )
    command = [sys.executable, "-m", "raftlog", "dev", "--data", str(data), "--enable-faults"]
    refused = run(command, text=True)
    assert (refused.returncode, "use another folder" in refused.stderr) == (2, True)


def test_ports_that_are_taken_are_replaced_only_if_none_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways the port that is taken and its holder are named: a script goes on with the port that it gave."""
    port = free_port()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", ports_of(port, 1)[2]))
        taken.listen()
        code, out, said = invoke("dev", "--nodes", "1", "--port", str(port))
        held = f"port {port + 552} is taken by process {os.getpid()} ("
        assert (code, out) == (1, "") and said.startswith(f"raftlog: --port {port}: {held}")
        assert f"the cluster needs {port}, {port + 100}, {port + 552}, {port - 1011}: free them" in said
        layout, moved = _layout(tmp_path, Asked(1, port, secure=False, faults=False))
        assert moved.startswith(held) and layout.kafka[1] != port
    code, _, said = invoke("dev", "--data", str(tmp_path), "--port", str(port))
    assert code == USAGE and f"at port {layout.kafka[1]}: leave out --port {port}" in said


def test_the_printed_commands_work(folder: Path) -> None:
    """The three lines are typed as they stand."""
    with dev(folder, "--nodes", "1", "--port", str(free_port())) as running:
        lines = [line.strip() for line in running.said.splitlines() if "raftlog " in line]
        assert len(lines) == 3
        printed = ""
        for line in lines:
            command = line.replace("raftlog ", f"{sys.executable} -m raftlog ")
            ran = run(command, text=True)
            assert ran.returncode == 0, ran.stderr
            printed += ran.stdout
    assert printed.startswith("orders created\n") and printed.count("orders ") == 4


def test_a_folder_of_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    """Its voters are part of its data."""
    (tmp_path / "dev.json").write_text(
        '{"secret": "x", "kafka": {"1": 2000}, "controller": {"1": 2001}, "http": {"1": 2002}}'
    )
    command = [sys.executable, "-m", "raftlog", "dev", "--data", str(tmp_path), "--nodes", "3"]
    ran = run(command, text=True)
    assert ran.returncode == 2 and "use --nodes 1" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--override", "num.partitions=abc"], "num.partitions: must be a whole number"),
        (["--override", "num.partitionss=1"], "did you mean num.partitions?"),
        (["--override", "nonsense"], "must be name=value"),
        (["--override", "nope=1"], "raftlog: --override nope: there is no such setting\n"),
        (["kill", "x"], "'NODE': must be a whole number (see"),
        (["--data", __file__], f"--data {__file__}: must be a folder, but is a file\n"),
        (["--nodes", "10"], "--nodes"),
    ],
)
def test_invalid_settings_are_reported_before_any_node_starts(arguments: list[str], said: str) -> None:
    """One line, not a node's log."""
    code, out, err = invoke("dev", *arguments)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


@pytest.mark.slow
def test_nodes_that_do_not_start_are_reported_with_their_logs_line_by_line(tmp_path: Path) -> None:
    """A reason is read by a person: no line of it ends in a backslash and an n."""
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "data").write_text("no folder")
    command = [sys.executable, "-m", "raftlog", "dev", "--data", str(tmp_path), "--nodes", "1"]
    ran = run([*command, "--port", str(free_port())], text=True)
    first, *log = ran.stderr.splitlines()
    assert (ran.returncode, first) == (1, "raftlog: node 1 ended while starting")
    assert len(log) > 1 and log[0].startswith("--- node 1: ") and "node_failed" in log[-1]
    assert "\\n" not in ran.stderr


def test_nodes_are_killed_paused_and_started_again_from_another_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster in a temporary folder is found by itself. It goes on without any node, until it is stopped."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert invoke("dev", "status")[0] == NOT_FOUND
    with dev(folder, "--nodes", "1", "--port", str(free_port())) as running:
        assert _states() == ["running"]
        place = next(folder.iterdir())
        killed = f"node 1 of {place} killed; `raftlog dev restart 1` starts it again\n"
        assert invoke("dev", "kill", "1") == (0, killed, "")
        assert _states() == ["down"] and refuses(running.bootstrap)
        code, _, said = invoke("dev", "pause", "1")
        assert (code, said) == (1, "raftlog: node 1 does not run; `raftlog dev restart 1` starts it\n")
        assert invoke("dev", "restart", "1") == (0, f"node 1 of {place} started\n", "")
        assert invoke("dev", "restart", "1") == (0, f"node 1 of {place} restarted\n", "")
        assert CommandLine(running.bootstrap)("topic", "list").returncode == 0
        assert invoke("dev", "pause", "1")[0] == 0 and _states() == ["paused"]
        assert "paused already" in invoke("dev", "pause", "1")[2]
        assert invoke("dev", "resume", "1") == (0, f"node 1 of {place} resumed\n", "")
        assert _states() == ["running"]
        assert "is not paused" in invoke("dev", "resume", "1")[2]
        code, _, said = invoke("dev", "kill", "7")
        assert (code, said) == (NOT_FOUND, "raftlog: there is no node 7: the nodes are 1\n")
        assert invoke("dev", "pause", "1")[0] == 0
        assert invoke("dev", "stop") == (0, f"the cluster in {place} has ended\n", "")
        assert ended(running.process) == 0 and refuses(running.bootstrap)
        assert running.process.stdout is not None
        said = running.process.stdout.read()
        assert "node 1 started on request\nnode 1 restarted on request\n" in said and "has ended" not in said
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_no_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may make one in the folder of temporary files, with a socket that answers."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    planted = folder / f"{TEMPORARY}planted"
    planted.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(planted / SOCKET))
        listener.listen()
        assert folder_of(None, 0) == planted
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
        with pytest.raises(Failure) as refused:
            folder_of(None, 0)
    assert refused.value.code == NOT_FOUND


def test_of_several_clusters_one_is_chosen_by_its_port_or_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster with --data is found by the pointer to its folder, so that no command acts on another cluster."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    data = folder / "data"
    places = {folder / f"{TEMPORARY}plain": 19092, data: 29092}
    (folder / f"{TEMPORARY}pointer").mkdir()
    (folder / f"{TEMPORARY}pointer" / POINTER).write_text(str(data))
    with ExitStack() as stack:
        for place, port in places.items():
            place.mkdir()
            stack.enter_context(_answering(place, port))
        assert folder_of(None, 29092) == data
        with pytest.raises(Failure) as refused:
            folder_of(None, 0)
        assert refused.value.code == USAGE
        assert f"-p 29092 ({data})" in str(refused.value) and "-p 19092 (" in str(refused.value)
        with pytest.raises(Failure) as refused:
            folder_of(data, 19092)
        assert refused.value.code == USAGE and "has Kafka's ports 29092, 29093, not 19092" in str(
            refused.value
        )
        assert logs_at([("localhost", 29092)]) == [Path("29092.log")] * 2
        assert logs_at([("127.0.0.2", 29092)]) == []
        where = [("127.0.0.1", 29092)]
        assert running_at("-b", where) == "a `raftlog dev` runs here, node 2 answers: -b 127.0.0.1:29093"
        assert running_at("--registry", where).endswith("node 2 answers: --registry http://127.0.0.1:29094")
        assert running_at("--http", where) == ""
        assert running_at("-b", [("127.0.0.1", 9)]) == ""
        assert is_node(29092) and not is_node(29093)
        monkeypatch.setattr(network, "holder_of", lambda port: (29092, "python"))
        assert "is held by a node of `raftlog dev`" in network._taken("port 1", "x", 1, runs=False).sentence
        there = "a `raftlog dev` runs here, node 2 answers: -b 127.0.0.1:29093"
        for other in ("127.0.0.1:1", "localhost:1"):
            code, _, said = invoke("topic", "list", "-b", other, "-m", "0.1")
            assert code == UNREACHABLE and there in said
        failure = Target("localhost:29644").failure(Refused("localhost:29644", NOT_KAFKA))
        assert str(failure).startswith(
            "localhost:29644: HTTP answers there, not Kafka: name a Kafka port; a `raft"
        )
        assert there in str(failure) and "9092" not in str(failure)
        assert "raftlog dev" not in str(Target("far.example:1").failure(NotConnected("no route to host")))


def test_a_cluster_that_hangs_is_found_by_its_port_and_waited_for_as_long_as_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ports are read from its folder: neither it nor another cluster that hangs is asked for them."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with ExitStack() as stack:
        for name, port in {"one": 19092, "two": 29092}.items():
            place = folder / f"{TEMPORARY}{name}"
            place.mkdir()
            (place / LAYOUT).write_text(json.dumps({"kafka": {"1": port}}))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(place / SOCKET))
            listener.listen()
        code, _, said = invoke("dev", "status", "-p", "29092", "-m", "0.1")
        assert code == UNREACHABLE
        assert said == f"raftlog: the cluster in {place} has not answered for 0.1 s\n"
        assert _where(place, False, 29092) == " -p 29092"
    assert _where(place, False, 29092) == ""


def test_pointers_of_killed_clusters_to_the_same_folder_are_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pointer to a folder in which a cluster runs stays: another cluster is about to be refused there."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    data = folder / "data"
    for name, pointed in {"old": data, "older": data, "other": folder / "elsewhere"}.items():
        (folder / f"{TEMPORARY}{name}").mkdir()
        (folder / f"{TEMPORARY}{name}" / POINTER).write_text(str(pointed))
    data.mkdir()
    with _answering(data, 19092), _folder(data):
        assert len(list(folder.glob(f"{TEMPORARY}*"))) == 4
    (data / SOCKET).unlink()
    with _folder(data):
        assert len(list(folder.glob(f"{TEMPORARY}*"))) == 2
    assert [each.name for each in folder.glob(f"{TEMPORARY}*")] == [f"{TEMPORARY}other"]


@contextmanager
def _answering(place: Path, port: int) -> Iterator[None]:
    """Answer in a folder as a cluster with a node that is down and a node that runs, without an HTTP API."""
    (place / LAYOUT).write_text(json.dumps({"kafka": {"1": port, "2": port + 1}}))
    states = [
        {"node": 1, "state": "down", "pid": None, "kafka": f"127.0.0.1:{port}", "log": f"{port}.log"},
        {
            "node": 2,
            "state": "running",
            "pid": port,
            "kafka": f"127.0.0.1:{port + 1}",
            "registry": f"http://127.0.0.1:{port + 2}",
            "log": f"{port}.log",
        },
    ]

    def answer() -> None:
        with suppress(OSError):
            while True:
                caller, _ = listener.accept()
                with caller:
                    if caller.recv(4096):
                        caller.sendall(json.dumps({"nodes": states}).encode() + b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / SOCKET))
        listener.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _states() -> list[str]:
    """Return the states of the nodes of the cluster that runs."""
    code, out, said = invoke("dev", "status", "-J")
    assert code == 0, said
    return [each["state"] for each in json.loads(out)]


def test_a_cluster_in_the_background_goes_on_until_it_is_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command returns once it is ready. Commands find the cluster, and its path may be longer than a socket's."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    data = folder / ("deep-" * 20) / ("folder-" * 10)
    command = [sys.executable, "-m", "raftlog", "dev", "--detach", "--data", str(data), "--nodes", "1"]
    ran = run([*command, "--port", str(free_port())], text=True)
    assert ran.returncode == 0 and f"`raftlog dev stop --data {data}` ends it." in ran.stdout, ran.stderr
    found = re.search(r"Kafka +(\S+)", ran.stdout)
    try:
        assert found and CommandLine(found[1])("topic", "list").returncode == 0
        again = run(command, text=True)
        assert again.returncode == 1
        assert (
            f"runs in {data} already" in again.stderr and f"`raftlog dev stop --data {data}`" in again.stderr
        )
        assert (data / "dev.sock").stat().st_mode & 0o077 == 0
        assert _states() == ["running"] and len(logs_at(addresses_of(found[1]))) == 1
        assert invoke("dev", "kill", "1")[0] == 0
        killed = f"node 1 killed on request; `raftlog dev restart 1 --data {data}` starts it again\n"
        assert killed in (data / "dev.log").read_text()
        said = invoke("topic", "list", "-b", found[1], "-m", "1")[2]
        assert "a `raftlog dev` runs here, no node of it answers" in said
    finally:
        stopped = invoke("dev", "stop")
    assert stopped == (0, f"the cluster in {data} has ended\n", "") and refuses(found[1])
    until(lambda: not list(folder.glob(f"{TEMPORARY}*")), "the pointer is removed")
    code, _, said = invoke("dev", "status", "--data", str(data))
    assert (code, said) == (UNREACHABLE, f"raftlog: no `raftlog dev` runs in {data}\n")


def test_options_of_a_cluster_are_not_those_of_a_command_about_its_nodes() -> None:
    """An option in the wrong place would be passed over."""
    code, _, said = invoke("dev", "--nodes", "3", "kill", "2")
    assert code == USAGE and "options go behind the command" in said


def test_a_closed_output_does_not_end_what_continues_in_the_background(tmp_path: Path) -> None:
    """`raftlog dev --detach | head -1` leaves a cluster that runs."""
    program = """if True:
        import pathlib, sys
        from raftlog.cli.background import continue_in_background
        code, ready = continue_in_background()
        if code is not None:
            sys.exit(code)
        for number in range(10_000):  # more than a pipe holds
            print("line", number, flush=True)
        ready(pathlib.Path(sys.argv[1]))
        print("ready", flush=True)
    """
    log = tmp_path / "log"
    heard, said = os.pipe()
    os.close(heard)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(log)], stdout=said, stderr=subprocess.DEVNULL
    )
    os.close(said)
    ended(process)
    until(lambda: log.exists() and log.read_text() == "ready\n", "the fork is ready, and continues")


def test_the_registrys_line_names_types_without_a_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain install has a registry that refuses such schemas; the line says what they need."""
    assert _missing_parsers() == "" and [*PARSERS] == [*PACKAGES.values()]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert _missing_parsers() == "  (Avro, JSON Schema and Protobuf need raftlog[schema])"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "avro" or None)
    assert _missing_parsers() == "  (Avro needs raftlog[schema])"
