"""raftlog doctor: each thing that keeps a node from starting, or from keeping its word, is a sentence with advice."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raftlog.base.config import NodeConfig, load_config
from raftlog.cli.app import app
from raftlog.cli.doctor import machine as doctor_machine
from raftlog.cli.doctor import network as doctor_network
from raftlog.cli.doctor.command import check_config, check_secret
from raftlog.cli.doctor.data import check_data
from raftlog.cli.doctor.findings import Finding, Level
from raftlog.testing.ports import LOOPBACK, HeldPorts

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Ports without a listener."""
    held = HeldPorts(3)
    yield held.ports
    held.release()


@pytest.fixture
def settings(tmp_path: Path, ports: list[int]) -> dict[str, str]:
    """The settings of a node alone on loopback."""
    kafka, controller, admin = ports
    return {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{kafka},CONTROLLER://{LOOPBACK}:{controller}",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "raftlog.admin.listener": f"{LOOPBACK}:{admin}",
        "log.dirs": str(tmp_path / "data"),
    }


def read(settings: dict[str, str], **changes: str) -> NodeConfig:
    """Return a config; in the names of `changes` _ stands for a dot."""
    return load_config({**settings, **{name.replace("_", "."): value for name, value in changes.items()}})


def worst(findings: Iterable[Finding]) -> Finding:
    """Return the finding that is worst."""
    order = [Level.OK, Level.NOTE, Level.MEND]
    return max(findings, key=lambda each: order.index(each.level))


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()
        yield


def doctor(tmp_path: Path, settings: dict[str, str], *more: str) -> tuple[int, str]:
    """Run the command; returns its exit code and output."""
    file = tmp_path / "node.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    result = CliRunner().invoke(app, ["doctor", "-c", str(file), *more])
    return result.exit_code, result.stdout


def test_a_machine_that_suits_a_node_has_nothing_to_mend(tmp_path, settings):
    """Exit code 0, every room looked at, and no folder or file made."""
    code, out = doctor(tmp_path, settings, "-J")
    found = json.loads(out)
    assert code == 0, out
    about = {each["about"].split()[0] for each in found}
    assert {"limits", "versions", "clock", "disk", "port", "advertised", "quorum", "secrets"} <= about
    assert [each.name for each in tmp_path.iterdir()] == ["node.properties"]


def test_a_taken_port_names_its_holder_and_fails(tmp_path, settings, ports):
    """Exit code 1; a line says what to do. A descriptor that closes meanwhile hides no other descriptor."""
    lower = os.open(os.devnull, os.O_RDONLY)
    with listening(ports[0]):
        os.close(lower)  # the list of descriptors has this one again, for itself
        code, out = doctor(tmp_path, settings)
    assert code == 1
    assert (
        f"mend  port {ports[0]}: PLAINTEXT://{LOOPBACK}:{ports[0]} is held by process {os.getpid()} (" in out
    )
    assert "-> end that process, or choose another port" in out
    assert out.endswith("fine\n")


