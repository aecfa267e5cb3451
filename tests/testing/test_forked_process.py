"""Claims about forked nodes: they look like processes that were started by themselves."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from raftlog.testing import forked_process
from raftlog.testing.cluster import Cluster
from raftlog.testing.forked_process import UNKNOWN_EXIT_CODE, ForkedProcess, ForkServer, inherited
from raftlog.testing.progress import descendants_of
from tests.kit.waits import until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FAULTY = "node.id=none"


@pytest.fixture
def stopped_cluster() -> Iterator[Cluster]:
    """A node that is not started yet."""
    one = Cluster(1)
    yield one
    one.close()


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A fork server that no other test uses."""
    monkeypatch.setattr(forked_process, "_server", None)
    server = forked_process.fork_server(os.environ)
    assert server is not None
    yield server
    server.close()


def process_of(cluster: Cluster) -> ForkedProcess:
    found: Any = cluster.nodes[1]._process
    assert isinstance(found, ForkedProcess), "it was not forked"
    return found


def open_files(process: Path) -> list[str]:
    """Return the targets of its descriptors, without descriptors that it closes meanwhile."""
    found = []
    for each in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return found


def test_a_forked_node_ends_with_the_exit_code_of_its_kind(stopped_cluster: Cluster) -> None:
    """0 after SIGTERM, as `subprocess` counts; a second look finds the same."""
    stopped_cluster.start()
    process = process_of(stopped_cluster)
    assert process.poll() is None
    assert stopped_cluster.stop(1) == 0
    assert process.poll() == 0


def test_a_forked_node_that_is_killed_ends_with_its_signal(stopped_cluster: Cluster) -> None:
    """-9 after kill -9, whatever process sends it."""
    stopped_cluster.start()
    os.kill(stopped_cluster.nodes[1].pid, signal.SIGKILL)
    assert stopped_cluster.nodes[1].wait() == -signal.SIGKILL


def test_a_forked_node_that_cannot_start_says_why_in_its_log(stopped_cluster: Cluster) -> None:
    """A faulty config: exit code 2, and the fault by its name."""
    node = stopped_cluster.nodes[1]
    node.config_path.write_text(f"{node.config_path.read_text()}{FAULTY}\n")
    node.start()
    assert process_of(stopped_cluster)
    assert node.wait() == 2
    assert "node.id" in node.log_tail()


