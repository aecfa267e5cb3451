"""Nodes in this process, each on an event loop in a thread of its own: the quickest way to a broker for tests.

They speak to clients over real sockets and write real files. They share the interpreter with the tests, so none can be
paused, and each stops in order. Use processes to test what a pause or a kill does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import signal
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar

from raftlog.base.config import ConfigFaults, load_config
from raftlog.base.env import Env, ThreadOffload
from raftlog.base.forks import keep_from_children
from raftlog.base.log import separate_log
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.node_process import NodeProcess
from raftlog.testing.ports import LOOPBACK

T = TypeVar("T")

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)


class InProcessCluster(AdminCluster):
    """A cluster of nodes, by default a single node, in this process. Nodes cannot be paused, given faults or cut
    off.
    """

    forked = False

    def __init__(self, nodes: int = 1, **options: Any) -> None:
        super().__init__(nodes, **options)

    def make_node(self, node_id: int, folder: Path, **options: Any) -> NodeProcess:
        if options.pop("faults"):
            raise ValueError(
                "nodes in this process have no faults: use Cluster, which runs them as processes"
            )
        return NodeThread(node_id, folder, **options)


class NodeThread(NodeProcess):
    """A node in a thread, to be handled as a process. Every signal that ends one stops it in order."""

    _thread: Thread | None = None
    _failed = False
    node: Any = None
    """The `raftlog.node.Node` inside, once it is ready; only its own thread may use it, see `run`."""

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int:
        """The process in which it runs."""
        return os.getpid()

    def start(self) -> None:
        """Start the thread; does not wait for the node."""
        assert not self.running, f"node {self.node_id} is running"
        selector = selectors.DefaultSelector()
        keep_from_children(selector)  # with all sockets of the node
        self._loop = asyncio.SelectorEventLoop(selector)
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._failed = False
        name = f"raftlog-node-{self.node_id}"
        self._thread = Thread(target=self._run, name=name, daemon=True)  # a test run that breaks off can end
        self._thread.start()

    def signal(self, number: int) -> None:
        """Stop the node: SIGKILL at once, the others after it has given away what others can have."""
        if number not in ENDING:
            raise ValueError(
                f"a node in this process cannot receive {signal.Signals(number).name}: use a Cluster"
            )
        if not self.running:
            return
        with suppress(RuntimeError):  # it has just ended
            for _ in range(2 if number == signal.SIGKILL else 1):  # a second signal stops it at once
                self._loop.call_soon_threadsafe(self._signals.put_nowait, number)

    def wait(self) -> int:
        """Wait for the thread to end, and return 0, or 1 where the node failed; its log says of what."""
        assert self._thread is not None, f"node {self.node_id} was never started"
        self._thread.join()
        return int(self._failed)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's loop, and return its result."""
        return self._context.run(asyncio.run_coroutine_threadsafe, work, self._loop).result()

    def kill(self) -> None:
        """Stop the node without handing over, and wait until it is gone."""
        if self._thread is not None:
            self.signal(signal.SIGKILL)
            self.wait()

    def _ready(self, node: Any) -> None:
        self.node = node

    def _run(self) -> None:
        with self.log_path.open("a") as file, separate_log(file) as log:
            self._context = copy_context()  # of its log
            offload = ThreadOffload()
            try:
                self._serve(offload)
            except Exception as error:
                self._failed = True
                log.write(f"node {self.node_id} failed: {type(error).__name__}: {error}")
            finally:
                self.node = None
                offload.close()

    def _serve(self, offload: ThreadOffload) -> None:
        from raftlog.process import STOP_S, NodeStuck, run_until, share_files

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                config = load_config(
                    self._settings, environment={}, hostname=LOOPBACK, working_dir=str(self.directory)
                )
            except ConfigFaults as error:
                raise ValueError("; ".join(map(str, error.faults))) from None
            env = Env(offload=offload)
            share_files(env, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            hangs = False
            try:
                runner.run(run_until(self._signals, config, env, ready=self._ready))
            except NodeStuck:
                hangs = True
                raise
            finally:  # a sync that is under way has its file closed on the loop; a process would just end
                if not hangs:
                    runner.run(asyncio.wait_for(offload.drain(), STOP_S))
