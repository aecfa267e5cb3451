"""An Iceberg catalog in PostgreSQL: a writer that is killed within its commits leaves each record in the table once."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.cli.test_dev import free_port
from tests.kit.waits import finished, run
from tests.tables.test_run import _start
from tests.tables.topics import assert_same, produce, read_log

pytestmark = [pytest.mark.tables, pytest.mark.nightly]

USER = "postgres"
"""Debian's user of the server, which refuses to run as root."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URI of an empty database on loopback."""
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed here: pip install psycopg2-binary")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    programs, port = found[-1].parent, free_port()
    user = USER if os.geteuid() == 0 else None
    home = pwd.getpwnam(USER).pw_dir if user else None  # what it may enter
    folder = Path(tempfile.mkdtemp(prefix="raftlog-", dir=home))
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    made = subprocess.run(
        [programs / "initdb", "-D", data, "-A", "trust", "-U", "raftlog", "-N"],
        user=user,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    only_here = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, "-p", str(port), *only_here],
        user=user,
        cwd=folder,
        stdout=log,
        stderr=log,
    )
    try:
        ready = run([str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-t", "1"])
        for _ in range(100):
            if ready.returncode == 0:
                break
            ready = run([str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-t", "1"])
        assert ready.returncode == 0, (folder / "log").read_text()
        yield f"postgresql+psycopg2://raftlog@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # a fast shutdown
        server.wait(60)
        log.close()
        shutil.rmtree(folder)


def test_a_writer_killed_within_its_commits_leaves_each_record_there_once(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    """kill -9 after every call of the table and every step of a commit, and each time the same command again."""
    from pyiceberg.catalog import load_catalog

    topic, raftlog = "in-postgresql", CommandLine(cluster.bootstrap_servers)
    assert raftlog("topic", "create", topic, "-p", "3").returncode == 0
    to = ["--to", str(tmp_path), "--format", "iceberg", "--catalog", database, "--until-end"]
    program = ("-m", "tests.tables.killed_committer")
    runs = _start(raftlog, "table", "run", topic, *to, "--tidy-every", "1", program=program)
    assert runs.stdin is not None and runs.stdout is not None
    codes: list[int] = []
    while codes[-1:] != [0] and len(codes) < 60:
        produce(raftlog.bootstrap, topic, 7)
        runs.stdin.write("\n")
        runs.stdin.flush()
        codes.append(int(runs.stdout.readline()))
    _out, err = finished(runs)
    assert len(codes) > 8 and codes[-1] == 0 and set(codes[:-1]) == {-signal.SIGKILL}, (codes, err)
    assert raftlog("table", "run", topic, *to).returncode == 0
    catalog = load_catalog("raftlog", type="sql", uri=database)
    rows = catalog.load_table(f"raftlog.{topic}").scan().to_arrow().to_pylist()
    assert_same(rows, read_log(raftlog.bootstrap, topic))
