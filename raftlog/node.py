"""One node: the place where all rooms meet. It starts the roles in order and stops them in the opposite one.

Start: open the log directories and follow the metadata → listen → register → beat → unfenced, which is ready.
Stop: ask the controller's leave (leaderships move) → hand on the quorum's lead → stop listening → flush, mark clean.
Nothing here decides anything; if it grows a rule, the rule belongs in a room.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.env import Env
from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.broker.absences import Absences
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordinators import Coordinators
from raftlog.broker.handlers import warm_up
from raftlog.broker.housekeeping import Housekeeping
from raftlog.broker.lifecycle import Lifecycle, Timing
from raftlog.broker.probe import probe
from raftlog.broker.replicas import Replicas
from raftlog.broker.server import BrokerServer, ListenerUnavailable
from raftlog.control import ControlPlane
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage
from raftlog.metadata.published import PublishedMetadata
from raftlog.metadata.requests import RegisterBroker
from raftlog.storage.log_directory import ForeignLogDirectory, LogDirectory

log = get_logger("node")

CONTROLLED_SHUTDOWN_S: Final = 10.0
"""Longest time that leaderships may take to move before the node stops all the same."""

GARBAGE_THRESHOLD: Final = 20_000
"""Allocations between two looks for garbage cycles: request handling makes none, so looking often only costs latency."""


class NodeFailed(Exception):
    """The node cannot start or go on; the message says why, for an operator."""


class Node:
    """`start`, then `failed` tells when it cannot go on, then `shut_down` (gentle) or `stop`."""

    def __init__(self, config: NodeConfig, env: Env) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.env = env
        self.failed: asyncio.Future[str] = loop.create_future()
        """Resolves to the reason when the node cannot go on."""
        self.metadata = PublishedMetadata(loop.call_soon)
        self.control = ControlPlane(
            config, env, self.metadata, cluster_id=self._cluster_id, failed=self._fail
        )
        self.broker: Broker | None = None
        self._directories: list[LogDirectory] = []

    async def start(self) -> None:
        """Start all roles; returns when the broker (if this is one) listens and registers. Raises NodeFailed."""
        try:
            await self._start()
        except (ForeignLogDirectory, ListenerUnavailable, OSError) as error:
            raise NodeFailed(str(error)) from error

    async def _start(self) -> None:
        self.metadata.subscribe(self._on_metadata)
        if "broker" in self.config.roles:
            self.broker = Broker(self)
            self.broker.replicas.logs.open_directories(self.config.cluster_id)
            self._directories = [volume.directory for volume in self.broker.replicas.logs.volumes]
        else:
            self._directories = [self._open_metadata_directory()]
        await self.control.start()
        if self.broker is not None:
            await self.broker.start()

    async def wait_ready(self) -> None:
        """Wait until this node takes part: its broker is unfenced, or its quorum knows a leader."""
        if self.broker is not None:
            await self.broker.lifecycle.unfenced.wait()
        else:
            await self.control.wait_for_leader()

    async def shut_down(self) -> None:
        """Leave gently: leaderships move first, then the quorum's lead, then everything is flushed and marked clean."""
        if self.broker is not None and self.config.controlled_shutdown_enable:
            left = await self.broker.lifecycle.controlled_shutdown()
            log.info("controlled_shutdown_ended", leaderships_moved=left)
        await self.control.hand_over()
        await self.stop()

    async def stop(self) -> None:
        """Stop without asking anyone; what was accepted is flushed."""
        if self.broker is not None:
            await self.broker.stop()
        await self.control.stop()

    def _cluster_id(self) -> str | None:
        known = next((each.cluster_id for each in self._directories if each.cluster_id), None)
        return known or self.metadata.image.cluster_id or self.config.cluster_id

    def _open_metadata_directory(self) -> LogDirectory:
        return LogDirectory.open(
            self.env.disk,
            self.config.metadata_log_dir,
            node_id=self.config.node_id,
            cluster_id=self.config.cluster_id,
            new_directory_id=lambda: UUID(int=self.env.random.getrandbits(128), version=4),
        )

    def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.cluster_id and new.cluster_id != old.cluster_id:
            try:
                for directory in self._directories:
                    directory.adopt_cluster_id(new.cluster_id)
            except (ForeignLogDirectory, OSError) as error:
                self._fail(str(error))

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            log.error("node_cannot_go_on", reason=reason)
            self.failed.set_result(reason)


