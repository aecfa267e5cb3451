"""A node's end of the control plane: the quorum (or an observer), the controller, and the client of the active
controller.

It connects `quorum` and `controller` and provides `submit`; the rules are theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig
from raftlog.base.config.network import find_listener
from raftlog.base.config.tls import TLS_PROTOCOLS
from raftlog.base.disk import Disk
from raftlog.base.env import Env, ThreadOffload, raise_failure, timer_time
from raftlog.base.errors import (
    InvalidRequest,
    KafkaError,
    NotController,
    UnknownServerError,
    UnsupportedVersion,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.base.types import METADATA_FOLDER, NO_DIRECTORY, encode_uuid
from raftlog.broker.links.probe import ProbeResult, probe
from raftlog.controller.controller import Controller
from raftlog.controller.requests import check_request, first_attempt_reply, make_idempotent
from raftlog.controller.topics import random_uuid
from raftlog.loop_watch import LoopWatch
from raftlog.metadata.bootstrap import read_bootstrap
from raftlog.metadata.broker_requests import BrokerHeartbeat
from raftlog.metadata.controller_api import (
    AddVoter,
    ErrorReply,
    RemoveVoter,
    Reply,
    Request,
    UpdateVoter,
    decode_reply,
    decode_request,
    encode,
)
from raftlog.metadata.features import (
    KRAFT_VERSION,
    RAFTLOG_METADATA_VERSION,
    UnsupportedMetadata,
    finalized_level,
)
from raftlog.metadata.image import MetadataImage, SupportedFeature
from raftlog.metadata.loader import MetadataLoader
from raftlog.metadata.metadata_records import Batch, encode_batch
from raftlog.metadata.quorum_description import (
    DescribeQuorum,
    ObserverPositions,
    QuorumDescription,
    QuorumReplica,
)
from raftlog.quorum.client import ControllerClient
from raftlog.quorum.election import timing_for
from raftlog.quorum.handshake_messages import Levels
from raftlog.quorum.journal import DIRECTORY_ID
from raftlog.quorum.quorum import CannotListen, NoLeaderWarning, Quorum
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.quorum.wal import NAME, DamagedJournal

if TYPE_CHECKING:
    from raftlog.broker.links.tls import PeerTls
    from raftlog.quorum.channel_tls import ChannelTls
    from raftlog.quorum.observer import Observer
    from raftlog.quorum.own_move import OwnMove

log = get_logger("quorum")

SUBMIT_S: Final = 10.0
"""How long a request to the controller is retried where its sender names no time, seconds."""

PROBE_S: Final = 0.3
"""How long a broker that is missed may take to answer, seconds."""

QUORUM_THREADS: Final = 2
"""Its journal's syncs, and a snapshot being written meanwhile."""


class JournalUnusable(Exception):
    """The metadata journal on this node's disk cannot be trusted; the message says which file and why."""


def is_journal_of_older_release(disk: Disk, folder: str) -> bool:
    """Return whether a release up to 0.3.0 kept its journal in a folder. It wrote meta.properties to log.dirs only."""
    journal = f"{folder}/{METADATA_FOLDER}"
    return disk.exists(f"{journal}/{NAME}") and not disk.exists(f"{journal}/{DIRECTORY_ID}")


