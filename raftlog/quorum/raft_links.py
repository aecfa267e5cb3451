"""The raft links of one voter: a single ordered, authenticated channel to each other voter.

Of each pair the higher id dials. A newly accepted link replaces the old one, whose unread messages are dropped: the
core tolerates loss, never reordering. When the link to a peer breaks, the peer's address is probed, and a refusal
proves that the process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal
from uuid import UUID

import msgspec

from raftlog.base.env import Env, raise_failure, shared_time
from raftlog.base.log import get_logger
from raftlog.base.types import encode_uuid
from raftlog.quorum.channel import Channel, HandshakeRefused, Identity, InboundChannel, dial
from raftlog.quorum.handshake_messages import Introduced, why_too_old
from raftlog.quorum.incarnations import Heard
from raftlog.quorum.link_claims import LinkClaims
from raftlog.quorum.messages import (
    KnownVoters,
    LinkAnswer,
    LinkClaim,
    Message,
    Ping,
    decode_message,
    encode_message,
)
from raftlog.quorum.voter_set import VoterSet
from raftlog.quorum.wal import DamagedJournal

log = get_logger("quorum")

REDIAL_MIN_SECONDS: Final = 0.05
REDIAL_MAX_SECONDS: Final = 0.2
UNLINKED_LOOKS: Final = 10
"""After so many `PING_SECONDS` without a link, a voter dials all that it knows; see `_dials`."""

PATIENCE_SECONDS: Final = 2.0
"""How long a voter waits for the link of a voter with a higher id before it dials it, if the voters change."""

PING_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3.5
"""A link that is silent this long is closed."""

UNSENT_BYTES_LIMIT: Final = 64 * 1024 * 1024
"""A peer that does not read is cut off beyond this backlog."""

_COMES_BACK: Final = "this voter's directory is an older copy: it comes back under another id"

PROBE_SECONDS: Final = 0.3
PROBES: Final = 10
PROBE_INTERVAL_SECONDS: Final = 0.02

ProbeResult = Literal["refused", "alive", "silent"]


async def probe(address: tuple[str, int], seconds: float = PROBE_SECONDS) -> ProbeResult:
    """Probe whether a process listens at `address`; "silent" without an answer either way."""
    try:
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "silent"
    transport.abort()
    return "alive"


async def is_process_dead(address: tuple[str, int], still_missed: Callable[[], bool]) -> bool:
    """Return whether the process at `address` is dead: it refuses even after its listener has closed."""
    for _ in range(PROBES):
        result = await probe(address)
        if not still_missed():
            return False
        if result == "refused":
            return True
        await asyncio.sleep(PROBE_INTERVAL_SECONDS)
    return False


class RaftLinks:
    """Links by peer id. `on_message(peer, message)`, `on_up(peer)`, `on_down(peer)`, `on_gone(peer)` (process dead).

    `on_writable()`: a link is writable again.
    """

    def __init__(
        self,
        env: Env,
        identity: Identity,
        peers: Mapping[int, tuple[str, int]],
        *,
        configured: Mapping[int, tuple[str, int]] | None = None,
        voters: VoterSet,
        on_message: Callable[[int, Message], None],
        on_up: Callable[[int], None],
        on_down: Callable[[int], None],
        on_gone: Callable[[int], None],
        on_writable: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._identity = identity
        self._peers = dict(peers)
        self._configured = dict(configured or {})
        self._voters = voters
        self._on_message = on_message
        self._on_up = on_up
        self._on_down = on_down
        self._on_gone = on_gone
        self._on_writable = on_writable
        self.went_back: Callable[[Iterable[Heard]], bool] = lambda _heard: False
        """Return whether a peer's memory of this voter shows that its directory is an older copy."""
        self._channels: dict[int, Channel] = {}
        self._claims = LinkClaims(self._channels, grant=self._add, deny=self._deny)
        self._unheard: set[int] = set()
        """Peers without a message on their links yet. The first message shows that a peer's directory is not an older
        copy.
        """
        self._tasks: set[asyncio.Task[None]] = set()
        self._complaints: dict[int, str] = {}
        self._dialling: set[int] = set()
        self._hinted: dict[int, tuple[str, int]] = {}
        """Voters by what other nodes sent: this node's own set may be an old set, or none."""
        self._unlinked_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._closed = False

    def start(self) -> None:
        self._watch()
        for peer in self._dials():
            self._spawn(self._keep_dialling(peer, 0.0))

    def follow_voters(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Dial by another set of voters; links to other nodes stay while they last."""
        self._peers = {peer: each for peer, each in addresses.items() if peer != self._identity.node_id}
        self._hinted = {}
        self._dial_unlinked()
        for channel in self._channels.values():
            self._send_voters(channel)

    def _dial_unlinked(self) -> None:
        for peer in self._dials():
            if peer not in self._channels and peer not in self._dialling and not self._closed:
                self._spawn(self._keep_dialling(peer, REDIAL_MIN_SECONDS))

    def _send_voters(self, channel: Channel) -> None:
        if self._voters.current is not None:
            from raftlog.quorum.voters_record import encode_voters

            channel.send(encode_message(KnownVoters(encode_voters(self._voters.current))))

    def _on_hint(self, channel: Channel, hint: KnownVoters) -> None:
        from raftlog.quorum.voters_record import decode_voters

        try:
            addresses = decode_voters(hint.command).addresses()
        except DamagedJournal as error:
            channel.close(str(error))
            return
        own = self._identity.node_id
        self._hinted = {
            peer: address
            for peer, address in addresses.items()
            if peer != own and self._peers.get(peer) != address
        }
        self._dial_unlinked()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._claims.close()
        for channel in list(self._channels.values()):
            channel.close("this node stops")

    def linked_peers(self) -> Iterable[int]:
        """Return the ids of linked peers, ascending."""
        return sorted(self._channels)

    def is_up(self, peer: int) -> bool:
        return peer in self._channels

    def incarnation_of(self, peer: int) -> bytes | None:
        """Return the process of a peer at the other end of its link, or None."""
        return self._channels[peer].peer.incarnation if peer in self._channels else None

    def directory_of(self, peer: int) -> UUID | None:
        """Return the directory of a peer at the other end of its link, or None."""
        return self._channels[peer].peer.directory_id if peer in self._channels else None

    def levels(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest level of the metadata that each linked peer supports."""
        return {peer: channel.peer_levels for peer, channel in self._channels.items()}

    def close_too_old(self) -> None:
        """Close the links of peers that do not support the cluster's present level."""
        for peer, channel in list(self._channels.items()):
            reason = why_too_old(self._identity.levels, peer, channel.peer_levels)
            if reason is not None:
                channel.close(reason)

    def can_send(self, peer: int) -> bool:
        """Return whether a message sent now leaves soon."""
        channel = self._channels.get(peer)
        return channel is not None and channel.writable

    def send(self, peer: int, message: Message) -> None:
        """Queue a message; dropped when there is no link."""
        channel = self._channels.get(peer)
        if channel is None:
            return
        channel.send(encode_message(message))
        if not channel.writable and channel.unsent_bytes() > UNSENT_BYTES_LIMIT:
            channel.close("the peer does not read")

    def refusal_reason(self, newcomer: Introduced) -> str | None:
        """Return the reason to refuse a raft link from a node, or None."""
        peer = newcomer.node_id
        if peer == self._identity.node_id:
            return self.why_taken(newcomer)
        changes = self._voters.current is not None
        if peer not in self._peers and not newcomer.observes:
            return (
                f"node {peer} is not among the voters of node {self._identity.node_id}: take it out of its own "
                "controller.quorum.voters, and `raftlog quorum add` can make it a voter"
                if changes
                else f"node {peer} is not among controller.quorum.voters of node {self._identity.node_id}"
            )
        if peer in self._peers and peer < self._identity.node_id and (not changes or peer in self._channels):
            dials = f"node {self._identity.node_id} dials node {peer}, not the other way round"
            return self.why_taken(newcomer) or dials
        return self._voters.refusal_reason(newcomer) or self.why_taken(newcomer)

    def why_taken(self, newcomer: Introduced) -> str | None:
        """Return the reason to refuse a second process of a linked voter's number, or None.

        The linked process stays, unless the metadata names only the newcomer's directory. A link may have lost its
        process in silence, as after a power cut. Then the restarted machine answers the ping with a reset, and the next
        attempt is accepted. A silent link ends after SILENCE_SECONDS.
        """
        if newcomer.node_id == self._identity.node_id:
            voter = self._identity.voter
            if voter is not None and newcomer.incarnation == voter.incarnation:
                return None  # the only voter tries its own new address
            return f"there are two nodes {newcomer.node_id}: give one of them another node.id"
        channel = self._channels.get(newcomer.node_id)
        if channel is None:
            return None
        linked, is_recorded = channel.peer, self._voters.is_recorded
        if b"" in (linked.incarnation, newcomer.incarnation) or linked.incarnation == newcomer.incarnation:
            return None
        peer = newcomer.node_id
        if is_recorded(peer, newcomer.directory_id) and not is_recorded(peer, linked.directory_id):
            return None
        channel.send(encode_message(Ping()))
        if linked.directory_id == newcomer.directory_id:
            return (
                f"node {peer} runs already, at {channel.address}, with the same directory "
                f"{encode_uuid(linked.directory_id)}: one of the two is a copy. Stop the one that is not the original"
            )
        return (
            f"node {peer} runs already, at {channel.address}, with directory {encode_uuid(linked.directory_id)}, not "
            f"{encode_uuid(newcomer.directory_id)}: give one of the two another node.id"
        )

    def add_accepted(self, channel: InboundChannel) -> None:
        """Take over an accepted, authenticated link."""
        self._take_over(channel)

    # -- inside --------------------------------------------------------------------------

    def _dials(self) -> list[int]:
        """Return the voters that this node dials: the lower ids, or all.

        A node that is no voter dials all, since they do not know its address. It also dials the voters of its config:
        the newest set of its log may be old. A voter whose voters change dials all, since a voter with a higher id may
        lack the set with this node. A voter of the config without any link does so too: it may be removed since. A
        voter of a set without links to a majority dials its config's: the others may be replaced since, or have moved.
        """
        voters, is_alone = self._voters, self._is_alone
        dials_all = voters.current is not None or not voters.is_voter or is_alone
        lower = (peer for peer in self._peers if dials_all or peer < self._identity.node_id)
        configured = () if voters.is_voter and not is_alone else self._configured
        return sorted({*lower, *self._hinted, *configured} - {self._identity.node_id})

    @property
    def _is_alone(self) -> bool:
        """Whether this node has long lacked links, see `_lacks_links`."""
        return self._unlinked_looks >= UNLINKED_LOOKS

    @property
    def _lacks_links(self) -> bool:
        """Whether no majority of a set is linked, or no node at all with the voters of the config.

        Nodes without a vote, or some other moved voters, may have found this node by their configs. They know no
        newer set, either.
        """
        if self._voters.current is None or not self._voters.is_voter:
            return not self._channels
        linked = sum(peer in self._channels for peer in self._peers)
        return linked + 1 <= (len(self._peers) + 1) // 2

    def _address(self, peer: int, attempt: int = 0) -> tuple[str, int] | None:
        """Return the address for an attempt to dial. A voter that may have moved is dialled at each address in turn."""
        known, hinted, configured = (each.get(peer) for each in (self._peers, self._hinted, self._configured))
        use_config = self._is_alone or known is None
        addresses = dict.fromkeys((known, hinted, configured if use_config else None))
        usable = [each for each in addresses if each is not None]
        return usable[attempt % len(usable)] if usable else None

    def _spawn(self, coroutine: Callable[[], None] | object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(raise_failure)

    async def _keep_dialling(self, peer: int, wait: float) -> None:
        """Dial until linked; `_drop` starts anew."""
        self._dialling.add(peer)
        try:
            await self._dial_until_linked(peer, wait)
        finally:
            self._dialling.discard(peer)

    async def _dial_until_linked(self, peer: int, wait: float) -> None:
        refused, attempt = 0, -1
        while not self._closed:
            attempt += 1
            waits_for_dial = self._voters.is_voter and peer > self._identity.node_id
            if waits_for_dial:
                wait = max(wait, PATIENCE_SECONDS)
            if wait:
                await asyncio.sleep(self._env.random.uniform(wait / 2, wait))
            wait = min(REDIAL_MAX_SECONDS, max(REDIAL_MIN_SECONDS, 2 * wait))
            address = self._address(peer, attempt)
            if address is None or peer in self._channels or peer not in self._dials():
                return
            try:
                admit = self._voters.refusal_reason
                channel = await dial(self._identity, "raft", address, expect=peer, admit=admit)
            except HandshakeRefused as error:
                refused += 1
                if refused > 1:  # the first may be due to a link of this node's previous process
                    self._complain(peer, str(error))
                    wait = 1.0
                continue
            except OSError:
                continue
            if self._take_over(channel):
                return

    def why_refused(self) -> str | None:
        """Return why links were refused when they were last tried, for the peers without one; None if none was."""
        refused = self._complaints.keys() & {*self._voters.peers} - self._channels.keys()
        return "; ".join(f"node {each}: {self._complaints[each]}" for each in sorted(refused)) or None

    def _complain(self, peer: int, reason: str) -> None:
        if self._complaints.get(peer) != reason:
            self._complaints[peer] = reason
            log.error("quorum_link_refused", node_id=self._identity.node_id, peer_id=peer, reason=reason)

    def _take_over(self, channel: Channel) -> bool:
        """Make a channel the link to its peer, unless that peer shows that this voter's directory went back."""
        if self.went_back(channel.peer.heard):
            for each in (channel, *self._channels.values()):
                each.close(_COMES_BACK)
            return False
        voter = self._identity.voter
        if (
            voter is not None and channel.introduced_as != voter.incarnation
        ):  # found out meanwhile, by another link
            channel.close(_COMES_BACK)
            return False
        self._claims.ask(channel)
        return True

    def _add(self, channel: Channel) -> None:
        peer = channel.peer_id
        previous = self._channels.pop(peer, None)
        if previous is not None:
            self._voters.note_link_lost(peer, asyncio.get_running_loop().time())
            previous.detach()
            previous.close("replaced by a newer link")
            self._on_down(peer)
            self._claims.on_lost(peer)
        self._channels[peer] = channel
        self._complaints.pop(peer, None)
        self._voters.linked[peer] = channel.peer.directory_id
        self._voters.incarnations[peer] = channel.peer.incarnation
        self._unheard.add(peer)
        self._on_up(peer)
        channel.send(encode_message(Ping()))
        channel.on_writable = self._on_writable
        channel.attach(
            lambda payload: self._take(channel, payload), lambda reason: self._drop(channel, reason)
        )
        self._send_voters(channel)
        self._claims.show_links(peer)
        log.info("quorum_link_established", node_id=self._identity.node_id, peer_id=peer)

    def _deny(self, channel: Channel, by: int) -> None:
        """Close a link, in use or not, since another voter is linked to another process of its peer."""
        peer = channel.peer_id
        reason = (
            f"node {peer} runs already, linked to node {by}: one of the two processes is a copy, or is gone"
        )
        self._complain(peer, reason)
        channel.close(reason)
        if peer not in self._channels and peer in self._dials():
            self._spawn(self._keep_dialling(peer, 1.0))

    def _take(self, channel: Channel, payload: bytes) -> None:
        try:
            message = decode_message(payload)
        except msgspec.MsgspecError as error:
            channel.close(f"not a message: {error}")
            return
        if isinstance(message, LinkClaim):
            self._claims.on_claim(channel.peer_id, message)
        elif isinstance(message, LinkAnswer):
            self._claims.on_answer(channel.peer_id, message)
        elif isinstance(message, KnownVoters):
            self._on_hint(channel, message)
        elif type(message) is not Ping or channel.peer_id in self._unheard:
            self._unheard.discard(channel.peer_id)
            self._on_message(channel.peer_id, message)

    def _drop(self, channel: Channel, reason: str) -> None:
        peer = channel.peer_id
        if self._channels.get(peer) is not channel:
            return
        del self._channels[peer]
        if self._closed:
            return
        self._claims.on_lost(peer)
        self._voters.note_link_lost(peer, asyncio.get_running_loop().time())
        self._on_down(peer)
        self._spawn(self._probe(peer))
        if peer in self._dials():
            self._spawn(self._keep_dialling(peer, REDIAL_MIN_SECONDS))
        log.info("quorum_link_lost", node_id=self._identity.node_id, peer_id=peer, reason=reason)

    async def _probe(self, peer: int) -> None:
        def still_missed() -> bool:
            return not self._closed and peer not in self._channels

        address = self._address(peer)
        if address is not None and await is_process_dead(address, still_missed):
            self._on_gone(peer)

    def _watch(self) -> None:
        """Ping links that we left silent, close links on which the peer was silent; excuse a stall of our own loop
        once.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        stalled = self._looked_at > 0 and now - self._looked_at > 2 * PING_SECONDS
        self._looked_at = now
        self._timer = loop.call_at(shared_time(now, PING_SECONDS), self._watch)
        self._unlinked_looks = self._unlinked_looks + 1 if self._lacks_links else 0
        if self._unlinked_looks == UNLINKED_LOOKS:
            self._dial_unlinked()
        for channel in list(self._channels.values()):
            channel.run_guarded(self._look_at, channel, now, stalled)

    def _look_at(self, channel: Channel, now: float, stalled: bool) -> None:
        if now - channel.sent_at >= PING_SECONDS * 0.9:
            channel.send(encode_message(Ping()))
        if stalled:
            channel.last_received_at = max(channel.last_received_at, now - PING_SECONDS)
        elif now - channel.last_received_at > SILENCE_SECONDS + self._env.lateness.patience_s:
            channel.close(f"no message for {now - channel.last_received_at:.1f} s")
