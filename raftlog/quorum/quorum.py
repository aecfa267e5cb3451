"""`Quorum`: one voter of the metadata quorum, with its listener. Other rooms see this class, with its clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import structs

from raftlog.base.env import Env
from raftlog.base.errors import KafkaError, NotController, NotLeaderOrFollower
from raftlog.base.log import get_logger
from raftlog.base.places import NodeMachines
from raftlog.metadata.controller_api import AddVoter, Done, RemoveVoter, UpdateVoter
from raftlog.metadata.quorum_description import QuorumDescription, QuorumReplica, VotersChanged
from raftlog.quorum.channel import HandshakeRefused, Identity, InboundChannel, OnKafkaClient, dial
from raftlog.quorum.driver import Driver
from raftlog.quorum.election import Timing
from raftlog.quorum.handshake_messages import Hello, introduced
from raftlog.quorum.listener import Listener, Secure, without_tls
from raftlog.quorum.messages import MessageSizes
from raftlog.quorum.observer_feed import ObserverFeed
from raftlog.quorum.raft_links import RaftLinks
from raftlog.quorum.rpc import OnRequest, RpcServer
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.quorum.voter_set import Recorded, VoterSet
from raftlog.quorum.wal import DamagedJournal

if TYPE_CHECKING:
    from raftlog.quorum.state_machine import StateMachine
    from raftlog.quorum.voter_requests import VoterRequests
    from raftlog.quorum.voters_record import Voter, VoterChange

log = get_logger("quorum")

MAX_VOTERS: Final = 7
NO_LEADER: Final = -1
REPLACED_AFTER_S: Final = 5.0
"""A leader must have missed a voter's recorded directory this long before another replaces it, in seconds."""


LEADERLESS_S: Final = 5.0
"""Seconds without a leader before a log line: an election takes less than a second, so voters are missing."""

CUT_OFF: Final = "a fault cuts it off from the other nodes"
FIRST_SET_S: Final = 10.0
"""How long a leader tries to write the first set of voters, in seconds."""


async def _no_controller(_payload: bytes, _peer: int) -> bytes:
    raise NotController()


async def _no_tls() -> Secure:
    return without_tls


def _shown(change: VoterChange) -> VotersChanged:
    directory_id = UUID(bytes=change.directory)
    return VotersChanged(change.kind, change.voter_id, directory_id, change.by, change.at_ms)


class CannotListen(OSError):
    """The address of the controller listener cannot be bound."""


