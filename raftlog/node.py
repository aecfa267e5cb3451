"""One node: the place where all rooms meet. It starts the roles in order and stops them in reverse order.

Start:
1. open the log directories, follow the metadata, recover the logs;
2. bind the ports, register with the controller, catch up with the metadata;
3. listen and send heartbeats; the node is ready once it is unfenced.

Stop:
1. controlled shutdown: the controller moves the leaderships to other brokers;
2. resign as the quorum's leader, for good, and stop listening;
3. flush the logs, mark the directories clean, leave the quorum.

A failed start leaves no role running. A node that is stopping or has failed still votes, but is never elected. This
module makes no decisions; a rule belongs in a room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.config import NodeConfig
from raftlog.base.config.network import find_listener
from raftlog.base.config.tls import TLS_PROTOCOLS
from raftlog.base.disk import Disk
from raftlog.base.env import Env, raise_failure
from raftlog.base.log import get_logger
from raftlog.base.types import KEPT_SECRET, METADATA_FOLDER, NO_EPOCH, SHARE_GROUP_STATE_TOPIC
from raftlog.broker.context import BrokerContext
from raftlog.broker.controller_requests import wake_image_waiters
from raftlog.broker.controller_session import ControllerSession
from raftlog.broker.coordination.group_coordinators import GroupCoordinators
from raftlog.broker.coordination.transaction_coordinators import TransactionCoordinators
from raftlog.broker.coordination.transaction_verification import TransactionVerifier
from raftlog.broker.dispatch import dispatch, serve_own
from raftlog.broker.handlers import prepare_first_requests, warm_up
from raftlog.broker.lifecycle import Lifecycle, Timing
from raftlog.broker.links.broker_links import BrokerLinks
from raftlog.broker.links.probe import probe
from raftlog.broker.long_work.turns import run_steps
from raftlog.broker.network.server import BrokerServer, ListenerUnavailable
from raftlog.broker.replicas.fetchers import introduce
from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.replicas import Replicas
from raftlog.broker.rights import client_demands_of, follow_rules, make_authorizer
from raftlog.broker.unreachable_brokers import UnreachableBrokers
from raftlog.clock_watch import ClockWatch
from raftlog.control import ControlPlane, JournalUnusable, is_journal_of_older_release
from raftlog.metadata.bootstrap import BootstrapUnusable, remove_bootstrap
from raftlog.metadata.broker_requests import RegisterBroker
from raftlog.metadata.features import KRAFT_VERSION, SHARE_VERSION, SUPPORTED_FEATURES, finalized_level
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage, SupportedFeature
from raftlog.metadata.loader import MetadataLoader
from raftlog.storage.log_directory import ForeignLogDirectory, LogDirectory

if TYPE_CHECKING:
    from raftlog.broker.network.tls import ServerTls
    from raftlog.security.authorizer import Authorizer

__all__ = ["Node", "NodeFailed", "prepare_first_requests", "warm_up"]

log = get_logger("node")

WARM_UP_AFTER_S: Final = 1.0
"""Seconds from the end of a start to the warm-up: other nodes of the same machine may still be starting."""

CONTROLLED_SHUTDOWN_S: Final = 5.0
"""Longest time that leaderships may take to move, or a controller to be found, before the node stops all the same."""

PROBE_S: Final = 2.0
"""How long an advertised address may take to answer, in seconds."""

ADVERTISED_WITHIN_S: Final = 10.0
"""Seconds after which a broker checks its advertised addresses even if it is still fenced."""

_UNREACHED: Final = {
    "refused": "no broker listens there",
    "unreachable": "the name does not resolve, or the network does not lead there",
    "silent": f"no answer within {PROBE_S:.0f} s",
    "accepted": f"connected, but no answer within {PROBE_S:.0f} s",
}


_UNUSABLE: Final = (ForeignLogDirectory, ListenerUnavailable, JournalUnusable, BootstrapUnusable, OSError)
"""The reasons why a node does not start that an operator can mend."""


def _with_kept_secret(config: NodeConfig, disk: Disk) -> NodeConfig:
    """Return the config with the secret from before its voters were edited, if a file had it. Raises NodeFailed."""
    path = f"{config.metadata_log_dir}/{METADATA_FOLDER}/{KEPT_SECRET}"
    if not (disk.exists(path) or disk.exists(path + CHECKSUMS)):
        return config
    from raftlog.storage.kept_secret import SecretDamaged, with_kept_secret

    try:
        return with_kept_secret(config, disk)
    except SecretDamaged as error:
        raise NodeFailed(str(error)) from error


class NodeFailed(Exception):
    """The node cannot start or go on; the message says why, for an operator."""


class Node:
    """`start`, then `failed` resolves if it cannot go on, then `shut_down` (graceful) or `stop`."""

    def __init__(
        self, config: NodeConfig, env: Env, *, features: tuple[SupportedFeature, ...] = SUPPORTED_FEATURES
    ) -> None:
        """`features`: another release's, only in tests."""
        loop = asyncio.get_running_loop()
        self.config = config = _with_kept_secret(config, env.disk)
        self.env = env
        self.failed: asyncio.Future[str] = loop.create_future()
        """Resolves to the reason when the node cannot go on."""
        self.metadata = MetadataLoader(loop.call_soon, features=features)
        self.metadata.on_batch_written = env.ages.note_metadata
        self._clock = ClockWatch(env, config.metadata_log_dir)
        self._directories: list[LogDirectory] = []
        self.ending = False
        """Whether it has failed or begun to stop, so that it must not take new leaderships."""
        self._stopped = False
        self.control = ControlPlane(config, env, self.metadata, cluster_id=self.cluster_id, failed=self.fail)
        self.broker: BrokerRole | None = None
        if "broker" in config.roles:
            self.broker = BrokerRole(
                config, env, self.control, self.metadata, cluster_id=self.cluster_id, failed=self.fail
            )
            self.broker.context.voters = self.control.voters
        self._server = self._make_server() if self.broker is None else self.broker.server
        if self.control.quorum is not None:
            listener = find_listener(config.listeners, config.controller_listener_names)
            assert listener is not None, "a voter has one"
            self.control.quorum.on_kafka_client = self._server.adopt
            self.control.quorum.secure = partial(self._server.secure, listener)
            self.control.quorum.nodes = self._server.nodes
        self._certificates: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all roles; returns when the broker (if this is one) listens and registers. Raises NodeFailed."""
        try:
            await self._start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, _UNUSABLE):
                raise NodeFailed(str(error)) from error
            raise

    async def _start(self) -> None:
        self.metadata.subscribe(self._on_metadata)
        metadata_directory = self._open_directories()
        self._clock.resume(self.config.raftlog_clock_leap_max_ms)
        if self.broker is None:
            await self._server.start(())
        if self.control.observer is not None:
            self.control.observer.keep_voters_in(metadata_directory.path)
        await self.control.start(metadata_directory.directory_id, barred=self._why_barred())
        if self.broker is not None:
            await self.broker.start()
        self._certificates = asyncio.get_running_loop().create_task(self._server.keep_certificates())
        self._certificates.add_done_callback(raise_failure)
        self._clock.start().add_done_callback(raise_failure)

    def advertised(self) -> list[str]:
        """Return the advertised addresses for clients; none for a node without the broker role."""
        endpoints = () if self.broker is None else self.broker.endpoints()
        return [f"{each.listener}://{each.host}:{each.port}" for each in endpoints]

    async def introduce(
        self,
        ask: Callable[[bytes], Awaitable[bytes]],
        *,
        broker_id: int,
        certificate: bytes | None = None,
    ) -> None:
        """Prove to a broker that its admin API's questions come from a node of the cluster. Raises KafkaError."""
        image = self.metadata.published_image
        await introduce(ask, self.config, image=image, broker_id=broker_id, certificate=certificate)

    async def tls_options(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the options of a connection to another broker's listener. Raises ConnectionError."""
        if self.broker is not None:
            return await self.broker.replicas.peers.tls_options(endpoint)
        if endpoint.security_protocol in TLS_PROTOCOLS:
            raise ConnectionError(f"{endpoint.listener} uses TLS, but this node is not a broker")
        return {}

    def admin_tls(self) -> ServerTls | None:
        """Return the TLS of the admin API's port; None: it uses plain HTTP."""
        tls = self.config.admin_tls
        if tls is None:
            return None
        from raftlog.broker.network.tls import ServerTls
        from raftlog.broker.network.tls_handshake import HandshakePlaces

        server = self._server
        most = min(self.config.raftlog_tls_handshakes_max, self.env.http_sockets)
        pending = HandshakePlaces(most, server.log, server.count_closed)
        return ServerTls(tls, server.log, server.count_closed, pending)

    @property
    def authorizer(self) -> Authorizer | None:
        """The ACLs in force; None: everyone may do everything."""
        return self._server.broker.authorizer

    def knows_rules(self) -> bool:
        """Return whether this node is in touch with the controller, so that its users and ACLs are current."""
        return self.control.is_connected_to_leader(self.metadata.published_image.controller_id)

    def deletes_by_age(self) -> bool:
        """Return whether this node deletes anything for its age: brokers do, and the active controller."""
        controller = self.control.controller
        return self.broker is not None or (controller is not None and controller.active)

    def unready_reasons(self) -> list[str]:
        """Return the reasons why this node does not take part in the cluster; empty if it does."""
        found = []
        if self.failed.done():
            found.append(f"the node is ending: {self.failed.result()}")
        if self.control.leaderless:
            why = self.control.why_no_leader() or "a majority of its voters may be missing"
            found.append(f"no leader of the metadata quorum is known: {why}")
        if self.broker is not None and not self.broker.lifecycle.unfenced.is_set():
            registered = self.broker.lifecycle.broker_epoch != NO_EPOCH
            found.append("the broker is fenced" if registered else "the broker is not registered yet")
        return found

    async def wait_ready(self) -> None:
        """Wait until this node takes part: its broker is unfenced, or its quorum knows a leader."""
        if self.broker is not None:
            await self.broker.lifecycle.unfenced.wait()
        else:
            await self.control.wait_for_leader()

    async def hand_over(self) -> None:
        """Hand over the leaderships of partitions, then the quorum's leadership."""
        if self.broker is not None and self.config.controlled_shutdown_enable:
            left = await self.broker.lifecycle.controlled_shutdown()
            log.info("controlled_shutdown_ended", leaderships_moved=left)
        self.ending = True
        await self.control.hand_over()

    async def stop(self) -> None:
        """Stop without handing over; accepted records are flushed. A second call has no effect."""
        if self._stopped:
            return
        self._stopped = self.ending = True
        if self._certificates is not None:
            self._certificates.cancel()
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self.control.stop)
            parts.push_async_callback(self._clock.close)
            parts.push_async_callback(self._server.stop if self.broker is None else self.broker.stop)
            await self.control.hand_over()

    async def shut_down(self) -> None:
        """Hand over, then stop."""
        await self.hand_over()
        await self.stop()

    def cluster_id(self) -> str | None:
        """Return what this node knows its cluster to be called: its folders first, which may have been formatted."""
        known = next((each.cluster_id for each in self._directories if each.cluster_id), None)
        return known or self.metadata.image.cluster_id or self.config.cluster_id

    def fail(self, reason: str) -> None:
        """Report that this node cannot go on; the first reason counts. It is not elected any more."""
        self.ending = True
        self.control.stop_candidacy()
        if not self.failed.done():
            self.failed.set_result(reason)

    def _make_server(self) -> BrokerServer:
        """Serve clients of the controller's listener on a node that is no broker: no API there concerns logs."""
        return BrokerServer(
            BrokerContext(
                env=self.env,
                config=self.config,
                image=lambda: self.metadata.published_image,
                submit=self.control.submit,
                replicas=cast(Replicas, None),
                in_touch=self.control.is_connected_to_leader,
                voters=self.control.voters,
                authorizer=make_authorizer(self.config),
            ),
            dispatch,
        )

    def _open_directories(self) -> LogDirectory:
        """Open the log directories and that of the metadata, and return the latter.

        A voter keeps metadata there. A broker that does not vote has none, and is known by its first log directory.
        """
        config, disk = self.config, self.env.disk
        self._directories = [] if self.broker is None else self.broker.open_directories()
        found = next((each for each in self._directories if each.path == config.metadata_log_dir), None)
        if found is None and self.broker is not None and self.control.quorum is None:
            found = self._directories[0]
        if found is None:
            found = LogDirectory.open(
                disk,
                config.metadata_log_dir,
                node_id=config.node_id,
                cluster_id=config.cluster_id,
                new_directory_id=lambda: UUID(int=self.env.unguessable.getrandbits(128), version=4),
                is_older=self.broker is not None
                and is_journal_of_older_release(disk, config.metadata_log_dir),
            )
            self._directories.append(found)
        return found

    def _why_barred(self) -> str | None:
        """Return why this node must not help to form a new cluster, although its metadata log is empty."""
        holding = [each.path for each in self._directories if each.partitions()]
        if not holding:
            return None
        return (
            f"this voter's metadata log ({self.config.metadata_log_dir}/{METADATA_FOLDER}) is empty, but {holding[0]} "
            "holds partitions of a cluster, whose metadata a new one would not have: put the log back or restore a "
            "backup, or move the partitions away to begin anew"
        )

    def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.cluster_id and new.cluster_id != old.cluster_id:
            try:
                for directory in self._directories:
                    directory.write_cluster_id(new.cluster_id)
            except (ForeignLogDirectory, OSError) as error:
                self.fail(str(error))
            self._remove_bootstrap()
        if finalized_level(new, KRAFT_VERSION) and not finalized_level(old, KRAFT_VERSION):
            self._keep_secret()
        follow_rules(self._server.broker.authorizer, old, new)
        self._server.end_logins(old, new)
        self._server.quotas.follow(new.quotas)
        wake_image_waiters(self._server.broker)

    def _keep_secret(self) -> None:
        """Write down a secret that derives from the config's voters: they may be edited from now on."""
        if "controller" not in self.config.roles:
            return
        from raftlog.storage.kept_secret import keep_secret

        try:
            keep_secret(self.config, self.env.disk)
        except OSError as error:
            self.fail(f"cannot keep the cluster's secret: {error}")

    def _remove_bootstrap(self) -> None:
        """Remove the credentials that a new cluster begins with: they are committed, and would let readers guess."""
        folder = self.config.metadata_log_dir
        try:
            if remove_bootstrap(self.env.disk, folder):
                log.info("bootstrap_removed", directory=folder)
        except OSError as error:
            log.warning("bootstrap_not_removed", directory=folder, reason=error.strerror or str(error))