class ControlPlane:
    """Set `on_leader_changed` before `start`."""

    def __init__(
        self,
        config: NodeConfig,
        env: Env,
        metadata: MetadataLoader,
        *,
        cluster_id: Callable[[], str | None],
        failed: Callable[[str], None],
    ) -> None:
        self.on_leader_changed: Callable[[], None] = lambda: None
        self._config = config
        self._env = env
        self._metadata = metadata
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._observers = ObserverPositions(env)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._own_move: OwnMove | None = None
        self._moving: asyncio.Task[None] | None = None
        self._led = asyncio.Event()
        self._threads: ThreadOffload | None = None
        self.quorum: Quorum | None = None
        self.observer: Observer | None = None
        self.controller: Controller | None = None
        if "controller" in config.roles:
            self.quorum = self._make_quorum(cluster_id)
            self.controller = Controller(
                config.node_id,
                config,
                env.unguessable,
                append=self._append,
                probe=lambda broker_id: self.start_probe(broker_id, self._probed),
                cluster_id=cluster_id,
            )
            self.controller.lateness = env.lateness
            self.controller.wall_clock_ms = env.wall_clock_ms
            self.controller.ages = env.ages
            self.controller.history = metadata.history
            self.controller.features = metadata.features
            self.controller.levels_of_voters = self.quorum.levels_of_voters
            self.controller.unrecorded_voters = self.quorum.unrecorded_voters
            metadata.subscribe_each(self._committed)
            metadata.subscribe(self._on_metadata)
        else:
            from raftlog.quorum.observer import Observer

            self.observer = Observer(
                env,
                node_id=config.node_id,
                voters=config.voters,
                secret=config.cluster_secret,
                cluster_id=cluster_id,
                machine=_Machine(metadata, self._leadership_changed),
            )
        self.loop_watch = LoopWatch(env.lateness, config.node_id)
        follows = self.quorum or self.observer
        assert follows is not None
        self.voters: Callable[[], Mapping[int, tuple[str, int]]] = lambda: follows.voters
        self._no_leader = NoLeaderWarning(self.voters, self.quorum)
        self._follows = follows
        self._tls: PeerTls | None = None
        follows.identity = replace(follows.identity, levels=_levels(metadata))
        if config.controller_listener_names[0] in config.tls:
            self._tls, channel_tls = _make_tls(config, env)
            follows.identity = replace(follows.identity, tls=channel_tls)
        follows.on_failure = lambda error: failed(f"the metadata quorum failed: {error}")
        self._client = ControllerClient(env, follows, local=self._local)
        self._heartbeats = ControllerClient(env, follows, kind="heartbeat", local=self._local)

    def _make_quorum(self, cluster_id: Callable[[], str | None]) -> Quorum:
        config, env = self._config, self._env
        if env.threads:  # its syncs must not wait behind partitions' syncs: a late voter loses its leader
            self._threads = ThreadOffload(QUORUM_THREADS)
            env = replace(env, offload=self._threads)
        quorum = Quorum(
            env,
            node_id=config.node_id,
            voters=config.voters,
            directory=f"{config.metadata_log_dir}/{METADATA_FOLDER}",
            secret=config.cluster_secret,
            cluster_id=cluster_id,
            machine=_Machine(self._metadata, self._leadership_changed),
            timing=timing_for(config.controller_quorum_election_timeout_ms / 1000),
            compaction=SnapshotPolicy(
                size_bytes=config.metadata_log_max_record_bytes_between_snapshots,
                interval_s=config.metadata_log_max_snapshot_interval_ms / 1000,
            ),
        )
        quorum.recorded_voters = self._recorded_voters
        quorum.voters_may_change = lambda: finalized_level(self._metadata.image, KRAFT_VERSION) >= 1
        quorum.on_request = self._answer
        quorum.on_peer_connected = self._peer_connected
        quorum.on_peer_lost = self._peer_lost
        return quorum

    def _recorded_voters(self) -> Mapping[int, UUID] | None:
        image = self._metadata.image
        return image.voters if image.cluster_id else None

    # -- life ----------------------------------------------------------------------------

    async def start(self, directory_id: UUID, *, barred: str | None = None) -> None:
        """Open the quorum's journal and listen for the other voters, or begin to follow them.

        `directory_id`: of the metadata's folder. `barred`: why this node must not help to form a new cluster.
        Raises JournalUnusable, BootstrapUnusable, OSError.
        """
        self.loop_watch.start()
        self._follows.identity = replace(self._follows.identity, directory_id=directory_id)
        if self._tls is not None:
            await _open_tls(self._tls, self._env)
        if self.controller is not None:
            self.controller.bootstrap = read_bootstrap(self._env.disk, self._config.metadata_log_dir)
        if self.quorum is not None:
            self.quorum.barred = barred
            listener = find_listener(self._config.listeners, self._config.controller_listener_names)
            assert listener is not None, "a voter has one"
            try:
                await self.quorum.start((listener.host, listener.port))
            except CannotListen as error:
                raise CannotListen(f"cannot listen on {listener}: {error.strerror}") from error
            except DamagedJournal as error:
                raise JournalUnusable(f"the metadata journal is damaged: {error}") from error
            except UnsupportedMetadata as error:
                raise JournalUnusable(str(error)) from error
        elif self.observer is not None:
            await self.observer.start()
        self._follow_roles()
        if not self._led.is_set():
            self._no_leader.changed(None)

    @property
    def leaderless(self) -> bool:
        """Whether this node knows of no leader of the quorum."""
        return not self._led.is_set()

    def why_no_leader(self) -> str | None:
        """Return why this voter has no leader, as far as it knows more than that a majority may be missing."""
        return None if self.quorum is None else self.quorum.why_no_leader()

    async def wait_for_leader(self) -> None:
        """Wait until this node knows the quorum's leader."""
        await self._led.wait()

    def is_connected_to_leader(self, controller_id: int) -> bool:
        """Return whether that node is the active controller and reachable, as far as this node knows."""
        if not self._follows.is_connected_to_leader(controller_id):
            return False
        if controller_id == self._follows.node_id or "broker" not in self._config.roles:
            return True  # a node that is no broker sends no heartbeats
        return self._heartbeats.is_connected_to(controller_id)

    def stop_candidacy(self) -> None:
        """Stand for controller no more: this node is ending, or of no use."""
        if self.quorum is not None:
            self.quorum.stop_candidacy()

    async def hand_over(self) -> None:
        """Withdraw, and give the quorum's lead to another voter if this node has it."""
        if self.quorum is not None:
            await self.quorum.hand_over()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._client.close()
        self._heartbeats.close()
        await self._follows.stop()
        self._no_leader.close()
        self.loop_watch.close()
        if self._threads is not None:
            await self._threads.drain()  # the folder is locked until the journal's last write has ended
            self._threads.close()

    # -- asking the active controller ----------------------------------------------------

    async def submit(self, request: Request, *, timeout: float | None = None) -> Reply:  # noqa: ASYNC109
        """Ask the active controller, wherever it is (see `controller_api.Submit`)."""
        client = self._heartbeats if isinstance(request, BrokerHeartbeat) else self._client
        before, repeated = self._metadata.published_image, asyncio.Event()
        check_request(before, request)
        request = make_idempotent(request, lambda: random_uuid(self._env.unguessable))
        payload = await client.submit(encode(request), timeout or SUBMIT_S, on_repeat=repeated.set)
        try:
            reply = decode_reply(payload)
        except msgspec.DecodeError as error:
            raise UnknownServerError(f"the controller's answer cannot be read: {error}") from error
        if repeated.is_set():
            reply = first_attempt_reply(request, reply, before)
        if isinstance(reply, ErrorReply):
            raise from_code(reply.error_code, reply.message)
        return reply

    def _local(self) -> Callable[[bytes, int], asyncio.Future[bytes]] | None:
        return None if self.controller is None else self._answer

    def _answer(self, payload: bytes, peer: int) -> asyncio.Future[bytes]:
        """Answer a request that reached this node's controller. NotController unless it is active."""
        answered: asyncio.Future[bytes] = self._loop.create_future()

        def answer(reply: Reply) -> None:
            if answered.done():
                return
            if isinstance(reply, ErrorReply) and reply.error_code == NotController.code:
                answered.set_exception(NotController(reply.message))
            else:
                answered.set_result(encode(reply))

        try:
            request = decode_request(payload)
        except msgspec.ValidationError as error:
            reason = f"the active controller's release does not support this request: {error}"
            answered.set_exception(UnsupportedVersion(reason))
            return answered
        except msgspec.DecodeError as error:
            answered.set_exception(InvalidRequest(f"a malformed request to the controller: {error}"))
            return answered
        assert self.controller is not None and self.quorum is not None
        if isinstance(request, DescribeQuorum):
            answer(self._describe(self.quorum) if self.quorum.leading else ErrorReply(NotController.code))
        elif isinstance(request, AddVoter | RemoveVoter | UpdateVoter):
            self._spawn(self._change_voters(request, answer))
        else:
            if isinstance(request, BrokerHeartbeat):
                self._observers.heard(request, self._metadata.image.offset, self.quorum.commit_index)
            self.controller.submit(request, answer, self._loop.time(), peer=peer)
            self._arm()
        return answered

    async def _change_voters(
        self, request: AddVoter | RemoveVoter | UpdateVoter, answer: Callable[[Reply], None]
    ) -> None:
        assert self.quorum is not None
        try:
            answer(await self.quorum.change_voters(request))
        except KafkaError as error:
            answer(ErrorReply(error.code, error.message, self.quorum.is_as_requested(request)))

    def _describe(self, quorum: Quorum) -> QuorumDescription:
        described, voters = quorum.describe(), quorum.voters
        others = [
            each
            for each, state in self._metadata.image.brokers.items()
            if not state.fenced and each not in voters
        ]
        observers = tuple(
            msgspec.structs.replace(each, directory_id=self._directory_of(each))
            for each in self._observers.among(others, described.observers)
        )
        return msgspec.structs.replace(described, observers=observers)

    def _directory_of(self, observer: QuorumReplica) -> UUID:
        """Return the id of its metadata directory; of a broker without a metadata log, of its first log directory."""
        broker, known = self._metadata.image.brokers.get(observer.replica_id), observer.directory_id
        return broker.directory_ids[0] if known == NO_DIRECTORY and broker and broker.directory_ids else known

    # -- the controller's events ---------------------------------------------------------

    def _append(self, batch: Batch) -> None:
        assert self.quorum is not None
        self.quorum.append(encode_batch(msgspec.structs.replace(batch, at_ms=self._env.ages.believed_ms())))

    def _leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        self._no_leader.changed(leader_id)
        if leader_id is None:
            self._led.clear()
        else:
            self._led.set()
            self._client.leader_changed()
            self._heartbeats.leader_changed()
        if self.controller is not None:
            if leading:
                assert self.quorum is not None
                heard_at = self.quorum.leader_heard_at
                self.controller.on_elected(term, self._metadata.image, self._loop.time(), heard_at=heard_at)
            else:
                self.controller.resign()
            self._arm()
        if leader_id is not None and self.quorum is not None and self.quorum.may_have_moved:
            self._move_voter(self.quorum)
        self.on_leader_changed()

    def _follow_roles(self) -> None:
        """Have this node make itself a voter, or leave the voters, as its roles and its config say."""
        if not self._config.controller_quorum_auto_join_enable:
            return
        from raftlog.quorum.auto_join import AutoJoin, AutoLeave, own_address

        def ask(request: AddVoter | RemoveVoter, seconds: float) -> Awaitable[Reply]:
            return self.submit(request, timeout=seconds)

        if self.observer is not None:
            self._spawn(AutoLeave(self.observer, ask).run())
        elif self.quorum is not None and (address := own_address(self._config)) is not None:
            self._spawn(AutoJoin(self.quorum, address, ask).run())

    def _move_voter(self, quorum: Quorum) -> None:
        """Have this voter, which may have moved, ask a new leader for its new address."""
        if self._own_move is None:
            from raftlog.quorum.own_move import OwnMove

            self._own_move = OwnMove(quorum, self.submit)
        if self._moving is not None:
            self._moving.cancel()
        self._moving = self._spawn(self._own_move.run())

    def _committed(self, image: MetadataImage) -> None:
        assert self.controller is not None
        self.controller.committed(image, self._loop.time())
        self._check_own_directory(image)
        if self.quorum is not None and self.quorum.leading and self.quorum.awaits_first_set:
            self._spawn(self.quorum.write_first_set())
        self._arm()

    def _check_own_directory(self, image: MetadataImage) -> None:
        """End a voter that votes alone if the metadata names another directory: no leader could catch it up."""
        node_id, own = self._config.node_id, self._follows.identity.directory_id
        is_static = self.quorum is not None and self.quorum.has_static_voters
        votes_alone = is_static and self._config.voters.keys() == image.voters.keys() == {node_id}
        if votes_alone and image.voters[node_id] != own:
            self._failed(
                f"the metadata names directory {encode_uuid(image.voters[node_id])} as the only voter, but "
                f"meta.properties in {self._config.metadata_log_dir} says {encode_uuid(own)}: "
                "put the former meta.properties back"
            )

    def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.features is not old.features and self.quorum is not None:
            self.quorum.close_too_old()

    def _peer_connected(self, broker_id: int) -> None:
        assert self.controller is not None
        self.controller.peer_connected(broker_id, self._loop.time())
        self._arm()

    def _peer_lost(self, broker_id: int) -> None:
        assert self.controller is not None
        self.controller.peer_lost(broker_id, self._loop.time())
        self._arm()

    def start_probe(self, broker_id: int, tell: Callable[[int, ProbeResult], None]) -> None:
        """Probe a broker's port, and call `tell` with the result."""
        self._spawn(self._probe(broker_id, tell))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(raise_failure)
        return task

    async def _probe(self, broker_id: int, tell: Callable[[int, ProbeResult], None]) -> None:
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None:
            return
        endpoint = broker.endpoint(self._config.inter_broker_listener_name) or broker.endpoints[0]
        patience_s = PROBE_S + self._env.lateness.patience_s
        tls = endpoint.security_protocol in TLS_PROTOCOLS
        tell(broker_id, await probe(endpoint.host, endpoint.port, patience_s=patience_s, tls=tls))

    def _probed(self, broker_id: int, result: ProbeResult) -> None:
        assert self.controller is not None
        self.controller.on_probe_result(broker_id, result, self._loop.time())
        self._arm()

    def _arm(self) -> None:
        """Have the loop call the controller's tick when it wants it."""
        assert self.controller is not None
        deadline = self.controller.next_deadline
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(timer_time(deadline), self._tick)

    def _tick(self) -> None:
        assert self.controller is not None
        self._timer = None
        self.controller.tick(self._loop.time())
        if self.controller.active and "broker" not in self._config.roles:  # no heartbeat of its own does that
            ages = self._env.ages
            ages.note_others(self.controller.compare_clocks(ages.reading()[0], self._loop.time()))
        self._arm()