def test_the_port_of_a_node_that_runs_is_fine(settings, ports, tmp_path):
    """Its folder is locked, so it is this node that listens."""
    (tmp_path / "data").mkdir()
    with listening(ports[0]), (tmp_path / "data" / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = worst(doctor_network.check_ports(read(settings)))
        assert (found.level, "this node runs" in found.sentence) == (Level.OK, True)
        reached = worst(doctor_network.check_advertised(read(settings)))
        assert (reached.level, reached.sentence) == (Level.OK, "it is reached from here")


def test_an_address_of_another_machine_cannot_be_listened_on(settings, ports):
    """192.0.2.0/24 is reserved for documentation."""
    found = worst(
        doctor_network.check_ports(
            read(settings, listeners=f"PLAINTEXT://192.0.2.1:{ports[0]},CONTROLLER://:{ports[1]}")
        )
    )
    assert (found.level, "192.0.2.1 is no address of this machine" in found.sentence) == (Level.MEND, True)


@pytest.mark.parametrize(
    ("advertised", "level", "sentence"),
    [
        ("nowhere.invalid", Level.MEND, "nowhere.invalid cannot be resolved"),
        ("192.0.2.1", Level.NOTE, "192.0.2.1 is no address of this machine"),
        (LOOPBACK, Level.OK, f"it is {LOOPBACK}, an address of this machine"),
    ],
)
def test_what_is_advertised_must_lead_here(settings, advertised, level, sentence):
    """Clients connect to the advertised address, whatever they bootstrapped from."""
    node = read(settings, advertised_listeners=f"PLAINTEXT://{advertised}:9092")
    found = worst(doctor_network.check_advertised(node))
    assert (found.level, found.sentence) == (level, sentence)


def test_loopback_is_no_address_in_a_cluster_of_several_machines(settings, ports):
    """Other nodes would connect to themselves."""
    voters = f"1@192.0.2.1:{ports[1]},2@192.0.2.2:{ports[1]}"
    found = worst(doctor_network.check_advertised(read(settings, controller_quorum_voters=voters)))
    assert (found.level, "it is loopback" in found.sentence) == (Level.MEND, True)


def test_voters_that_do_not_answer_are_named(settings, ports):
    """Without a majority the cluster stops; without one voter of three it works, for now."""
    kafka, controller, admin = ports
    node = read(
        settings,
        controller_quorum_voters=f"1@{LOOPBACK}:{controller},2@{LOOPBACK}:{kafka},3@{LOOPBACK}:{admin}",
    )
    found = worst(doctor_network.check_quorum(node))
    assert found.level is Level.MEND
    assert (
        f"no answer from voters 2 ({LOOPBACK}:{kafka}), 3 ({LOOPBACK}:{admin}); 2 of 3 must run"
        in found.sentence
    )
    with listening(kafka):
        assert worst(doctor_network.check_quorum(node)).level is Level.NOTE
        with listening(admin):
            assert worst(doctor_network.check_quorum(node)).level is Level.OK


def test_a_voter_listens_where_the_others_look_for_it(settings, ports):
    """A port in one setting only is the usual slip."""
    node = read(settings, controller_quorum_voters=f"1@{LOOPBACK}:{ports[1] + 1}")
    found = worst(doctor_network.check_quorum(node))
    assert (found.level, f"look for this node at port {ports[1] + 1}" in found.sentence) == (Level.MEND, True)


def test_clocks_of_nodes_are_compared_by_what_their_http_says(ports):
    """The Date header of any response; None if the node does not answer, or the header is invalid."""

    def answer(date: str) -> float | None:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, 0))
            listener.listen()

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n"
                    connection.sendall(head.encode())

            server = threading.Thread(target=serve)
            server.start()
            apart = doctor_network._clocks_apart(LOOPBACK, listener.getsockname()[1], tls=False)
            server.join()
            return apart

    apart = answer("Thu, 01 Jan 2015 00:00:00 GMT")
    assert apart is not None and apart < -86_400
    assert answer("tomorrow") is None
    assert doctor_network._clocks_apart(LOOPBACK, ports[0], tls=False) is None


def test_folders_that_cannot_be_data_folders_are_named(settings, tmp_path):
    """A file in the way, and a folder without write permission."""
    (tmp_path / "file").write_text("")
    found = worst(doctor_machine.check_disks(read(settings, log_dirs=str(tmp_path / "file" / "data"))))
    assert (found.level, f"{tmp_path / 'file'} is no folder" in found.sentence) == (Level.MEND, True)
    found = worst(doctor_machine.check_disks(read(settings, log_dirs="/proc/data")))
    assert (found.level, "/proc cannot be written by user" in found.sentence) == (Level.MEND, True)


@pytest.mark.parametrize(("name", "reason"), [("x" * 300, "name too long"), ("loop/data", "symbolic links")])
def test_a_folder_that_cannot_even_be_looked_for_is_named(settings, tmp_path, name, reason):
    """For example below a folder of another user: the message names it, not its parent, without a traceback."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    found = worst(doctor_machine.check_disks(read(settings, log_dirs=str(tmp_path / name))))
    assert found.level is Level.MEND
    assert f"{tmp_path / name} cannot be written by user" in found.sentence
    assert reason in found.sentence


@pytest.mark.parametrize(
    ("line", "whose"), [("node.id=7", "node 7"), ("node.id=1\ncluster.id=x", "cluster x")]
)
def test_folders_of_another_node_or_cluster_are_named(settings, tmp_path, line, whose):
    """A node would refuse to start on them."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(line)
    found = worst(check_data(read(settings, cluster_id="mine")))
    assert (found.level, f"it belongs to {whose}" in found.sentence) == (Level.MEND, True)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("meta.properties", b"\xff\xfe", "is damaged: it is not text"),
        ("meta.properties", b"node.id=restore-unfinished", "it has an unfinished restore"),
        ("raftlog-metadata/quorum.wal", b"x" * 99, "quorum.wal: it does not begin with its owner"),
        ("recovery-point-offset-checkpoint", b"0\n0\n", "quorum.wal is gone, although this voter has run"),
    ],
)
def test_damaged_data_folders_are_named_with_what_to_do(settings, tmp_path, name, content, sentence):
    """A node would not start on them; a folder that was only formatted is fine."""
    (tmp_path / "data" / "raftlog-metadata").mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("node.id=1\ncluster.id=mine")
    assert worst(check_data(read(settings))).level is Level.OK
    (tmp_path / "data" / name).write_bytes(content)
    found = worst(check_data(read(settings)))
    assert (found.level, sentence in found.sentence, bool(found.advice)) == (Level.MEND, True, True)