class BrokerRole:
    """The broker role of a node, put together."""

    def __init__(
        self,
        config: NodeConfig,
        env: Env,
        control: ControlPlane,
        metadata: MetadataLoader,
        *,
        cluster_id: Callable[[], str | None],
        failed: Callable[[str], None],
    ) -> None:
        self._config = config
        self._env = env
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []
        self._recovered = False
        self.replicas = Replicas(
            env, config, submit=control.submit, image=self._image, broker_epoch=self._broker_epoch
        )
        self.context = BrokerContext(
            env=env,
            config=config,
            image=self._image,
            submit=control.submit,
            replicas=self.replicas,
            broker_epoch=self._broker_epoch,
            in_touch=control.is_connected_to_leader,
            authorizer=make_authorizer(config),
            leaderships_made=self.replicas.missing.leaderships_made,
        )
        self.absences = self.context.absences = UnreachableBrokers(
            asyncio.get_running_loop().time, unnamed_s=config.broker_session_timeout_ms / 1000
        )
        self.replicas.peers.on_leader_lost = self.absences.lost
        self.replicas.peers.on_leader_found = self.absences.found
        session = self.context.session = self._make_session()
        session.probe = lambda broker_id: control.start_probe(broker_id, session.probed)
        self.links = self.context.links = BrokerLinks(
            env, config.node_id, self.replicas.peers.connect, partial(serve_own, self.context)
        )
        self._make_coordinators()
        self.server = BrokerServer(self.context, dispatch)
        self.replicas.touched.discard_listeners.append(self.server.sessions.detach)
        self.housekeeping = Housekeeping(self.replicas)
        self.lifecycle = Lifecycle(
            registration=self._registration,
            submit=control.submit,
            image=lambda: metadata.published_image,
            timing=Timing(
                config.broker_heartbeat_interval_ms / 1000,
                CONTROLLED_SHUTDOWN_S,
                config.initial_broker_registration_timeout_ms / 1000,
            ),
            failed_directories=lambda: self.replicas.failed_directory_ids,
            damaged=lambda: self.replicas.damaged,
        )
        self.lifecycle.lateness, self.lifecycle.ages = env.lateness, env.ages
        self.lifecycle.on_session_renewed = session.renew
        control.loop_watch.on_measured = session.check
        self.lifecycle.start_serving = self._start_serving
        self.lifecycle.on_went_back = self._note_older_directories
        self.lifecycle.lacks_room = lambda: self.replicas.logs.lacks_room
        self.lifecycle.cordoned = lambda: self.replicas.logs.all_cordoned
        self.replicas.on_log_damaged = self.lifecycle.nudge
        self.replicas.on_directory_failed = self._directory_failed
        self.replicas.logs.on_full = self.lifecycle.nudge
        control.on_leader_changed = self.lifecycle.nudge

    def _make_coordinators(self) -> None:
        verifier = self.context.verifier = TransactionVerifier(self.context)
        self.coordinators = self.context.groups = GroupCoordinators(self.context, verifier)
        self.transactions = self.context.transactions = TransactionCoordinators(self.context)

    def _make_session(self) -> ControllerSession:
        session = ControllerSession(
            asyncio.get_running_loop().time,
            session_s=self._config.broker_session_timeout_ms / 1000,
            fetch_wait_s=self._config.replica_fetch_wait_max_ms / 1000,
            isr_members=self.replicas.isr_members,
            on_change=self._note_silent_members,
        )
        session.lateness = self._env.lateness
        return session

    def open_directories(self) -> list[LogDirectory]:
        """Open the log directories and mark them as this node's. Raises ForeignLogDirectory, OSError."""
        self.replicas.logs.open_directories(self._config.cluster_id)
        return [volume.directory for volume in self.replicas.logs.volumes]

    def _directory_failed(self) -> None:
        """Say so at once. With the last log directory the process ends, as Kafka's does."""
        self.lifecycle.nudge()
        if not self.replicas.logs.online:
            self._failed("no log directory is left that works")

    async def start(self) -> None:
        """Recover the logs, take roles, bind, and begin to register. Raises OSError, ListenerUnavailable."""
        metadata = self._metadata
        await self.replicas.start()
        self._recovered = True
        self._on_metadata(EMPTY_IMAGE, metadata.published_image)
        metadata.subscribe(self._on_metadata)
        await self.server.start(serve=False)
        self.housekeeping.start()
        self._spawn(self._live())
        self._tasks[-1].add_done_callback(raise_failure)  # without heartbeats the broker is lost
        for keys in self.server.token_keys.values():
            self._spawn(keys.keep_fresh())
            self._tasks[-1].add_done_callback(raise_failure)
        self._spawn(self._warm_up())

    async def stop(self) -> None:
        """Stop, however far the start came. Logs that were never recovered are not marked clean."""
        for task in self._tasks:
            task.cancel()
        await self.coordinators.close()
        await self.transactions.close()
        if self.context.made_share_states is not None:
            await self.context.made_share_states.close()
        self.links.close()
        await self.server.stop()
        if self.context.made_share_partitions is not None:
            self.context.made_share_partitions.close()
        await self.housekeeping.stop()
        if self._recovered:
            await self.replicas.close()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the addresses that this broker advertises; port 0 is the port that was bound."""
        bound = {each.listener: each.port for each in self.server.endpoints}
        return tuple(
            Endpoint(each.name, each.host, each.port or bound.get(each.name, 0), each.security_protocol)
            for each in self._config.advertised_listeners
            if each.name in bound
        )

    def _image(self) -> MetadataImage:
        return self._metadata.published_image

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _registration(self) -> RegisterBroker:
        return RegisterBroker(
            broker_id=self._config.node_id,
            incarnation_id=self.replicas.logs.incarnation_id,
            cluster_id=self._cluster_id() or "",
            endpoints=self.endpoints(),
            rack=self._config.broker_rack,
            directory_ids=self.replicas.directory_ids,
            features=self._metadata.features + client_demands_of(self._config),
            previous=self.replicas.logs.previous,
        )

    def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        self.absences.on_metadata(old, new)
        self.replicas.on_metadata(old, new)
        self.coordinators.on_metadata(old, new)
        self.transactions.on_metadata(old, new)
        has_states = self.context.made_share_states is not None or SHARE_GROUP_STATE_TOPIC in new.topics
        if has_states and finalized_level(new, SHARE_VERSION):  # before, a topic of that name is anyone's
            before = old if finalized_level(old, SHARE_VERSION) else EMPTY_IMAGE
            self.context.share_states.on_metadata(before, new)
        if self.context.made_share_partitions is not None:
            self.context.made_share_partitions.on_metadata()
        self.lifecycle.on_metadata()

    def _note_silent_members(self, silent: frozenset[int]) -> None:
        """Have clients look for other brokers when silent brokers may have taken over our leaderships."""
        before, self.context.silent_members = self.context.silent_members, silent
        if silent - before:
            self.server.send_clients_elsewhere()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def _note_older_directories(self, directory_ids: tuple[UUID, ...]) -> None:
        for volume in self.replicas.logs.volumes:
            if volume.directory.directory_id in directory_ids:
                log.error(
                    "log_directory_outdated",
                    directory=volume.path,
                    advice="it is an older copy, so this broker's records are trusted once they are fetched anew",
                )

    async def _start_serving(self) -> None:
        """Let clients and other brokers in."""
        await self.replicas.logs.confirm_incarnation()
        try:
            await self.server.serve()
        except ListenerUnavailable as error:
            self._failed(str(error))
        self._spawn(self._check_advertised())

    async def _live(self) -> None:
        await self.lifecycle.run()
        self._failed(f"this broker cannot register: {self.lifecycle.fatal}")

    async def _warm_up(self) -> None:
        """Fetch and import what clients will ask for; not before we take part: imports hold up the loop."""
        await self.lifecycle.unfenced.wait()
        assert self.context.producer_ids is not None, "the server provides it"
        await self.context.producer_ids.prepare()
        if self._env.threads:
            await asyncio.sleep(WARM_UP_AFTER_S)
            await run_steps(self._env, warm_up(), at_once=1)

    async def _check_advertised(self) -> None:
        """Log the most common mistake: an advertised address that does not answer.

        Not before the broker takes part, since the answer to its own request imports its messages; but soon even if it
        never does.
        """
        try:
            async with asyncio.timeout(ADVERTISED_WITHIN_S):
                await self.lifecycle.unfenced.wait()
        except TimeoutError:
            pass
        for each in self.endpoints():
            tls = each.security_protocol in TLS_PROTOCOLS
            result = await probe(each.host, each.port, patience_s=PROBE_S, tls=tls)
            if result != "alive":
                log.warning(
                    "advertised_listener_unreachable",
                    listener=each.listener,
                    advertised=f"{each.host}:{each.port}",
                    reason=_UNREACHED[result],
                    advice="clients connect there: set advertised.listeners to an address that they can reach",
                )
