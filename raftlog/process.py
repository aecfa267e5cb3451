"""Runs one node as a process: locks its data folders, handles signals, and raises the limit of open files.

An uncaught exception in a callback, or in a task that must not fail, is a broken invariant. The process ends, and the
cluster carries on. An exception in a connection only closes that connection.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import gc
import os
import resource
import signal
import stat
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.disk import FOLDER_MODE, make_folders
from raftlog.base.env import Env, machine_uptime_s
from raftlog.base.forks import keep_from_children
from raftlog.base.log import LimitedLog, flush_log, get_logger
from raftlog.base.log_output import describe
from raftlog.base.memory import account_of_bodies, max_bytes
from raftlog.node import Node, NodeFailed, prepare_first_requests, warm_up

if TYPE_CHECKING:
    from raftlog.admin.listener import AdminListener
    from raftlog.admin.view import FaultSwitch, NodeView
    from raftlog.base.dev_cluster import DevCluster

log = get_logger("node")

MIN_LOG_FILES: Final = 16
"""Descriptors that logs get at least, however low the limit."""

MIN_HTTP_FILES: Final = 8
"""Connections that the HTTP API accepts at least, however low the limit."""

RESERVED_FILES: Final = 1024
"""Descriptors for all but logs and clients: other nodes, the admin API, journals, connections before their login.

At most half of what the logs leave.
"""

OTHERS: Final = stat.S_IRWXO
"""The rights of users that neither own a file nor are in its group."""

MANY_FILES: Final = 1 << 20
"""The assumed limit of open files if the system sets none."""

MACOS_FILES: Final = 10_240
"""The highest limit that macOS accepts (OPEN_MAX), although it reports that there is none."""

CGROUP: Final = "/sys/fs/cgroup"

LARGE_BLOCK_BYTES: Final = 2 << 20
"""Blocks of memory from this size on are returned to the system when they are freed; the usual fetch stays below."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
"""Parameters of mallopt(3)."""

BURST_BYTES: Final = 16 << 20
"""If the process has grown by so much since the last sweep, the thresholds would collect its garbage too late."""

COLLECT_EVERY_S: Final = 20.0
"""The shortest time between two full collections, which block the loop for some 80 ms for a million objects."""

COLLECTIONS_AFTER_BURST: Final = 3
"""Full collections after a burst: it may still go on at the first, and deleted files are kept a while."""

STOP_S: Final = 60.0
"""The timeout of a stop. A longer stop hangs on a disk, and the process exits without it."""

GARBAGE_THRESHOLDS: Final = (10_000, 5, 400)
"""Allocations between two collections of garbage cycles: requests make none, so frequent collections only cost latency.

Every fifth collection covers all objects since the fifth before: parts of a large request, in some 20 ms. One
collection in two thousand covers everything.
"""


class NodeStuck(NodeFailed):
    """The node did not stop in time: its threads hang on a disk."""


WatchLinks = Callable[[asyncio.AbstractEventLoop, Callable[[bool], None], Callable[[], list[str]]], None]
"""Have a fault cut a node off from the others; see `raftlog.faults.node_links`."""


class Controls(NamedTuple):
    """Controls of a node in tests or in `raftlog dev`: its faults, its cluster's process, and what cuts its links."""

    faults: FaultSwitch | None = None
    dev: DevCluster | None = None
    watch_links: WatchLinks | None = None


NO_CONTROLS: Final = Controls()


async def run(
    config: NodeConfig,
    *,
    env: Env | None = None,
    controls: Controls = NO_CONTROLS,
    ready: Callable[[Node], None] | None = None,
) -> None:
    """Run one node until SIGTERM or SIGINT, then shut it down; a second signal stops it at once. Raise NodeFailed.

    The process is the node's own: its limits, its memory and its garbage collection are set up for it.
    """
    gc.enable()
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    env = env or Env()
    env.uptime_s = machine_uptime_s
    share_files(env, _raise_open_files())
    env.memory_bytes = memory_limit(_cgroup_files())
    env.trim_memory = _tune_malloc()

    def opened() -> None:
        env.collect_garbage = _tune_garbage_collection()

    try:
        await run_until(signals, config, env, controls=controls, ready=ready, opened=opened)
    except NodeStuck:
        flush_log()
        os._exit(1)  # threads that hang on a disk would keep the process alive


def share_files(env: Env, limit: int) -> None:
    """Share a process's descriptors between a node's logs, its clients and its HTTP API."""
    env.open_files, env.sockets = open_files_of_logs(limit), files_for_clients(limit)
    env.http_sockets = files_for_http(limit)


