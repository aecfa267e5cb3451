"""Claims about processes that fork while they have a cluster, as multiprocessing and preforking servers do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.kit.marks import nightly
from tests.kit.waits import until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

HEAD = """
import json, os, signal, socket, sys
from raftlog.testing import Cluster, InProcessCluster

def accepts(cluster):
    try:
        socket.create_connection(("127.0.0.1", cluster.nodes[1].port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True

def live():  # a child that lives until it is killed
    pid = os.fork()
    if not pid:
        signal.pause()
    return pid
"""


def run(script: str) -> dict[str, Any]:
    """Run a script in a process of its own, and return what it printed as JSON in its last line."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("kind", "leave"),
    [
        ("Cluster", "sys.exit(0)"),
        ("InProcessCluster", "cluster.close()"),
        nightly("Cluster", "cluster.close()"),
        nightly("InProcessCluster", "sys.exit(0)"),
    ],
)
def test_a_child_that_ends_leaves_the_cluster_of_its_parent_alone(kind: str, leave: str) -> None:
    """Its exit runs what the parent registered for its own: the cluster goes on, and its folder is there."""
    seen = run(f"""
        with {kind}(1) as cluster:
            pid = os.fork()
            if not pid:
                {leave}
                sys.exit(0)
            os.waitpid(pid, 0)
            seen = {{"accepts": accepts(cluster), "folder": cluster.directory.exists()}}
            cluster.create_topic("t")
        print(json.dumps({{**seen, "after": accepts(cluster), "left": cluster.directory.exists()}}))
    """)
    assert seen == {"accepts": True, "folder": True, "after": False, "left": False}


def test_a_node_in_this_process_ends_while_a_child_lives() -> None:
    """Its port refuses clients, its folder can be locked again, and clients that were connected hear of the end."""
    seen = run("""
        cluster = InProcessCluster(1)
        with cluster:
            client = socket.create_connection(("127.0.0.1", cluster.nodes[1].port), timeout=60)
            cluster.create_topic("t")
            pid = live()
            cluster.stop(1)
            stopped = accepts(cluster)
            end = client.recv(1) == b""
            cluster.restart(1)
            restarted = accepts(cluster)
        print(json.dumps({"stopped": stopped, "end": end, "restarted": restarted, "closed": accepts(cluster)}))
        os.kill(pid, signal.SIGKILL)
    """)
    assert seen == {"stopped": False, "end": True, "restarted": True, "closed": False}


def test_nodes_end_with_the_owner_that_is_killed_while_its_child_lives() -> None:
    """They watch a socket of the owner's, of which the child has no copy."""
    script = """
        cluster = Cluster(1)
        cluster.start()
        pid = live()
        print(json.dumps([cluster.nodes[1].port, pid, str(cluster.directory)]), flush=True)
        signal.pause()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    port, child, _folder = json.loads(owner.stdout.readline())
    try:
        owner.kill()
        owner.wait()

        def refuses() -> bool:
            with socket.socket() as attempt:
                return attempt.connect_ex(("127.0.0.1", port)) != 0

        until(refuses, "the node has ended")
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


def test_a_shared_cluster_starts_anew_after_its_owner_was_killed_while_a_child_lives(tmp_path: Path) -> None:
    """The child has no part in the owner's locks."""
    script = f"""
        from pathlib import Path
        from raftlog.testing.shared_cluster import shared_cluster

        class Fake:
            def start(self): print("started", flush=True)
            def close(self): pass
            def node_addresses(self): return []

        with shared_cluster(Path({str(tmp_path)!r}), Fake):
            print(live(), flush=True)
            signal.pause()
    """
    arguments = [sys.executable, "-c", HEAD + textwrap.dedent(script)]
    children = []
    try:
        for _ in range(2):
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as owner:
                assert owner.stdout is not None
                first = owner.stdout.readline().strip()
                children.append(int(first if first != "started" else owner.stdout.readline()))
                owner.kill()
            assert first == "started"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_may_have_a_cluster_of_its_own() -> None:
    """It has a fork server of its own, too, and both clusters end."""
    seen = run("""
        with Cluster(1) as cluster:
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                with Cluster(1) as own:
                    os.write(write, b"%d" % accepts(own))
                os._exit(0)
            os.waitpid(pid, 0)
            seen = {"own": os.read(read, 1).decode(), "parents": accepts(cluster)}
        print(json.dumps(seen))
    """)
    assert seen == {"own": "1", "parents": True}