class Broker:
    """The broker role of a node, put together."""

    def __init__(self, node: Node) -> None:
        config, metadata = node.config, node.metadata
        self._node = node
        self._incarnation_id = UUID(int=node.env.random.getrandbits(128), version=4)
        self._tasks: list[asyncio.Task[None]] = []
        self.replicas = Replicas(
            node.env, config, submit=node.control.submit, image=self._image, broker_epoch=self._broker_epoch
        )
        self.context = BrokerContext(
            env=node.env,
            config=config,
            image=self._image,
            submit=node.control.submit,
            replicas=self.replicas,
            broker_epoch=self._broker_epoch,
            in_touch=node.control.in_touch,
        )
        self.absences = self.context.absences = Absences(
            asyncio.get_running_loop().time, unnamed_s=config.broker_session_timeout_ms / 1000
        )
        self.replicas.peers.on_leader_lost = self.absences.lost
        self.replicas.peers.on_leader_found = self.absences.found
        self.coordinators = self.context.groups = Coordinators(self.context)
        self.server = BrokerServer(self.context)
        self.housekeeping = Housekeeping(self.replicas)
        self.lifecycle = Lifecycle(
            registration=self._registration,
            submit=node.control.submit,
            image=lambda: metadata.published,
            timing=Timing(config.broker_heartbeat_interval_ms / 1000, CONTROLLED_SHUTDOWN_S),
            failed_directories=lambda: self.replicas.failed_directory_ids,
            damaged=lambda: self.replicas.damaged,
        )
        self.replicas.on_log_damaged = self.lifecycle.nudge
        self.replicas.on_directory_failed = self.lifecycle.nudge
        node.control.on_leader_changed = self.lifecycle.nudge

    async def start(self) -> None:
        """Recover the logs, take roles, listen, and begin to register. Raises OSError, ListenerUnavailable."""
        metadata = self._node.metadata
        await self.replicas.start()
        self._on_metadata(EMPTY_IMAGE, metadata.published)
        metadata.subscribe(self._on_metadata)
        await self.server.start()
        self.housekeeping.start()
        self._spawn(self._live())
        self._spawn(self._check_advertised())
        self._spawn(self._warm_up())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.coordinators.close()
        await self.server.stop()
        await self.housekeeping.stop()
        await self.replicas.close()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """What this broker advertises; port 0 is the port that was bound."""
        bound = {each.listener: each.port for each in self.server.endpoints}
        return tuple(
            Endpoint(each.name, each.host, each.port or bound.get(each.name, 0), each.security_protocol)
            for each in self._node.config.advertised_listeners
            if each.name in bound
        )

    def _image(self) -> MetadataImage:
        return self._node.metadata.published

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _registration(self) -> RegisterBroker:
        node = self._node
        return RegisterBroker(
            broker_id=node.config.node_id,
            incarnation_id=self._incarnation_id,
            cluster_id=node._cluster_id() or "",
            endpoints=self.endpoints(),
            rack=node.config.broker_rack,
            directory_ids=self.replicas.directory_ids,
        )

    def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        self.absences.on_metadata(old, new)
        self.replicas.on_metadata(old, new)
        self.coordinators.on_metadata(old, new)
        self.lifecycle.on_metadata()

    def _spawn(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _live(self) -> None:
        await self.lifecycle.run()
        self._node._fail(f"the controller refused this broker: {self.lifecycle.fatal}")

    async def _warm_up(self) -> None:
        """Import what clients will ask for; not before we take part, since a thread's imports hold up the loop."""
        await self.lifecycle.unfenced.wait()
        if self._node.env.threads:
            await self._node.env.offload(warm_up)

    async def _check_advertised(self) -> None:
        """Say the commonest mistake of all: advertising an address at which nobody answers."""
        for each in self.endpoints():
            result = await probe(each.host, each.port, patience_s=2.0)
            if result != "alive":
                log.warning(
                    "advertised_listener_unreachable",
                    listener=each.listener,
                    address=f"{each.host}:{each.port}",
                    result=result,
                    advice="clients are told to connect there: set advertised.listeners to what they can reach",
                )


async def run(
    config: NodeConfig, *, env: Env | None = None, ready: Callable[[Node], None] | None = None
) -> None:
    """Run one node until SIGTERM or SIGINT, then shut it down; a second signal stops it at once. Raises NodeFailed."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    _raise_open_files()
    with ExitStack() as locks:
        for folder in sorted({*config.log_dirs, config.metadata_log_dir}):
            locks.enter_context(_locked(folder))
        node = Node(config, env or Env())
        await node.start()
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
        announcing = asyncio.ensure_future(_announce(node, ready))
        reason = await _first(signals.get(), node.failed)
        announcing.cancel()
        if isinstance(reason, str):
            await node.stop()
            raise NodeFailed(reason)
        log.info("node_stopping", signal=signal.Signals(reason).name)
        if await _first(node.shut_down(), signals.get()) is not None:
            await node.stop()
        log.info("node_stopped")


async def _first(*works: Awaitable[Any]) -> Any:
    """Return the result of whichever ends first; the others are cancelled."""
    futures = [asyncio.ensure_future(work) for work in works]
    done, pending = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for future in pending:
        future.cancel()
    return done.pop().result()


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep other processes out of a data folder, which two writers would ruin. Raises NodeFailed, OSError."""
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/.lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeFailed(f"{folder} is in use by another process") from None
        yield


async def _announce(node: Node, ready: Callable[[Node], None] | None) -> None:
    await node.wait_ready()
    log.info("node_ready")
    if ready is not None:
        ready(node)


def _raise_open_files() -> None:
    """Thousands of partitions need more descriptors than a shell's usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["Broker", "KafkaError", "Node", "NodeFailed", "run"]
