"""Claims about one node as a process: signals, uncaught failures, and starts that must fail."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import os
import resource
import signal
import socket
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftlog import process
from raftlog.base.config import load_config
from raftlog.base.disk import RealDisk
from raftlog.base.env import raise_failure
from raftlog.base.log import LIMITED_LINES, LimitedLog
from raftlog.metadata.bootstrap import write_bootstrap
from raftlog.node import Node, NodeFailed
from raftlog.quorum.quorum import Quorum
from raftlog.storage.log_directory import CLEAN_SHUTDOWN
from raftlog.testing.ports import LOOPBACK, HeldPorts
from tests.kit.clock import Clock
from tests.kit.garbage import made_to_stay
from tests.kit.waits import PATIENCE_S


@pytest.fixture
def ports() -> Iterator[list[int]]:
    held = HeldPorts(2)
    yield held.ports
    held.release()


@pytest.fixture
def settings(tmp_path: Path, ports: list[int]) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{ports[0]},CONTROLLER://{LOOPBACK}:{ports[1]}",
        "log.dirs": str(tmp_path),
        "raftlog.cluster.secret": "a secret of the tests",
    }


async def _left_running() -> set[str]:
    """Return the other tasks of the loop; cancelled tasks get the turns that they need to end."""
    for _ in range(3):
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if ending := {task for task in others if task.cancelling()}:
        others -= (await asyncio.wait(ending, timeout=PATIENCE_S))[0]
    return {repr(task) for task in others}


def _can_listen(port: int) -> bool:
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taker.bind((LOOPBACK, port))
            taker.listen()
        except OSError:
            return False
        return True


async def test_a_signal_ends_a_node_cleanly_and_nothing_is_left_running(
    settings: dict[str, str], tmp_path: Path, ports: list[int]
) -> None:
    """SIGTERM: the folders are marked clean, the ports are free, no task goes on."""
    await process.run(load_config(settings), ready=lambda _node: os.kill(os.getpid(), signal.SIGTERM))
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert all(map(_can_listen, ports))
    assert not await _left_running()


async def test_a_node_holds_its_folder_until_the_last_write_to_its_journal_has_ended(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor in this process would write to the same places of the same file, which this journal kept open."""
    release, heard = threading.Event(), list[asyncio.Future[bool]]()
    stop = Quorum.stop

    async def stop_while_it_writes(quorum: Quorum) -> None:
        await stop(quorum)
        asyncio.get_running_loop().call_soon(release.set)

    def write_and_end(node: Node) -> None:
        assert node.control.quorum is not None
        write = node.control.quorum.driver._env.offload(partial(release.wait, PATIENCE_S))
        write.add_done_callback(heard.append)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Quorum, "stop", stop_while_it_writes)
    await process.run(load_config(settings), ready=write_and_end)
    assert [each.result() for each in heard] == [True]