async def run_until(
    signals: asyncio.Queue[int],
    config: NodeConfig,
    env: Env,
    *,
    controls: Controls = NO_CONTROLS,
    ready: Callable[[Node], None] | None = None,
    opened: Callable[[], None] = lambda: None,
) -> None:
    """Run one node until the number of a signal comes, then shut it down; a second signal stops it at once.

    `opened` is called once the node listens, `ready` once it takes part. Raises NodeFailed.
    """
    with ExitStack() as locks:
        for folder in sorted({*config.log_dirs, config.metadata_log_dir}):
            locks.enter_context(locked(folder))
        node = Node(config, env)
        doors: list[AdminListener] = []
        loop = asyncio.get_running_loop()
        if controls.watch_links is not None:
            controls.watch_links(loop, partial(_refuse_nodes, node), node.advertised)
        limited = LimitedLog(log, loop.time)
        loop.set_exception_handler(lambda _loop, context: _uncaught(node, limited, context))
        why = await _first(node.failed, signals.get(), node.start())
        try:
            if why is None:
                announcing = asyncio.ensure_future(_announce(node, ready))
                try:
                    await _open_doors(node, controls, doors)
                    opened()
                    why = await _first(node.failed, signals.get())
                finally:
                    announcing.cancel()
            if isinstance(why, int):
                log.info("node_stopping", signal=signal.Signals(why).name)
                await _first(node.failed, signals.get(), node.hand_over())
        finally:
            for door in doors:
                await door.stop()
            await _stop(node)
        if isinstance(why, str):
            raise NodeFailed(why)
        log.info("node_stopped")


def _refuse_nodes(node: Node, refused: bool) -> None:
    if node.broker is not None:
        node.broker.server.refuse_nodes(refused)
    if node.control.quorum is not None:
        node.control.quorum.refuse_nodes(refused)


async def _open_doors(node: Node, controls: Controls, opened: list[AdminListener]) -> None:
    """Open the ports that speak HTTP. Raise NodeFailed if a configured address is unavailable."""
    config = node.config
    if config.admin_listener is None and config.schema_registry_listener is None:
        return
    from raftlog.admin.limits import Limits
    from raftlog.admin.listener import (
        ADMIN_DOOR,
        SCHEMA_DOOR,
        AdminListener,
        AdminUnavailable,
        TokensUnusable,
    )

    view = replace(_view_of(node), faults=controls.faults, dev=controls.dev)
    for door in (ADMIN_DOOR, SCHEMA_DOOR):
        if door.address(config) is None:
            continue
        seen = view
        if door is SCHEMA_DOOR:
            schema_log = None if node.broker is None else node.broker.context.schema_log()
            seen = replace(view, tls=node.admin_tls(), schema_log=schema_log)
        listener = AdminListener(seen, Limits(connections=node.env.http_sockets), door=door)
        try:
            await listener.start()
        except (AdminUnavailable, TokensUnusable, OSError) as error:
            if door.setting in config.given or config.admin_tokens_file or config.admin_tls:
                raise NodeFailed(str(error)) from error
            log.warning("admin_listener_unavailable", reason=str(error), advice=f"set {door.setting}")
        else:
            opened.append(listener)
            if door is SCHEMA_DOOR:
                view.open_registry = listener.open_registry


def _view_of(node: Node) -> NodeView:
    from raftlog.admin.view import NodeView
    from raftlog.facts import NodeFacts

    config = node.config
    return NodeView(
        config,
        image=lambda: node.metadata.published_image,
        unready_reasons=node.unready_reasons,
        wall_clock_ms=node.env.wall_clock_ms,
        subscribe=node.metadata.subscribe,
        ages=node.env.ages,
        deletes_by_age=node.deletes_by_age,
        voters=node.control.voters,
        submit=node.control.submit,
        introduce=node.introduce,
        tls_options=node.tls_options,
        tls=node.admin_tls(),
        offload=node.env.offload,
        token_verifiers={} if node.broker is None else node.broker.server.token_keys,
        authorizer=node.authorizer,
        knows_rules=node.knows_rules,
        facts=NodeFacts(node),
        turns=node.env.turns,
        lateness=node.env.lateness,
        history=node.metadata.history,
        bodies=account_of_bodies(max_bytes(config.raftlog_memory_max_bytes, node.env.memory_bytes)),
        transactions=None if node.broker is None else node.broker.transactions.survey,
    )


async def _first(failed: asyncio.Future[str], *works: Coroutine[Any, Any, Any]) -> Any:
    """Return the reason of a failure, else the result of whichever work ends first; the others are cancelled.

    If several end together, the first argument counts.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    done, _ = await asyncio.wait([failed, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    if failed.done():
        return failed.result()
    result = next(result for task, result in zip(tasks, results, strict=True) if task in done)
    if isinstance(result, BaseException):
        raise result
    return result


async def _stop(node: Node) -> None:
    try:
        await asyncio.wait_for(node.stop(), STOP_S)
    except TimeoutError:
        log.error("node_did_not_stop", timeout_s=STOP_S)
        raise NodeStuck(f"the node did not stop within {STOP_S:.0f} s") from None


def _uncaught(node: Node, limited: LimitedLog, context: dict[str, Any]) -> None:
    """End the node after an uncaught exception in a callback; log any other, as of a task.

    asyncio reports a failed accept in the same way, and retries it a second later: the node goes on.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and _is_accept(context):
        limited.warning("accept_failed", reason=error.strerror or str(error))
        return
    if "handle" in context:
        node.fail(f"{context.get('message')}: {'no exception' if error is None else describe(error)}")
    log.error("uncaught_exception", context=context.get("message"), exc_info=error)