def _levels(metadata: MetadataLoader) -> Levels:
    """Return the metadata levels that are sent to other nodes, and required of them."""
    none = SupportedFeature(RAFTLOG_METADATA_VERSION, 0, 0)
    supported = next((each for each in metadata.features if each.name == none.name), none)

    def finalized() -> int | None:
        image = metadata.image
        return finalized_level(image, RAFTLOG_METADATA_VERSION) if image.cluster_id else None

    return Levels(supported.lowest, supported.highest, finalized)


def _make_tls(config: NodeConfig, env: Env) -> tuple[PeerTls, ChannelTls]:
    """Return the TLS towards controllers' listeners."""
    from raftlog.broker.links.tls import PeerTls
    from raftlog.broker.network.tls import ServerTls
    from raftlog.quorum.channel_tls import ChannelTls

    tls = PeerTls(config.tls[config.controller_listener_names[0]])
    return tls, ChannelTls(partial(tls.options, env.offload), ServerTls.shown_certificate)


async def _open_tls(tls: PeerTls, env: Env) -> None:
    """Raise ConnectionError if the node cannot secure its connections to controllers as configured."""
    from raftlog.broker.links.tls import TlsUnusable

    try:
        await tls.open(env.offload)
    except TlsUnusable as error:
        raise ConnectionError(f"cannot secure connections to controllers: {error}") from error


class _Machine:
    """The quorum's state machine: the published metadata, and changes of the leader."""

    def __init__(
        self, metadata: MetadataLoader, leadership_changed: Callable[[int | None, int, bool], None]
    ) -> None:
        self.apply = metadata.apply
        self.snapshot = metadata.snapshot
        self.restore = metadata.restore
        self.leadership_changed = leadership_changed
