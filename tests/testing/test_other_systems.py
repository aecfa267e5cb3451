"""Claims about systems that are not Linux, made by hiding from a process what only Linux has."""

from __future__ import annotations

import errno
import os
import resource
import ssl
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

import pytest
import trustme

from raftlog import process
from raftlog.base import disk
from raftlog.testing import Cluster, ports
from tests.kit.errors import raises_errno
from tests.kit.waits import PATIENCE_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]

HIDE = """
    import fcntl, os, resource, signal, socket, sys, time

    def no_proc(event, arguments):
        if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", arguments[0])

    sys.addaudithook(no_proc)
    socket.TCP_KEEPALIVE = socket.TCP_KEEPIDLE  # as macOS calls it
    for module, names in {
        os: "RWF_NOWAIT fdatasync memfd_create pidfd_open sched_getaffinity eventfd splice posix_fadvise",
        signal: "pidfd_send_signal",
        socket: "TCP_KEEPIDLE TCP_USER_TIMEOUT SOCK_CLOEXEC SOCK_NONBLOCK",
        time: "CLOCK_BOOTTIME clock_gettime_ns",
    }.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    fcntl.fcntl = lambda descriptor, command, *_: os.fsync(descriptor) if command == 51 else 0
    from importlib.machinery import PathFinder

    find_spec = PathFinder.find_spec
    PathFinder.find_spec = lambda name, *path: None if name.startswith("caio") else find_spec(name, *path)
"""

USE = """
    from confluent_kafka import Consumer, Producer
    from raftlog.testing import ClusterKind

    with ClusterKind(1) as cluster:
        cluster.create_topic("orders")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce("orders", "tea")
        assert producer.flush(60) == 0
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        print(consumer.poll(60).value().decode())
        consumer.close()
        cluster.restart(1)
        cluster.wait_until_healthy()
    print("closed")
"""


@pytest.mark.parametrize("kind", ["InProcessCluster", "Cluster"])
def test_a_cluster_needs_nothing_that_only_linux_has(kind: str) -> None:
    """Neither /proc, nor its sync, kernel syncs, pidfds and clocks; a node in the process, and a started node."""
    program = textwrap.dedent(HIDE) + textwrap.dedent(USE.replace("ClusterKind", kind))
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.stdout.split() == ["tea", "closed"], ran.stderr


def test_macos_syncs_through_the_cache_of_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F_FULLFSYNC, as a JVM does: its fsync alone would lose acknowledged records with the power."""
    asked: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr("fcntl.fcntl", lambda _descriptor, command: asked.append(command))
    disk.RealDisk().open(str(tmp_path / "log"), create=True).sync()
    assert asked == [disk.FULL_SYNC]
    disk.RealDisk().write_file(str(tmp_path / "checkpoint"), b"tea")
    assert asked == 3 * [disk.FULL_SYNC], "the file and its folder"


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EIO])
def test_macos_syncs_as_far_as_a_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A network file system has no F_FULLFSYNC (Go falls back as well); a failed sync is never repeated."""
    synced: list[int] = []

    def refuse(_descriptor: int, _command: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr("fcntl.fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = disk.RealDisk().open(str(tmp_path / "log"), create=True)
    with nullcontext() if code == errno.ENOTSUP else raises_errno(code):
        file.sync()
    assert len(synced) == (code == errno.ENOTSUP)


def test_macos_lets_a_process_have_fewer_files_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that there is no limit, and refuses to set that; a limit that is higher already stays."""
    taken: list[tuple[int, int]] = []

    def refuse(_what: int, limits: tuple[int, int]) -> None:
        if limits[0] > process.MACOS_FILES or limits[0] < 0:
            raise ValueError("current limit exceeds maximum limit")
        taken.append(limits)

    monkeypatch.setattr(resource, "setrlimit", refuse)
    for soft, expected in ((256, process.MACOS_FILES), (20_000, 20_000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _what, soft=soft: (soft, resource.RLIM_INFINITY))
        assert process._raise_open_files() == expected
    assert taken == [(process.MACOS_FILES, resource.RLIM_INFINITY)]


def test_keys_are_read_without_a_memfd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file that this user alone can read, and that is gone afterwards."""
    from raftlog.broker.links import tls

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    certificate = trustme.CA().issue_cert("localhost")
    with tls._in_memory(certificate.private_key_and_cert_chain_pem.bytes()) as path:
        assert Path(path).stat().st_mode & 0o777 == 0o600
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    assert list(tmp_path.iterdir()) == []


def test_ports_that_cannot_be_held_are_only_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On BSD no process can bind to a port that another socket is bound to, listening or not."""
    monkeypatch.setattr(ports, "_IS_HOLDABLE", False)
    held = ports.HeldPorts(3)
    assert len(held.ports) == 3
    assert all(each.fileno() == -1 for each in held._sockets)
    with Cluster(1) as cluster:
        cluster.create_topic("orders")