async def test_a_signal_before_the_node_is_ready_ends_it_too(
    settings: dict[str, str], ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three voters are absent, so it never becomes ready, and needs no leave of a controller."""
    monkeypatch.setattr("raftlog.node.CONTROLLED_SHUTDOWN_S", 3_600.0)
    voters = f"1@{LOOPBACK}:{settings['listeners'].rpartition(':')[2]},2@{LOOPBACK}:1,3@{LOOPBACK}:2"
    config = load_config(settings | {"controller.quorum.voters": voters})

    async def end_once_it_listens() -> None:
        while all(map(_can_listen, ports)):
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(asyncio.gather(process.run(config), end_once_it_listens()), PATIENCE_S)


async def test_a_signal_that_comes_as_the_start_ends_is_heeded(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were done when the node looked, and it took the start for all that had happened."""
    loop = asyncio.get_running_loop()
    told: list[Callable[[], None]] = []
    monkeypatch.setattr(
        loop, "add_signal_handler", lambda _, call, *given: told.append(partial(call, *given))
    )
    start = Node.start

    async def start_and_signal(node: Node) -> None:
        await start(node)
        told[0]()  # as the handler does: a waiter for a signal goes on in this turn of the loop
        await asyncio.sleep(0)

    monkeypatch.setattr(Node, "start", start_and_signal)
    await asyncio.wait_for(process.run(load_config(settings)), PATIENCE_S)


async def test_what_a_callback_raises_ends_the_process(settings: dict[str, str], tmp_path: Path) -> None:
    """A broken invariant of ours leaves a node that is half of what it should be: it stops, the cluster carries on."""

    def broken() -> None:
        raise AssertionError("isr ⊄ replicas")

    def break_it(_node: Node) -> None:
        asyncio.get_running_loop().call_soon(broken)

    with pytest.raises(NodeFailed, match="AssertionError: isr ⊄ replicas"):
        await process.run(load_config(settings), ready=break_it)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert not await _left_running()


async def test_a_task_that_must_not_fail_ends_the_process_when_it_does(settings: dict[str, str]) -> None:
    """A broker with dead heartbeats would be a zombie: fenced for ever, without a log line."""

    def break_it(node: Node) -> None:
        assert node.broker is not None
        lifecycle = node.broker.lifecycle
        lifecycle._submit = None  # type: ignore[assignment]  # whatever goes wrong in there
        lifecycle.nudge()

    with pytest.raises(NodeFailed, match="NoneType"):
        await process.run(load_config(settings), ready=break_it)


async def test_the_failure_of_a_task_reaches_the_loops_exception_handler_at_once() -> None:
    """Not when it is collected, and not for a cancelled task."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[object] = loop.create_future()
    loop.set_exception_handler(lambda _loop, context: told.set_result(context))

    async def failing() -> None:
        raise ZeroDivisionError

    tasks = [loop.create_task(asyncio.Event().wait()), loop.create_task(failing())]
    for task in tasks:
        task.add_done_callback(raise_failure)
    tasks[0].cancel()
    context = await told
    assert isinstance(context["exception"], ZeroDivisionError) and "handle" in context  # type: ignore[index]


@pytest.mark.parametrize("taken", [0, 1])
async def test_a_port_in_use_is_one_clear_error_that_leaves_nothing_running(
    settings: dict[str, str], tmp_path: Path, ports: list[int], taken: int
) -> None:
    """Of the clients' listener or the controller's; whichever was bound already is free again."""
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        occupant.bind((LOOPBACK, ports[taken]))
        occupant.listen()
        with pytest.raises(NodeFailed, match=rf"{ports[taken]}.*in use"):
            await process.run(load_config(settings))
    assert _can_listen(ports[1 - taken])
    assert not await _left_running()


async def test_an_admin_port_in_use_stops_what_was_started(
    settings: dict[str, str], tmp_path: Path, ports: list[int]
) -> None:
    """The logs are flushed and closed as at any stop, so the next start need not recover them."""
    with socket.socket() as occupant:
        occupant.bind((LOOPBACK, 0))
        occupant.listen()
        port = occupant.getsockname()[1]
        with pytest.raises(NodeFailed, match=rf"{port}.*in use"):
            await process.run(load_config({**settings, "raftlog.admin.listener": f"{LOOPBACK}:{port}"}))
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert all(_can_listen(each) for each in ports)
    assert not await _left_running()


async def test_logs_that_were_never_recovered_are_not_marked_clean(
    settings: dict[str, str], tmp_path: Path, ports: list[int]
) -> None:
    """A start that fails before recovery must not have the next one skip it."""
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        occupant.bind((LOOPBACK, ports[1]))
        occupant.listen()
        with pytest.raises(NodeFailed):
            await process.run(load_config(settings))
    assert (tmp_path / "meta.properties").exists()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


async def test_a_damaged_metadata_journal_is_named(settings: dict[str, str], tmp_path: Path) -> None:
    """One line for an operator: which file, and that it is damage; never a start on half of it."""
    config = load_config(settings)
    await process.run(config, ready=lambda _node: os.kill(os.getpid(), signal.SIGTERM))
    journal = tmp_path / "raftlog-metadata" / "quorum.wal"
    content = bytearray(journal.read_bytes())
    content[30] ^= 1
    journal.write_bytes(content)
    with pytest.raises(NodeFailed, match=r"journal is damaged: .*quorum\.wal"):
        await process.run(config)
    assert not await _left_running()


async def test_a_cluster_may_begin_with_voters_that_can_change(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """As `raftlog format --standalone` leaves it: the first batch has kraft.version 1, and the set follows."""
    config = load_config(settings)
    write_bootstrap(RealDisk(), config.metadata_log_dir, (), kraft_version=1)
    began: list[Node] = []

    def look(node: Node) -> None:
        assert node.control.quorum is not None
        if not node.control.quorum.has_static_voters:
            began.append(node)
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            asyncio.get_running_loop().call_later(0.01, look, node)

    await process.run(config, ready=look)
    assert began[0].metadata.image.features["kraft.version"] == 1
    assert not (tmp_path / "raftlog-bootstrap.json").exists()


async def test_a_damaged_cluster_secret_is_named(settings: dict[str, str], tmp_path: Path) -> None:
    """With the secret of another list all other nodes would refuse this node, without a hint at its disk."""
    (tmp_path / "raftlog-metadata").mkdir()
    (tmp_path / "raftlog-metadata" / "cluster-secret").write_bytes(b"\0" * 64)
    del settings["raftlog.cluster.secret"]
    with pytest.raises(NodeFailed, match="cluster-secret is damaged"):
        await process.run(load_config(settings))


async def test_a_folder_of_another_node_or_process_is_refused(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """Two writers would ruin it."""
    with (tmp_path / ".lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NodeFailed, match=str(tmp_path)):
            await process.run(load_config(settings))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    with pytest.raises(NodeFailed, match=r"node\.id=1, but this node has node\.id=2"):
        await process.run(load_config(settings | {"node.id": "2"}))


@pytest.mark.parametrize(
    ("limit", "kept"), [(1 << 20, 4096), (4096, 2048), (256, 128), (20, 16), (resource.RLIM_INFINITY, 4096)]
)
def test_logs_leave_half_of_the_descriptors_to_connections(limit: int, kept: int) -> None:
    """Otherwise thousands of partitions would use them up, and an append that finds none is refused."""
    assert process.open_files_of_logs(limit) == kept


# -- what the process may use -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["max\n", "9223372036854771712\n", ""])
def test_without_a_containers_limit_the_machine_is_the_limit(tmp_path: Path, content: str) -> None:
    """cgroup 2 says max, cgroup 1 the largest multiple of a page; some files are missing or empty."""
    file = tmp_path / "memory.max"
    file.write_text(content)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert process.memory_limit([str(tmp_path / "missing"), str(file)]) == machine


def test_the_least_of_the_containers_limits_counts(tmp_path: Path) -> None:
    """Groups lie within each other."""
    files = [tmp_path / name for name in ("outer", "inner")]
    for file, limit in zip(files, (1 << 28, 1 << 29), strict=True):
        file.write_text(f"{limit}\n")
    assert process.memory_limit(map(str, files)) == 1 << 28


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 65_536, 1 << 20, resource.RLIM_INFINITY])
def test_clients_leave_descriptors_for_logs_and_all_else(limit: int) -> None:
    """Logs have theirs, and the reserve is for other nodes, the admin API and journals."""
    most = process.MANY_FILES if limit == resource.RLIM_INFINITY else limit
    logs, clients = process.open_files_of_logs(limit), process.files_for_clients(limit)
    assert clients >= 1
    reserve = min(process.RESERVED_FILES, (most - logs) // 2)
    assert most - logs - clients >= reserve
    assert (
        process.MIN_HTTP_FILES <= process.files_for_http(limit) <= max(process.MIN_HTTP_FILES, reserve // 4)
    )


def test_a_data_folder_is_closed_to_other_users(tmp_path: Path) -> None:
    """A new folder, and the folder of an older release, where the group keeps its rights; the log says so once."""
    for name, before, after in (("new", None, 0o700), ("old", 0o755, 0o750), ("group", 0o2770, 0o2770)):
        folder = tmp_path / name
        if before is not None:
            folder.mkdir()
            folder.chmod(before)
        with capture_logs() as logs, process.locked(str(folder)):
            assert stat.S_IMODE(folder.stat().st_mode) == after
        assert [each["event"] for each in logs] == ["data_directory_closed_to_others"] * (name == "old")


def test_a_folder_that_stays_open_to_others_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is another user, as with a mounted volume."""

    def refuse(_path: str, _mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "chmod", refuse)
    with capture_logs() as logs, process.locked(str(tmp_path)):
        pass
    (told,) = logs
    assert (told["event"], told["advice"]) == ("data_directory_readable_by_others", f"chmod o-rwx {tmp_path}")


def test_memory_that_is_free_can_be_given_back() -> None:
    """The C library does it where it can; elsewhere the call has no effect, and does not fail."""
    process._tune_malloc()()


def test_garbage_among_the_parts_of_one_request_is_looked_for_in_portions() -> None:
    """A pass over the 400,000 objects of a request of 100,000 parts took up to 100 ms; 50,000 take 20."""
    youngest, middle, _ = process.GARBAGE_THRESHOLDS
    assert youngest * middle <= 50_000


class ReferenceCycle:
    """Refers to itself, with some bytes."""

    def __init__(self, size: int) -> None:
        self.itself = self
        self.content = b"x" * size


def test_garbage_of_a_burst_is_looked_for_and_that_of_usual_work_is_not() -> None:
    """Objects that refer to themselves stayed for hours: requests make so little of it that the thresholds are never
    reached.
    """
    thresholds, clock = gc.get_threshold(), Clock()

    def collect() -> None:
        clock.advance(process.COLLECT_EVERY_S)
        look()

    try:
        look = process._tune_garbage_collection(clock)
        small, large = weakref.ref(ReferenceCycle(1000)), weakref.ref(ReferenceCycle(2 * process.BURST_BYTES))
        look()
        assert (small() is not None, large() is not None) == (True, True), "it was looked for just now"
        collect()
        assert (small(), large()) == (None, None)
        for _ in range(process.COLLECTIONS_AFTER_BURST):
            collect()
        small = weakref.ref(ReferenceCycle(1000))
        collect()
        assert small() is not None
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        with made_to_stay():
            gc.collect()


class FailingNode:
    """Remembers why it should end."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


async def test_a_listener_that_cannot_accept_ends_no_node_and_fills_no_log() -> None:
    """asyncio reports each try, fifty a second, and some as a failed callback."""
    loop, node = asyncio.get_running_loop(), FailingNode()
    limited = LimitedLog(process.log, loop.time)

    def _accept_connection() -> None:
        """Has the name of asyncio's own callback."""

    no_files = OSError(errno.EMFILE, "Too many open files")
    handle = loop.call_soon(_accept_connection)
    with capture_logs() as logs:
        for _ in range(50):
            process._uncaught(node, limited, {"socket": None, "exception": no_files})  # type: ignore[arg-type]
        process._uncaught(node, limited, {"handle": handle, "exception": OSError(errno.EPROTO, "no")})  # type: ignore[arg-type]
    assert node.reasons == []
    assert {line["event"] for line in logs} == {"accept_failed"}
    assert len(logs) == LIMITED_LINES
    process._uncaught(node, limited, {"handle": loop.call_soon(print), "exception": no_files})  # type: ignore[arg-type]
    assert len(node.reasons) == 1, "any other callback of ours"
