"""`Observer`: follows the metadata journal without voting, on a node that has the broker role only.

It begins with an empty log, so it reads all sets of voters that the log holds, oldest first. It keeps to its voter
meanwhile, since the voters of an old set may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from raftlog.base.env import Env, raise_failure
from raftlog.base.errors import InconsistentClusterId
from raftlog.base.log import get_logger
from raftlog.base.log_output import describe
from raftlog.quorum.channel import Channel, ForeignCluster, HandshakeRefused, Identity, dial
from raftlog.quorum.known_voters import KnownVoters
from raftlog.quorum.messages import SnapshotChunk
from raftlog.quorum.observer_feed import (
    AppliedUpTo,
    CommittedBatches,
    LeaderStatus,
    ObserverSnapshotChunk,
    SubscribeFrom,
    decode_to_observer,
)
from raftlog.quorum.snapshot import IncomingSnapshot, Snapshot, decode_snapshot
from raftlog.quorum.voters_record import VotersRecord, decode_voters
from raftlog.quorum.wal import VOTERS_PREFIX, DamagedJournal

if TYPE_CHECKING:
    from raftlog.quorum.state_machine import StateMachine

log = get_logger("quorum")

REDIAL_MIN_SECONDS: Final = 0.05
REDIAL_MAX_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 1.0
"""A voter that is silent this long is left: two of its reports are missing. It costs a connection to another voter."""

LEADERLESS_SECONDS: Final = 1.5
"""A voter without a leader for this long is left: it may be cut off."""

SETTLED_SECONDS: Final = 2.0
"""The newest set of voters counts as the present set if no later set is read for this long."""

_REGULAR: Final = b"\x00"
_ask = msgspec.msgpack.Encoder().encode


class UnexpectedIndex(Exception):
    """A voter sent an index out of order."""


class Observer:
    """Same callbacks as a voter's, from a stream of one voter at a time; see `keep_voters_in` for all that it writes.

    `voters`: the voters of the config.
    """

    def __init__(
        self,
        env: Env,
        *,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        secret: bytes,
        cluster_id: Callable[[], str | None],
        machine: StateMachine,
    ) -> None:
        self.node_id = node_id
        self.voters = dict(voters)
        """As last known: of the newest set that was read, or at first of the file or the config."""
        self.configured = dict(voters)
        self.newest_set: VotersRecord | None = None
        """The newest committed set that was read; None: none was, or the voters of the config are in force."""
        self._known: KnownVoters | None = None
        self._listed = set(voters.items())
        """Dialled after the present voters."""
        self._heard_at: float | None = None
        """When the newest set was read, loop seconds; None: none was."""
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self.identity = Identity(node_id, secret, cluster_id, env.unguessable, env.lateness)
        self.leader_id: int | None = None
        self.term = 0
        self.applied_index = 0
        self._env = env
        self._machine = machine
        self._incoming = IncomingSnapshot()
        self._channel: Channel | None = None
        self._leader_known_at = 0.0
        self._complaints: dict[int, str] = {}
        self._foreign: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def keep_voters_in(self, folder: str) -> None:
        """Keep the addresses of the present voters in a folder, and start with them."""
        self._known = KnownVoters(self._env.disk, folder)

    @property
    def leading(self) -> bool:
        """Never."""
        return False

    def is_connected_to_leader(self, leader_id: int) -> bool:
        """Return whether the followed voter sees that node as its leader."""
        return self._channel is not None and leader_id == self.leader_id

    async def start(self) -> None:
        """Begin to follow; returns at once. Raises OSError if the file of the voters cannot be read."""
        found = {} if self._known is None else self._known.read()
        if found:
            self.voters = found
            self._listed |= found.items()
        self._task = asyncio.get_running_loop().create_task(self._follow_somebody())
        self._task.add_done_callback(raise_failure)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None:
            self._channel.close("this node stops")

    # -- inside --------------------------------------------------------------------------

    async def _follow_somebody(self) -> None:
        """Follow the voters in turn until stopped: from a random present voter on, and then those of the lists."""
        order: list[tuple[int, tuple[str, int]]] = []
        wait, position = REDIAL_MIN_SECONDS, 0
        while True:
            present = set(self.voters.items())
            if present | self._listed != set(order):
                order, others = sorted(present), sorted(self._listed - present)
                self._env.random.shuffle(order)
                self._env.random.shuffle(others)
                order += others
                position = 0
            voter, address = order[position % len(order)]
            position += 1
            if await self._follow(voter, address):
                wait = REDIAL_MIN_SECONDS
            await asyncio.sleep(self._env.random.uniform(wait / 2, wait))
            wait = min(REDIAL_MAX_SECONDS, 2 * wait)

    async def _follow(self, voter: int, address: tuple[str, int]) -> bool:
        """Follow one voter until the channel breaks; False if it could not be reached."""
        try:
            channel = await dial(self.identity, "observe", address, expect=voter)
        except HandshakeRefused as error:
            self._complain(voter, address, error)
            return False
        except OSError:
            return False
        self._complaints.pop(voter, None)
        self._foreign.discard(voter)
        self._listed.add((voter, address))
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str] = loop.create_future()
        self._channel, self._incoming, self._leader_known_at = channel, IncomingSnapshot(), loop.time()
        channel.attach(
            lambda payload: self._take(channel, payload),
            lambda reason: None if lost.done() else lost.set_result(reason),
        )
        channel.send(_ask(SubscribeFrom(self.applied_index + 1)))
        while not lost.done():
            await asyncio.wait([lost], timeout=SILENCE_SECONDS / 4)
            now, patience_s = loop.time(), self._env.lateness.patience_s
            if now - channel.last_received_at > SILENCE_SECONDS + patience_s:
                channel.close("it fell silent")
            elif now - self._leader_known_at > LEADERLESS_SECONDS + patience_s and len(self.voters) > 1:
                channel.close("it knows no leader")
            elif self._heard_at is not None and now - self._heard_at > SETTLED_SECONDS:
                self._settle_on_voters(channel)
        log.info("observer_lost_voter", node_id=self.node_id, voter_id=voter, reason=lost.result())
        return True

    def _complain(self, voter: int, address: tuple[str, int], error: HandshakeRefused) -> None:
        """Log it once. If most present voters are of another cluster, this node is the foreign one.

        Another cluster may have the former addresses of voters that have moved.
        """
        if isinstance(error, ForeignCluster) and self.voters.get(voter) == address:
            self._foreign.add(voter)
            if len(self._foreign) > len(self.voters) // 2:
                self.on_failure(InconsistentClusterId(str(error)))
        if self._complaints.get(voter) != str(error):
            self._complaints[voter] = str(error)
            log.warning("observer_refused", node_id=self.node_id, voter_id=voter, reason=str(error))

    def _take(self, channel: Channel, payload: bytes) -> None:
        """Take a frame of the voter's. It is left if that makes no sense; what our own state refuses ends this node."""
        try:
            message = decode_to_observer(payload)
            batches, snapshot = self._read(channel, message)
        except (msgspec.MsgspecError, DamagedJournal, UnexpectedIndex) as error:
            channel.close(f"what it sent cannot be taken: {error}")
            return
        try:
            self._change(batches, snapshot)
        except Exception as error:
            if self._task is not None:
                self._task.cancel()
            channel.close("this observer failed")
            self.on_failure(error)
            log.error("observer_failed", node_id=self.node_id, reason=describe(error), exc_info=error)
            return
        if isinstance(message, LeaderStatus):
            self._take_status(message)
        if not isinstance(message, ObserverSnapshotChunk) or snapshot is not None:
            channel.send(_ask(AppliedUpTo(self.applied_index)))

    def _read(
        self, channel: Channel, message: CommittedBatches | ObserverSnapshotChunk | LeaderStatus
    ) -> tuple[list[bytes], Snapshot | None]:
        """Return what a message brings that is new: commands, or a snapshot. Raises Gap, DamagedJournal."""
        if isinstance(message, CommittedBatches):
            if message.first_index > self.applied_index + 1:
                raise UnexpectedIndex(f"{message.first_index} follows {self.applied_index}")
            return message.commands[self.applied_index + 1 - message.first_index :], None
        if isinstance(message, LeaderStatus):
            return [], None
        chunk = SnapshotChunk(0, message.index, message.total, message.start, message.data)
        data = self._incoming.take(channel.peer_id, chunk)
        return [], None if data is None else decode_snapshot(data)

    def _change(self, commands: list[bytes], snapshot: Snapshot | None) -> None:
        for command in commands:
            if command.startswith(_REGULAR):
                self._machine.apply(command[1:])
            elif command.startswith(VOTERS_PREFIX):
                self._take_voters(command)
            self.applied_index += 1
        if snapshot is not None and snapshot.end > self.applied_index:
            self._machine.restore(snapshot.state)
            self.applied_index = snapshot.end
            if snapshot.voters:
                self._take_voters(snapshot.voters)

    def _take_voters(self, command: bytes) -> None:
        """Take over the voters of a committed set."""
        self.newest_set = decode_voters(command)
        self.voters = self.newest_set.addresses()
        self._heard_at = asyncio.get_running_loop().time()

    def _settle_on_voters(self, channel: Channel) -> None:
        """Keep the present set for the next start, and leave a node that is no voter.

        A set with the followed voter is kept only: that voter lives, whatever comes later in the log.
        """
        if channel.peer_id not in self.voters:
            channel.close("it is no voter any more")
            return
        self._listed = set(self.configured.items())  # all voters may have moved since the newest set
        if self._known is not None:
            self._known.write(self.voters)

    def _take_status(self, status: LeaderStatus) -> None:
        leader = None if status.leader_id < 0 else status.leader_id
        if leader is not None:
            self._leader_known_at = asyncio.get_running_loop().time()
        if status.term < self.term or (leader, status.term) == (self.leader_id, self.term):
            return  # another voter knew more already, or nothing new
        self.leader_id, self.term = leader, status.term
        self._machine.leadership_changed(leader, status.term, False)