class Quorum:
    """A voter. Set `on_request`, `on_kafka_client`, `secure`, `nodes`, `on_peer_connected`, `on_peer_lost` and
    `on_failure` before `start`, and in `identity` the TLS between controllers and the levels of the metadata.

    `voters`: the voters of the config, id → (host, port) of its controller listener. They are in force until the log
    holds a set of voters. A node that is not among the voters follows as an observer that can become a voter.
    """

    def __init__(
        self,
        env: Env,
        *,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        directory: str,
        secret: bytes,
        cluster_id: Callable[[], str | None],
        machine: StateMachine,
        timing: Timing = Timing(),  # noqa: B008 (immutable)
        compaction: SnapshotPolicy = SnapshotPolicy(),  # noqa: B008 (immutable)
        sizes: MessageSizes = MessageSizes(),  # noqa: B008 (immutable)
    ) -> None:
        self.node_id = node_id
        self.configured = dict(voters)
        self.on_request: OnRequest = _no_controller
        self.on_kafka_client: OnKafkaClient | None = None
        """Serves Kafka clients that come to the controller's listener; None: they are refused."""
        self.secure: Callable[[], Awaitable[Secure]] = _no_tls
        """Return the factory that puts TLS before the listener's protocols."""
        self.nodes = NodeMachines()
        """The addresses of nodes that have proved the cluster secret."""
        self.on_peer_connected: Callable[[int], None] = lambda _broker_id: None
        self.on_peer_lost: Callable[[int], None] = lambda _broker_id: None
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self._env = env
        self._directory = directory
        self._machine = machine
        self._timing = timing
        self._sizes = sizes
        self.snapshot_policy = compaction
        """When to take snapshots; heeded by `start`."""
        self._heartbeats: dict[int, InboundChannel] = {}
        self.identity = Identity(node_id, secret, cluster_id, env.unguessable, env.lateness)
        self.recorded_voters: Recorded = dict
        """The directories of voters that the metadata names."""
        self.voters_may_change: Callable[[], bool] = lambda: False
        """Whether kraft.version is 1, so that the log is to hold the voters."""
        self._writes_first_set = False
        self.barred: str | None = None
        """Why this voter must not help to form a cluster, or None."""
        self._driver: Driver | None = None
        self._links: RaftLinks | None = None
        self._listener: Listener | None = None
        self._voter_requests: VoterRequests | None = None
        self._feed: ObserverFeed | None = None
        self._refuses_nodes = False

    # -- life ----------------------------------------------------------------------------

    async def start(self, where: socket.socket | tuple[str, int]) -> None:
        """Open the log, listen, and join. Raises DamagedJournal, CannotListen, OSError."""
        secure = await self.secure()
        voter_set = VoterSet(
            self.node_id,
            (peer for peer in self.configured if peer != self.node_id),
            directory_id=self.identity.directory_id,
            recorded=self.recorded_voters,
            barred=self.barred,
            votes=self.node_id in self.configured,
        )
        driver = Driver(
            self._env,
            voters=voter_set,
            directory=self._directory,
            machine=self._machine,
            timing=self._timing,
            compaction=self.snapshot_policy,
            sizes=self._sizes,
        )
        if self.barred is not None and not voter_set.peers and driver.journal.is_new:
            driver.stop()
            raise DamagedJournal(self.barred)
        self._driver = driver
        if len(self.voters) % 2 == 0 or len(self.voters) > MAX_VOTERS:
            log.warning("quorum_size_not_recommended", voters=len(self.voters), advice="use 1, 3, 5 or 7")
        self.identity = replace(self.identity, voter=driver)
        links = RaftLinks(
            self._env,
            self.identity,
            {peer: address for peer, address in self.voters.items() if peer != self.node_id},
            configured=self.configured,
            voters=voter_set,
            on_message=driver.received,
            on_up=driver.link_up,
            on_down=driver.link_down,
            on_gone=driver.on_peer_process_dead,
            on_writable=driver.resume_sending,
        )
        links.went_back = driver.went_back
        driver.on_voters = lambda: links.follow_voters(self.voters)
        feed = ObserverFeed(driver, self._env)
        driver.send, driver.linked, driver.core.can_send = links.send, links.linked_peers, links.can_send
        driver.on_advance, driver.on_failure = feed.on_commit, self._failed
        takers = {
            "raft": links.add_accepted,
            "rpc": self._take_rpc,
            "heartbeat": self._take_heartbeat,
            "observe": feed.add_observer,
        }
        self._listener = Listener(
            self.identity,
            admit=self._admits,
            takers=takers,  # type: ignore[arg-type]
            on_kafka=self.on_kafka_client,
            nodes=self.nodes,
        )
        self._links, self._feed = links, feed
        try:
            await self._listener.start(where, secure)
        except OSError as error:
            await self.stop()
            raise CannotListen(error.errno, error.strerror or str(error)) from error
        links.start()
        driver.start()

    async def stop(self) -> None:
        """Leave as abruptly as is safe; call `hand_over` before for a graceful stop."""
        if self._listener is not None:
            await self._listener.stop()
        if self._links is not None:
            self._links.close()
        if self._feed is not None:
            self._feed.close()
        if self._driver is not None:
            self._driver.stop()

    # -- the journal ---------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the log was opened."""
        return self._driver is not None

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The addresses of the voters, by the newest set of the log or by the config."""
        record = None if self._driver is None else self._driver.voters.current
        return self.configured if record is None else record.addresses()

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "not started"
        return self._driver

    @property
    def leader_id(self) -> int | None:
        """The leader, as far as this node knows."""
        return self._driver.leader_id if self._driver else None

    def is_connected_to_leader(self, leader_id: int) -> bool:
        """Return whether the leader is this node or linked: a dead leader's link breaks long before it is replaced."""
        if leader_id != self.leader_id or self._links is None:
            return False
        return self.linked(leader_id)

    def linked(self, voter: int) -> bool:
        """Return whether that voter is this node, or is linked."""
        return voter == self.node_id or (self._links is not None and self._links.is_up(voter))

    def linked_incarnation(self, voter: int) -> bytes | None:
        """Return the linked process of a voter, or None."""
        return None if self._links is None else self._links.incarnation_of(voter)

    def levels_of_voters(self) -> dict[int, tuple[int, int] | None]:
        """Return the levels of the metadata that each other voter supports; None for a voter without a link."""
        linked = {} if self._links is None else self._links.levels()
        return {voter: linked.get(voter) for voter in sorted(self.voters) if voter != self.node_id}

    def close_too_old(self) -> None:
        """Close the connections of nodes that do not support the cluster's present level."""
        if self._links is not None and self._listener is not None:
            self._links.close_too_old()
            self._listener.close_too_old()

    def refuse_nodes(self, refused: bool) -> None:
        """Close the connections of other nodes, and refuse new ones, or accept them again: a fault."""
        self._refuses_nodes = refused
        if refused and self._listener is not None:
            self._listener.close_nodes(CUT_OFF)

    @property
    def term(self) -> int:
        return self._driver.term if self._driver else 0

    @property
    def leading(self) -> bool:
        """Whether this node leads, and has applied everything committed before its term."""
        return self._driver.leading if self._driver else False

    @property
    def leader_heard_at(self) -> float:
        """When another leader's message last came here, loop seconds; at first this voter's start."""
        return self.driver.election.leader_heard_at

    def append(self, data: bytes) -> None:
        """Propose one batch; it is committed when the state machine gets it, and may be lost until then.

        Raise NotController, RequestTimedOut (too much is uncommitted), InvalidRequest (over 2 MiB).
        """
        self.driver.append(data)

    def stop_candidacy(self) -> None:
        """Stop standing for leader: this node is shutting down."""
        if self._driver is not None:
            self._driver.stop_candidacy()

    async def hand_over(self) -> None:
        """Stop standing for leader, and give up leadership to the most caught-up follower or, finally, to any elected
        voter.
        """
        self.stop_candidacy()
        if self._driver is None or not self._driver.candidacy_stopped:
            return  # it never started, or votes alone
        if not await self.transfer_leadership():
            self._driver.resign()

    async def transfer_leadership(self, seconds: float = 1.0) -> bool:
        """Hand the lead to the most caught-up follower; True once we lead no more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.driver.core.is_leader and loop.time() < deadline:
            self.driver.transfer_leadership()
            await asyncio.sleep(0.02)
        return not self.driver.core.is_leader

    @property
    def commit_index(self) -> int:
        """Index of the last entry known to be committed."""
        return self.driver.core.commit_index

    def describe(self) -> QuorumDescription:
        """Describe the quorum as this node sees it; only the leader knows the other voters' positions.

        A voter's directory that the metadata does not name is an observer, as in Kafka.
        """
        driver = self.driver
        observers = tuple(QuorumReplica(*each) for each in self._feed.positions()) if self._feed else ()
        observers += tuple(self._replica(peer) for peer in driver.voters.uncounted())
        if self._links is not None:
            others = (each for each in self._links.linked_peers() if each not in driver.voters.peers)
            observers += tuple(self._replica(peer) for peer in others)
        leader_id = NO_LEADER if driver.leader_id is None else driver.leader_id
        voters = tuple(
            QuorumReplica(voter, -1, directory_id=driver.voters.recorded_directory(voter))
            if voter in driver.voters.uncounted()
            else self._replica(voter)
            for voter in sorted(self.voters)
        )
        commit_index, addresses = driver.core.commit_index, dict(self.voters)
        change = None if self._voter_requests is None else self._voter_requests.under_way
        record = driver.voters.current
        changes = () if record is None else tuple(map(_shown, record.changes))
        return QuorumDescription(
            leader_id, driver.term, commit_index, voters, observers, addresses, change, changes
        )

    def _replica(self, voter: int) -> QuorumReplica:
        core, now_ms = self.driver.core, self._env.wall_clock_ms()
        directory_id = self.driver.voters.directory_of(voter)
        if voter == self.node_id:
            return QuorumReplica(voter, core.journal.last_index, now_ms, now_ms, directory_id)
        match, answered_at = core.match_index(voter), core.last_response_at(voter)
        if not core.is_leader or answered_at is None:
            return QuorumReplica(voter, -1, directory_id=directory_id)
        now, caught_up_at = asyncio.get_running_loop().time(), core.caught_up_at(voter)
        answered_ms = now_ms - int((now - answered_at) * 1000)
        caught_up_ms = -1 if caught_up_at is None else now_ms - int((now - caught_up_at) * 1000)
        return QuorumReplica(voter, match, answered_ms, caught_up_ms, directory_id)

    def unrecorded_voters(self) -> dict[int, UUID]:
        """Return the voters' directories that a leader may record now.

        They hold all that is committed. If a voter has a recorded directory, another must wait until that has been
        missed for `REPLACED_AFTER_S`: it may be the wrong node. The first directories are recorded all at once: any
        other voter would count as one that a longer list has added.
        """
        driver = self.driver
        voters, core = driver.voters, driver.core
        found = voters.unrecorded()
        if voters.current is not None:
            return {}  # the set names them
        if voters.is_forming or not found:
            return found
        now = asyncio.get_running_loop().time()
        ready = {
            voter: directory
            for voter, directory in found.items()
            if voter == self.node_id
            or (
                self.linked(voter)
                and core.match_index(voter) >= core.commit_index
                and now >= voters.missed_since(voter, driver.led_since) + REPLACED_AFTER_S
            )
        }
        return ready if voters.recorded() or len(ready) == len(self.voters) else {}

    @property
    def voter_requests(self) -> VoterRequests:
        """Requests to change the voters, on the leader, after `start`."""
        if self._voter_requests is None:
            from raftlog.quorum.voter_requests import VoterRequests

            assert self._links is not None
            self._voter_requests = VoterRequests(
                self.driver, self._links.directory_of, self._directory_at, self._env.ages.believed_ms
            )
        return self._voter_requests

    async def _directory_at(self, voter: Voter) -> UUID:
        """Return the directory of the node at the address of a voter, which other nodes will dial. Raise Unreached."""
        from raftlog.quorum.voter_requests import Unreached

        try:
            channel = await dial(self.identity, "rpc", (voter.host, voter.port), expect=voter.voter_id)
        except (HandshakeRefused, OSError) as error:
            raise Unreached(str(error) or type(error).__name__) from error
        channel.close("it is there")
        return channel.peer.directory_id

    @property
    def has_static_voters(self) -> bool:
        """Whether the voters of the config are in force."""
        return self._driver is None or self._driver.voters.current is None

    @property
    def awaits_first_set(self) -> bool:
        """Whether the log is to hold the voters of the config, so that they can change."""
        return self.has_static_voters and self.voters_may_change() and not self._writes_first_set

    async def write_first_set(self) -> None:
        """Write the voters of the config into the log. A failure is logged; the next commit may try again."""
        if not self.awaits_first_set:
            return
        self._writes_first_set = True
        until = asyncio.get_running_loop().time() + FIRST_SET_S
        try:
            await self.voter_requests.make_dynamic(self.configured, until)
        except KafkaError as error:
            log.warning("quorum_voters_not_recorded", node_id=self.node_id, reason=str(error))
        finally:
            self._writes_first_set = False

    async def change_voters(self, request: AddVoter | RemoveVoter | UpdateVoter) -> Done:
        """Add, remove or move a voter; see `VoterRequests`. Raise NotController unless leading."""
        if self.leading:
            await self.write_first_set()
        try:
            await self.voter_requests.carry_out(request)
        except NotLeaderOrFollower as error:
            raise NotController(error.message) from error
        return Done()

    def is_as_requested(self, request: AddVoter | RemoveVoter | UpdateVoter) -> bool:
        """Return whether that very voter is committed, or no voter of its id is. Only for the leader."""
        driver = self.driver
        record = driver.voters.current
        if record is None or driver.changes_voters:
            return False
        found = record.find(request.voter_id)
        if isinstance(request, RemoveVoter):
            return found is None
        return found is not None and found.directory_id == request.directory_id

    @property
    def own_move(self) -> Voter | None:
        """This voter with the address that its config names, if the newest set has another; else None."""
        record = None if self._driver is None else self._driver.voters.current
        found = None if record is None else record.find(self.node_id)
        address = self.configured.get(self.node_id)
        if found is None or address in (None, (found.host, found.port)) or not self.driver.voters.is_voter:
            return None
        return structs.replace(found, host=address[0], port=address[1])

    @property
    def may_have_moved(self) -> bool:
        """Whether the newest set has another address of this voter, or may be truncated: the set before may have."""
        may_be_truncated = self._driver is not None and self._driver.changes_voters
        return self.own_move is not None or (may_be_truncated and self.node_id in self.configured)

    def why_no_leader(self) -> str | None:
        """Return why this voter has no leader, as far as the directories of voters, or a refused link, explain it."""
        reason = None if self._driver is None else self._driver.voters.why_no_leader()
        return reason if self._links is None else reason or self._links.why_refused()

    # -- channels ------------------------------------------------------------------------

    def heartbeat_peers(self) -> frozenset[int]:
        """Return the brokers that hold a heartbeat connection to this node."""
        return frozenset(self._heartbeats)

    def _leader(self) -> tuple[bool, int | None]:
        return self.leading, self.leader_id

    def _admits(self, hello: Hello) -> str | None:
        assert self._links is not None
        newcomer = introduced(hello)
        if self._refuses_nodes and hello.node_id != self.node_id:
            return CUT_OFF
        return (self._links.refusal_reason if hello.kind == "raft" else self._links.why_taken)(newcomer)

    def _take_rpc(self, channel: InboundChannel) -> None:
        RpcServer(channel, on_request=self._dispatch, leader=self._leader)

    async def _dispatch(self, payload: bytes, peer: int) -> bytes:
        return await self.on_request(payload, peer)

    def _take_heartbeat(self, channel: InboundChannel) -> None:
        """Register a heartbeat connection, which proves by its existence that a broker is alive."""
        broker_id = channel.peer_id

        def lost() -> None:
            if self._heartbeats.get(broker_id) is channel:
                del self._heartbeats[broker_id]
                self.on_peer_lost(broker_id)

        self._heartbeats[broker_id] = channel
        self.on_peer_connected(broker_id)
        RpcServer(channel, on_request=self._dispatch, leader=self._leader, on_lost=lost)

    def _failed(self, error: BaseException) -> None:
        """Stop sending, so that the other voters elect: the disk or the state machine failed."""
        if self._links is not None:
            self._links.close()
        self.on_failure(error)


class NoLeaderWarning:
    """Logs once that the node has known no leader for LEADERLESS_S, with the voters it looks for."""

    def __init__(self, voters: Callable[[], Mapping[int, tuple[str, int]]], quorum: Quorum | None) -> None:
        self._voters = voters
        self._quorum = quorum
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, leader_id: int | None) -> None:
        """Note the leader."""
        if leader_id is not None:
            self.close()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LEADERLESS_S, self._log)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _log(self) -> None:
        addresses = {each: f"{each}@{host}:{port}" for each, (host, port) in sorted(self._voters().items())}
        more: dict[str, Any] = {}
        if (quorum := self._quorum) is not None:
            more["unreached"] = [text for each, text in addresses.items() if not quorum.linked(each)]
            if (reason := quorum.why_no_leader()) is not None:
                more["reason"] = reason
        log.warning(
            "quorum_leader_not_found",
            leaderless_s=LEADERLESS_S,
            voters=list(addresses.values()),
            votes_needed=len(addresses) // 2 + 1,
            **more,
        )