def test_a_forked_node_has_what_a_process_of_its_own_has(stopped_cluster: Cluster, monkeypatch: Any) -> None:
    """A session, a command line, an environment, a working directory, and its three streams; none is the server's."""
    monkeypatch.setenv("CARRIED_OVER", "yes")
    stopped_cluster.start()
    node, own = stopped_cluster.nodes[1], Path(f"/proc/{stopped_cluster.nodes[1].pid}")
    assert process_of(stopped_cluster)
    assert os.getsid(node.pid) == node.pid
    words = (own / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert words[:4] == [os.fsencode(sys.executable), b"-m", b"raftlog", b"server"]
    assert os.fsencode(node.config_path) in words
    assert os.readlink(own / "cwd") == os.getcwd()
    assert os.readlink(own / "fd" / "1") == os.readlink(own / "fd" / "2") == str(node.log_path)
    mine = os.readlink(own / "fd" / "0")
    assert open_files(own).count(mine) == 1, "what the node was given was closed behind it"


def fork_faulty_node(cluster: Cluster, log: Path) -> ForkedProcess | None:
    """Start a node that writes down what is wrong with its settings, and ends."""
    arguments = ["--config", str(cluster.nodes[1].config_path), "--override", "no.such.setting=1"]
    environment = {**os.environ, "RAFTLOG_NODE_ID": "nonsense"}
    with log.open("wb") as out, open(os.devnull) as nothing:
        return forked_process.start_forked(
            arguments, streams=[nothing.fileno(), out.fileno(), out.fileno()], environment=environment
        )


def test_an_environment_is_carried_over_to_a_fork(stopped_cluster: Cluster, tmp_path: Path) -> None:
    """Settings from variables: RAFTLOG_NODE_ID, which the config of the file gives way to."""
    log = tmp_path / "log"
    process = fork_faulty_node(stopped_cluster, log)
    assert process is not None
    until(lambda: process.poll() is not None, "the node ends")
    assert process.returncode == 2
    assert "nonsense" in log.read_text()


def test_forks_are_not_used_for_what_they_would_not_inherit() -> None:
    """Variables that the interpreter reads, and niceness: such a node is started by itself."""
    assert forked_process.fork_server(os.environ) is not None
    assert forked_process.fork_server({**os.environ, "PYTHONHASHSEED": "1"}) is None
    assert forked_process.fork_server({**os.environ, "ANYTHING": "else"}) is not None
    plain = inherited(os.environ)
    niced = subprocess.run(
        ["nice", sys.executable, "-c", "import os\nfrom raftlog.testing.forked_process import inherited\n"
         "print(inherited(os.environ).niceness)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert plain is not None and int(niced.stdout) > plain.niceness


def test_forks_are_not_used_where_other_signals_are_blocked() -> None:
    """A node that blocks SIGTERM would not stop."""
    assert forked_process.fork_server(os.environ) is not None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        assert forked_process.fork_server(os.environ) is None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert forked_process.fork_server(os.environ) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_forks_are_not_used_for_another_user() -> None:
    """The fork would have neither the caller's user nor its permissions."""
    code = """
import os
from raftlog.testing.forked_process import inherited
before = inherited(os.environ)
os.seteuid(65534)
print(*(line for line in inherited(os.environ).kernel if line not in before.kernel), sep="\\n")
"""
    changed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"Uid", "CapEff"} <= {line.partition(":")[0] for line in changed.splitlines()}


def test_a_fork_that_its_starter_cannot_take_never_becomes_a_node(
    own_server: ForkServer, stopped_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is left for it, say: it will be started by itself, on the same folder."""

    def fail(pid: int) -> int:
        raise OSError(pid)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pidfd_open", fail)
        assert fork_faulty_node(stopped_cluster, tmp_path / "log") is None
    (fork,) = descendants_of(own_server.pid)
    until(lambda: all(each.stands_still for each in descendants_of(own_server.pid)), "the fork ends")
    assert (tmp_path / "log").read_text() == ""
    assert own_server.ask({"wait": fork.pid}) == {"status": 0}


def test_an_unawaited_answer_goes_to_no_other_request(
    own_server: ForkServer, stopped_cluster: Cluster
) -> None:
    """Ctrl-C, or a test's time limit, while the fork server is asked: it is ended, and nodes go on."""
    stopped_cluster.start()
    process = process_of(stopped_cluster)
    interrupt_question(own_server, {"wait": process.pid})
    assert process.poll() is None
    stopped_cluster.kill(1)
    assert process.returncode == UNKNOWN_EXIT_CODE


def test_a_fork_server_that_was_ended_before_its_first_answer_is_replaced(own_server: ForkServer) -> None:
    """It was not its fault."""
    interrupt_question(own_server, {"wait": own_server.pid})
    server = forked_process.fork_server(os.environ)
    assert server is not None and server is not own_server
    server.close()


def interrupt_question(server: ForkServer, question: dict[str, int]) -> None:
    """Ask a fork server that is stopped, and send this process a signal once it has been asked."""

    def interrupt() -> None:
        until(lambda: unread_bytes(server), "the question is sent")
        os.kill(os.getpid(), signal.SIGUSR1)

    os.kill(server.pid, signal.SIGSTOP)
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    thread = Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            server.ask(question)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.kill(server.pid, signal.SIGCONT)


def unread_bytes(server: ForkServer) -> int:
    """Return how much a fork server was sent and has not read."""
    found: int = struct.unpack("i", fcntl.ioctl(server._control, termios.TIOCOUTQ, bytes(4)))[0]
    return found


def test_a_stopped_fork_server_holds_up_no_start_for_ever(
    own_server: ForkServer, stopped_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: after the longest time for an answer it counts as gone."""
    stopped_cluster.start()
    process = process_of(stopped_cluster)
    monkeypatch.setattr(forked_process, "ANSWER_S", 0.1)
    os.kill(own_server.pid, signal.SIGSTOP)
    stopped_cluster.close()
    assert process.returncode == UNKNOWN_EXIT_CODE
    assert not own_server.runs


def test_nodes_outlive_their_fork_server(own_server: ForkServer, stopped_cluster: Cluster) -> None:
    """kill -9 of it: the node goes on, is seen to run and to end, and only its exit code is lost."""
    stopped_cluster.start()
    process = process_of(stopped_cluster)
    os.kill(own_server.pid, signal.SIGKILL)
    until(lambda: not own_server.runs, "the fork server ends")
    assert process.poll() is None
    assert stopped_cluster.view(1).broker_ids == {1}
    stopped_cluster.kill(1)
    assert process.returncode == UNKNOWN_EXIT_CODE
    assert stopped_cluster.running_ids() == frozenset()


def test_a_fork_server_that_died_is_replaced(own_server: ForkServer, stopped_cluster: Cluster) -> None:
    """The next node is forked again."""
    stopped_cluster.start()
    stopped_cluster.kill(1)
    os.kill(own_server.pid, signal.SIGKILL)
    until(lambda: not own_server.runs, "the fork server ends")
    stopped_cluster.start()
    server = process_of(stopped_cluster)._server
    assert server is not own_server
    stopped_cluster.close()
    server.close()


def test_a_fork_server_that_cannot_run_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An import that fails there: nodes are started by themselves, and no second server is tried."""
    monkeypatch.setattr(forked_process, "_server", None)
    monkeypatch.setattr(forked_process, "_is_unusable", False)
    monkeypatch.setattr(forked_process, "MODULE", "raftlog.no_such_module")
    with Cluster(1) as cluster:
        assert isinstance(cluster.nodes[1]._process, subprocess.Popen)
        assert cluster.view(1).broker_ids == {1}
    until(lambda: forked_process.fork_server(os.environ) is None, "the server is given up")
    assert forked_process._is_unusable


def test_two_clusters_share_a_fork_server_that_ends_with_its_starter() -> None:
    """A program that ends without closing anything leaves no process behind."""
    code = """
from raftlog.testing.cluster import Cluster
from raftlog.testing import forked_process
one, other = Cluster(1), Cluster(1)
one.start(); other.start()
parents = {open(f"/proc/{each.nodes[1].pid}/stat").read().rpartition(")")[2].split()[1] for each in (one, other)}
assert parents == {str(forked_process._server.pid)}, parents
print(forked_process._server.pid, one.nodes[1].pid, other.nodes[1].pid)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in printed.split()), "all are gone")