def test_folders_of_two_clusters_are_named(settings, tmp_path):
    """As after one disk of a node was taken from another cluster."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"node.id=1\ncluster.id={name}")
    found = worst(check_data(read(settings, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")))
    assert (found.level, "the folders are of several clusters" in found.sentence) == (Level.MEND, True)


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(tmp_path):
    """The longest place counts, blanks are written as in the kernel's table."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "a / ext4 rw 0 0\nb /var tmpfs rw 0 0\nc /var/my\\040data nfs4 rw 0 0\nd /größe nfs rw 0 0\n"
    )
    places = {
        "/home": "ext4",
        "/var/lib": "tmpfs",
        "/variety": "ext4",
        "/var/my data/x": "nfs4",
        "/größe/x": "nfs",
    }
    assert {each: doctor_machine.file_system_of(Path(each), mounts) for each in places} == places
    assert doctor_machine.file_system_of(Path("/home"), tmp_path / "none") == "unknown"


def test_a_clock_behind_the_last_write_must_be_set(settings, tmp_path):
    """Such as after a power loss with an empty battery."""
    (tmp_path / "data").mkdir()
    written = tmp_path / "data" / "meta.properties"
    written.write_text("")
    now = written.stat().st_mtime
    found = worst(doctor_machine.check_clock(read(settings), lambda: now - 3600))
    assert (found.level, "3600 s behind the last write" in found.sentence) == (Level.MEND, True)
    assert worst(doctor_machine.check_clock(read(settings), lambda: now)).level is not Level.MEND


@pytest.mark.parametrize(
    ("limit", "level"), [(256, Level.MEND), (65_536, Level.OK), (resource.RLIM_INFINITY, Level.OK)]
)
def test_few_open_files_must_be_more(settings, monkeypatch, limit, level):
    """Of the hard limit, which a node takes."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (100, limit))
    assert worst(doctor_machine.check_limits(read(settings))).level is level


def test_packages_that_are_missing_or_do_not_fit_are_named(settings, monkeypatch):
    """Extras that are not installed are no fault."""
    asked = ["pysyncobj==9.9", "no-such-package>=1", 'absent>=1; extra == "tls"', "msgspec>=0.19"]
    monkeypatch.setattr(metadata, "requires", lambda _name: asked)
    found = worst(doctor_machine.check_versions(read(settings)))
    assert found.level is Level.MEND
    assert found.sentence.startswith("packages do not fit: pysyncobj is ")
    assert found.sentence.endswith(", not 9.9; no-such-package is missing")


def test_a_cluster_over_a_network_needs_a_secret(settings, ports):
    """On loopback it does not."""
    assert worst(check_secret(read(settings))).level is Level.OK
    voters = f"1@192.0.2.1:{ports[1]}"
    assert worst(check_secret(read(settings, controller_quorum_voters=voters))).level is Level.MEND
    settings["raftlog.cluster.secret"] = SECRET
    assert worst(check_secret(read(settings, controller_quorum_voters=voters))).level is Level.OK


def test_secrets_that_others_may_read_are_reported_without_the_secret(tmp_path, settings):
    """The file's mode counts only if there is a file."""
    settings["raftlog.cluster.secret"] = SECRET
    _, out = doctor(tmp_path, settings)
    assert "other users may read" in out
    assert SECRET not in out
    file = tmp_path / "node.properties"
    file.chmod(0o600)
    assert not list(check_config(read(settings), file))


def test_users_of_a_listener_are_secrets_as_well(tmp_path, settings):
    """A listener's own settings are in no table, and users' passwords are among them."""
    settings["listeners"] = settings["listeners"].replace("PLAINTEXT", "CLIENTS")
    settings["listener.security.protocol.map"] = "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    settings |= {"inter.broker.listener.name": "CLIENTS", "sasl.enabled.mechanisms": "PLAIN"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings["listener.name.clients.plain.sasl.jaas.config"] = f'{module} required user_ann="{SECRET}";'
    file = tmp_path / "node.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o644)
    node = read({**settings, "raftlog.cluster.secret": SECRET})
    assert "other users may read" in worst(check_config(node, file)).sentence


def test_a_secret_from_elsewhere_is_not_one_of_the_file(tmp_path, settings, monkeypatch):
    """As under systemd, where it comes in a file of its own."""
    monkeypatch.setenv("RAFTLOG_CLUSTER_SECRET", SECRET)
    _, out = doctor(tmp_path, settings)
    assert "raftlog.cluster.secret is set" in out
    assert "other users may read" not in out