def _is_accept(context: dict[str, Any]) -> bool:
    callback = getattr(context.get("handle"), "_callback", None)
    return "socket" in context or getattr(callback, "__name__", "") == "_accept_connection"


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keep other processes out of a data folder, which two writers would ruin. Raises NodeFailed, OSError.

    Other users of the machine are kept out as well: the folder may have been made by an older release.
    """
    make_folders(folder, FOLDER_MODE)
    _close_to_others(folder)
    with open(f"{folder}/.lock", "wb") as file:
        keep_from_children(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeFailed(f"{folder} is in use by another process") from None
        yield


def _close_to_others(folder: str) -> None:
    """Take a folder's rights from users that neither own it nor are in its group."""
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    if not mode & OTHERS:
        return
    try:
        os.chmod(folder, mode & ~OTHERS)
    except OSError as error:
        log.warning(
            "data_directory_readable_by_others",
            directory=folder,
            reason=error.strerror,
            consequence="every user of this machine can read records and try passwords",
            advice=f"chmod o-rwx {folder}",
        )
    else:
        log.info("data_directory_closed_to_others", directory=folder)


async def _announce(node: Node, ready: Callable[[Node], None] | None) -> None:
    await node.wait_ready()
    if ready is not None:
        ready(node)
    log.info("node_ready", advertised=node.advertised(), log_dirs=list(node.config.log_dirs))


def _tune_garbage_collection(clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Make garbage collections rare; return a call that runs full collections after memory has grown by a burst.

    A full collection takes about a tenth of a microsecond for each object that was made since the start.
    """
    from raftlog.admin.process_facts import memory

    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    resident_before, collections_left, collected_at = 0, 0, clock()
    with suppress(OSError):
        resident_before = memory()[1]

    def collect() -> None:
        nonlocal resident_before, collections_left, collected_at
        now = clock()
        if now < collected_at + COLLECT_EVERY_S:
            return
        collected_at = now
        with suppress(OSError):  # without /proc only the thresholds collect
            _, resident = memory()
            if resident > resident_before + BURST_BYTES:
                collections_left = COLLECTIONS_AFTER_BURST
            if collections_left:
                collections_left -= 1
                gc.collect()
                _, resident = memory()
            resident_before = resident

    return collect


def _raise_open_files() -> int:
    """Raise the limit of open files as far as possible, for thousands of partitions, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, max(soft, MACOS_FILES)) if soft != hard else ():
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return soft


def open_files_of_logs(limit: int) -> int:
    """Return how many of a process's descriptors logs may keep: half at most, the rest is for connections."""
    most = Env().open_files
    return most if limit == resource.RLIM_INFINITY else max(MIN_LOG_FILES, min(most, limit // 2))


def files_for_clients(limit: int) -> int:
    """Return how many of a process's descriptors clients' connections may take."""
    return max(1, _files_left_by_logs(limit) - _reserved_files(limit))


def files_for_http(limit: int) -> int:
    """Return how many of a process's descriptors the HTTP API's connections may take: a quarter of the reserve."""
    return max(MIN_HTTP_FILES, min(Env().http_sockets, _reserved_files(limit) // 4))


def _reserved_files(limit: int) -> int:
    return min(RESERVED_FILES, _files_left_by_logs(limit) // 2)


def _files_left_by_logs(limit: int) -> int:
    return (MANY_FILES if limit == resource.RLIM_INFINITY else limit) - open_files_of_logs(limit)


def memory_limit(cgroup_files: Iterable[str]) -> int:
    """Return the bytes that this process may use: the machine's, or less where a container says so (cgroup 1 and 2)."""
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in cgroup_files:
        with suppress(OSError, ValueError), open(path) as file:  # there may be none, or it says "max"
            limit = min(limit, int(file.read()))
    return limit


def _cgroup_files() -> Iterator[str]:
    """Yield the files with limits of this process's groups, outer groups included, as seen from in- or outside."""
    yield f"{CGROUP}/memory.max"
    yield f"{CGROUP}/memory/memory.limit_in_bytes"
    with suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file.read().splitlines():
            _, controllers, path = line.split(":", 2)
            parts = path.strip("/").split("/")
            for length in range(1, len(parts) + 1):
                group = "/".join(parts[:length])
                if not controllers:
                    yield f"{CGROUP}/{group}/memory.max"
                elif "memory" in controllers.split(","):
                    yield f"{CGROUP}/memory/{group}/memory.limit_in_bytes"


def _tune_malloc() -> Callable[[], None]:
    """Let malloc return memory to the system after a burst; return a call that returns fragmented memory, too.

    By default glibc keeps ever larger freed blocks, and a heap for each thread, which is never emptied. Call it before
    threads start. It has no effect with other C libraries.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError):
        return lambda: None
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)
    return lambda: trim(0)


__all__ = ["NodeFailed", "locked", "prepare_first_requests", "run", "warm_up"]
