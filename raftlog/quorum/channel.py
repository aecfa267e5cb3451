"""One mutually authenticated, framed connection between two nodes of a cluster.

The handshake (`base.handshake`) is hello, challenge, the connecting node's proof, and the listener's verdict. The
verdict has the listener's proof, or the reason of a refusal. Until then the listener sends nothing that depends on the
secret. Each direction derives its own key from the transcript. Every frame carries a MAC over its sequence number and
bytes, so frames cannot be forged, replayed or dropped. MACs authenticate, but do not encrypt, which is left to TLS
(`ChannelTls`). The proofs are then bound to the listener's certificate.

Frame: length u32 of what follows, payload, 16 bytes of MAC (none during the handshake).

A listener also accepts Kafka clients (KIP-919) if it has a server for them. Behind the length, Kafka's frame begins
with an API key below 256, so with a zero byte. A hello begins with the head of a msgpack array.

A channel is a `Guard`: an exception while it handles a peer's bytes closes it and is logged once. Closing cancels its
timer too, since uvloop reports nothing if a connection is cancelled while it is made.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from raftlog.base.guard import Guard
from raftlog.base.handshake import CONNECTOR, LISTENER, NONCE_BYTES, Transcript, bound_secret
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.base.types import NO_DIRECTORY
from raftlog.quorum.handshake_messages import (
    Challenge,
    ChannelKind,
    Hello,
    Introduced,
    IntroducesVoter,
    Levels,
    Proof,
    Refusal,
    Verdict,
    decode_handshake,
    directory_fields,
    encode_handshake,
    introduced,
    why_too_old,
)

if TYPE_CHECKING:
    from raftlog.quorum.channel_tls import ChannelTls

log = get_logger("quorum")

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_HANDSHAKE_BYTES: Final = 4 * 1024
HANDSHAKE_SECONDS: Final = 3.0
"""Timeout of a node's attempt to connect and authenticate, before it retries."""

ACCEPT_SECONDS: Final = 10.0
"""The listener's timeout for that: slow nodes extend their own."""

_MAC_BYTES: Final = 16
PROTOCOL: Final = 2  # of the handshake
_TLS_HANDSHAKE: Final = 0x16  # the first byte of a client that speaks TLS
_NAME: Final = b"raftlog controller listener"
_LENGTH: Final = struct.Struct(">I")
_SEQUENCE: Final = struct.Struct(">Q")

_SECRETS_DIFFER: Final = "the cluster secrets differ (raftlog.cluster.secret)"
_SECRETS_DIFFER_OVER_TLS: Final = (
    f"{_SECRETS_DIFFER}, or TLS ends between the nodes, at a foreign certificate"
)

HUNG_UP: Final = "closed by the peer"
_HANDED_OVER: Final = "handed over: it speaks Kafka"


class HandshakeRefused(Exception):
    """One side turned the other away; the message says why."""


class ForeignCluster(HandshakeRefused):
    """The peer knows the secret, but belongs to another cluster."""


OnKafkaClient = Callable[[asyncio.Transport, bytes], None]
"""Gets the transport of a Kafka client, and the bytes that were read from it so far."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Our identity to peers. `cluster_id` may be unknown (None) until the first metadata arrives."""

    node_id: int
    secret: bytes
    cluster_id: Callable[[], str | None]
    nonce_source: Random = field(default_factory=SystemRandom)
    """One side refused the other; the message has the reason."""
    lateness: Lateness = field(default_factory=Lateness)
    """The lateness of this node's loop: a slow node gets more time to connect."""
    tls: ChannelTls | None = None
    """None: controllers' listeners speak no TLS."""
    levels: Levels = Levels()  # noqa: RUF009 (immutable)
    directory_id: UUID = NO_DIRECTORY
    """The metadata directory's id."""
    voter: IntroducesVoter | None = None
    """Answers for a voter; None: this node does not vote."""

    def nonce(self) -> bytes:
        return self.nonce_source.randbytes(NONCE_BYTES)


def _why_not(identity: Identity, node_id: int, cluster_id: str) -> str | None:
    """Return the reason to refuse an authenticated peer, or None."""
    ours = identity.cluster_id() or ""
    if ours and cluster_id and ours != cluster_id:
        return f"node {node_id} belongs to cluster {cluster_id}, node {identity.node_id} to cluster {ours}"
    return None


def _keep_alive(sock: Any) -> None:
    """Have the kernel detect a peer on a dead machine, in about 20 s."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):  # the peer has reset it already: the transport is about to report that
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def _ignored(_told: object) -> None:
    pass


def _mac(keyed: hmac.HMAC, sequence: int, payload: bytes) -> bytes:
    """Return the MAC of a frame. A copy costs a fifth of setting up the algorithm and the key again."""
    mac = keyed.copy()
    mac.update(_SEQUENCE.pack(sequence) + payload)
    return mac.digest()[:_MAC_BYTES]


class Channel(asyncio.Protocol, Guard):
    """One end. Subclasses handle the handshake messages; both ends are alike once open.

    The user of an open channel calls `attach` for its frames and its end; earlier frames wait for that.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.peer_id = -1
        self.peer = Introduced()
        self.introduced_as = b""
        """The incarnation as which this voter introduced itself."""
        self.peer_levels = (0, 0)
        """The lowest and the highest level of the metadata that the peer supports."""
        self.kind: ChannelKind = "rpc"
        self.address = ""
        self.opened = False
        self.close_reason: str | None = None
        self.last_received_at = 0.0
        self.sent_at = 0.0
        self.on_writable: Callable[[], None] = lambda: None
        self.writable = True
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._timeout: asyncio.TimerHandle | None = None
        self._send_hmac = self._receive_hmac = hmac.new(b"", digestmod="sha256")
        self._sent = self._received = 0
        self._early: list[bytes] = []
        self._on_frame: Callable[[bytes], None] = self._early.append
        self._on_lost: Callable[[str], None] | None = None

    # -- for users -----------------------------------------------------------------------

    def attach(self, on_frame: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        """Have `on_frame(payload)` called for every frame and `on_lost(reason)` once, at the end."""
        self._on_frame, self._on_lost = on_frame, on_lost
        early, self._early = self._early, []
        for payload in early:
            self.run_guarded(on_frame, payload)
        if self._transport is None:
            self._loop.call_soon(self.guarded(on_lost, self.close_reason or HUNG_UP))

    def detach(self) -> None:
        """Stop all calls of `attach`."""
        self._on_frame, self._on_lost = _ignored, _ignored

    def send(self, payload: bytes) -> None:
        """Queue one frame; ignored once closed."""
        if self._transport is None or not self.opened or self.close_reason is not None:
            return
        assert len(payload) <= MAX_FRAME_BYTES
        self.sent_at = self._loop.time()
        mac = _mac(self._send_hmac, self._sent, payload)
        self._sent += 1
        self._write(b"".join([_LENGTH.pack(len(payload) + _MAC_BYTES), payload, mac]))

    def close(self, reason: str) -> None:
        """Close at once, dropping what is queued; the end is reported from the loop."""
        if self.close_reason is None:
            self.close_reason = reason
        self._stop_timeout()
        if self._transport is not None:
            self._transport.abort()

    def crash(self, what: str) -> None:
        """See `Guard`: close and log the exception being handled, once."""
        is_first = self.close_reason is None
        self.close(f"{what} failed")
        if is_first:
            node_id = self.identity.node_id
            log.exception("controller_connection_failed", node_id=node_id, address=self.address, what=what)

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # -- asyncio -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.run_guarded(self._made, transport)

    def data_received(self, data: bytes) -> None:
        self.run_guarded(self._take, data)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.run_guarded(self.on_writable)

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timeout()
        self._transport = None
        reason = self.close_reason or (f"connection lost: {error}" if error else HUNG_UP)
        try:
            self.run_guarded(self._notify_end, reason)
        finally:
            self.close_reason = reason
            self._ended()

    # -- inside --------------------------------------------------------------------------

    def _made(self, transport: Any) -> None:
        address = transport.get_extra_info("peername")
        self.address = ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
        _keep_alive(transport.get_extra_info("socket"))
        self.last_received_at = self.sent_at = self._loop.time()
        self._begin()

    def _take(self, data: bytes) -> None:
        self.last_received_at = self._loop.time()
        self._buffer += data
        self._take_frames()

    def _take_frames(self) -> None:
        while self.close_reason is None and len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            limit = MAX_FRAME_BYTES + _MAC_BYTES if self.opened else MAX_HANDSHAKE_BYTES
            if not 0 < length <= limit:
                from raftlog.quorum.channel_tls import tls_mismatch

                self._refuse(tls_mismatch(self._buffer[0], self.opened) or _out_of_bounds(length, limit))
                return
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            if self.opened:
                self._take_frame(frame)
            else:
                self._take_handshake(frame)

    def _notify_end(self, reason: str) -> None:
        if not self.opened:
            self._failed(reason)
        elif self._on_lost is not None:
            self._on_lost(reason)

    def _begin(self) -> None:
        raise NotImplementedError

    def _take_handshake(self, frame: bytes) -> None:
        try:
            message = decode_handshake(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._refuse("it does not speak this protocol")
            return
        if isinstance(message, Refusal):
            self.close(f"refused by the peer: {message.reason[:200]}")
            return
        self._next(message, frame)

    def _next(self, message: Any, frame: bytes) -> None:
        raise NotImplementedError

    def _failed(self, reason: str) -> None:
        """Handle an end before it was open."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Handle the end, open or not."""

    def _take_frame(self, frame: bytes) -> None:
        payload, mac = frame[:-_MAC_BYTES], frame[-_MAC_BYTES:]
        if len(frame) < _MAC_BYTES or not hmac.compare_digest(
            mac, _mac(self._receive_hmac, self._received, payload)
        ):
            self.close("a frame was forged, replayed or damaged")
            return
        self._received += 1
        self._on_frame(payload)

    def _transcript(self, certificate: bytes | None, hello: bytes, challenge: bytes) -> Transcript:
        return Transcript(bound_secret(self.identity.secret, certificate), _NAME, hello, challenge)

    def _tls_session(self) -> ssl.SSLObject | None:
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    def _write(self, data: bytes) -> None:
        """Write, unless the transport is closing: uvloop raises for a closed transport, reported or not."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _say(self, message: Any) -> bytes:
        """Send one handshake message; returns its bytes."""
        frame = encode_handshake(message)
        self._write(_LENGTH.pack(len(frame)) + frame)
        return frame

    def _refuse(self, reason: str, *, tell: bool = True) -> None:
        """Send the peer the reason, and close once that is sent."""
        if self.close_reason is not None:
            return
        if tell and not self.opened:
            self._say(Refusal(reason))
        self.close_reason = reason
        self._stop_timeout()
        if self._transport is not None:
            self._transport.close()

    def _open(self, transcript: Transcript, *, dialled: bool) -> None:
        self._stop_timeout()
        keys = transcript.keys()
        self._send_hmac, self._receive_hmac = (
            hmac.new(key, digestmod="sha256") for key in (keys if dialled else keys[::-1])
        )
        self.opened = True

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def _out_of_bounds(length: int, limit: int) -> str:
    return f"a frame of {length} bytes: not a raftlog peer, or over the limit of {limit}"


def _purpose(reason: str) -> bytes:
    """Return the purpose of a verdict's proof, which covers the reason to refuse, if any."""
    return LISTENER + reason.encode()


class OutboundChannel(Channel):
    """The end that connected. `ready` completes when open, or fails with HandshakeRefused. `dial` bounds its
    handshake.
    """

    def __init__(
        self,
        identity: Identity,
        kind: ChannelKind,
        *,
        expect: int | None,
        admit: Callable[[Introduced], str | None] = lambda _peer: None,
    ) -> None:
        super().__init__(identity)
        self._admit = admit
        self.kind = kind
        self.ready: asyncio.Future[OutboundChannel] = self._loop.create_future()
        self._expect = expect
        self._hello = b""
        self._challenged: tuple[Challenge, Transcript] | None = None
        self._foreign = False

    def abandon(self) -> None:
        """Close for good: no caller waits for it, and its transport may never report its end."""
        self.close("not needed any more")
        if self.ready.done() and not self.ready.cancelled():
            self.ready.exception()  # retrieved, so that it is not reported as an unhandled exception
        self.ready.cancel()

    def _begin(self) -> None:
        identity = self.identity
        hello = Hello(
            PROTOCOL,
            self.kind,
            identity.node_id,
            identity.cluster_id() or "",
            identity.nonce(),
            identity.levels.lowest,
            identity.levels.highest,
            *directory_fields(identity.voter, self._expect, identity.directory_id),
        )
        self.introduced_as = hello.incarnation
        self._hello = self._say(hello)

    def _next(self, message: Any, frame: bytes) -> None:
        if isinstance(message, Challenge) and self._challenged is None:
            self._take_challenge(message, frame)
        elif isinstance(message, Verdict) and self._challenged is not None:
            self._take_verdict(message, *self._challenged)
        else:
            self._refuse("out of turn")

    def _take_challenge(self, challenge: Challenge, frame: bytes) -> None:
        if self._expect is not None and challenge.node_id != self._expect:
            self._refuse(f"expected node {self._expect} at {self.address}, it is node {challenge.node_id}")
            return
        unwanted = self._admit(introduced(challenge))
        if unwanted is not None:
            self._refuse(unwanted)
            return
        session = self._tls_session()
        shown = None if session is None else session.getpeercert(binary_form=True)
        transcript = self._transcript(shown, self._hello, frame)
        self._challenged = challenge, transcript
        self._say(Proof(transcript.proof(CONNECTOR)))

    def _take_verdict(self, verdict: Verdict, challenge: Challenge, transcript: Transcript) -> None:
        if not transcript.is_proof(_purpose(verdict.reason), verdict.proof):
            self._refuse(_SECRETS_DIFFER if self.identity.tls is None else _SECRETS_DIFFER_OVER_TLS)
            return
        reason = _why_not(self.identity, challenge.node_id, challenge.cluster_id)
        self._foreign = reason is not None
        self.peer_levels = (challenge.lowest_level, challenge.highest_level)
        reason = reason or why_too_old(self.identity.levels, challenge.node_id, self.peer_levels)
        if reason is not None or verdict.reason:
            self._refuse(reason or f"refused by the peer: {verdict.reason}", tell=False)
            return
        self.peer_id, self.peer = challenge.node_id, introduced(challenge)
        self._open(transcript, dialled=True)
        if not self.ready.done():
            self.ready.set_result(self)

    def _failed(self, reason: str) -> None:
        if reason == HUNG_UP and self._challenged is None:
            from raftlog.quorum.channel_tls import why_hung_up

            reason += why_hung_up(self.identity.tls)
        if not self.ready.done():
            self.ready.set_exception(ForeignCluster(reason) if self._foreign else HandshakeRefused(reason))


class InboundChannel(Channel):
    """The end that listened. `admit(hello)` may return a reason to refuse an authenticated peer."""

    def __init__(
        self,
        identity: Identity,
        *,
        admit: Callable[[Hello], str | None],
        on_open: Callable[[InboundChannel], None],
        on_failed: Callable[[InboundChannel, str], None],
        on_made: Callable[[InboundChannel], None] = lambda _channel: None,
        on_ended: Callable[[InboundChannel], None] = lambda _channel: None,
    ) -> None:
        super().__init__(identity)
        self.on_kafka: OnKafkaClient | None = None
        """Serves Kafka clients; None: they are refused."""
        self._on_made = on_made
        self._on_ended = on_ended
        self._admit = admit
        self._on_open = on_open
        self._on_failed = on_failed
        self._greeted: tuple[Hello, Transcript] | None = None

    def _begin(self) -> None:
        self._timeout = self._loop.call_later(
            ACCEPT_SECONDS, self.guarded(self._refuse, "the handshake took too long")
        )
        self._on_made(self)

    def _take_frames(self) -> None:
        if self.on_kafka is None or self._greeted is not None:
            super()._take_frames()
        elif len(self._buffer) > _LENGTH.size:
            if self._buffer[_LENGTH.size] == 0 and self._buffer[0] != _TLS_HANDSHAKE:
                self._hand_over(self.on_kafka)
            else:
                super()._take_frames()

    def _hand_over(self, on_kafka: OnKafkaClient) -> None:
        """Hand the connection to the server of Kafka clients; it no longer occupies a place of this listener."""
        assert self._transport is not None
        self._stop_timeout()
        self._ended()
        on_kafka(self._transport, bytes(self._buffer))
        self._buffer.clear()
        self._transport = None
        self.close_reason = _HANDED_OVER

    def _next(self, message: Any, frame: bytes) -> None:
        if isinstance(message, Hello) and self._greeted is None:
            self._take_hello(message, frame)
        elif isinstance(message, Proof) and self._greeted is not None:
            self._take_proof(message, *self._greeted)
        else:
            self._refuse("out of turn")

    def _take_hello(self, hello: Hello, frame: bytes) -> None:
        if hello.protocol != PROTOCOL or len(hello.nonce) != NONCE_BYTES:
            self._refuse(f"protocol {hello.protocol} is not spoken here, {PROTOCOL} is")
            return
        identity = self.identity
        challenge = Challenge(
            identity.node_id,
            identity.cluster_id() or "",
            identity.nonce(),
            identity.levels.lowest,
            identity.levels.highest,
            *directory_fields(identity.voter, hello.node_id, identity.directory_id),
        )
        self.introduced_as = challenge.incarnation
        tls, session = identity.tls, self._tls_session()
        shown = None if tls is None or session is None else tls.own_certificate(session)
        self._greeted = hello, self._transcript(shown, frame, self._say(challenge))

    def _take_proof(self, proof: Proof, hello: Hello, transcript: Transcript) -> None:
        if not transcript.is_proof(CONNECTOR, proof.proof):
            self._refuse(_SECRETS_DIFFER if self.identity.tls is None else _SECRETS_DIFFER_OVER_TLS)
            return
        self.peer_levels = (hello.lowest_level, hello.highest_level)
        reason = (
            _why_not(self.identity, hello.node_id, hello.cluster_id)
            or why_too_old(self.identity.levels, hello.node_id, self.peer_levels)
            or self._admit(hello)
            or ""
        )
        self._say(Verdict(transcript.proof(_purpose(reason)), reason))
        if reason:
            self._refuse(reason, tell=False)
            return
        self.peer_id, self.peer, self.kind = hello.node_id, introduced(hello), hello.kind
        self._open(transcript, dialled=False)
        self._on_open(self)

    def _failed(self, reason: str) -> None:
        if reason != _HANDED_OVER:  # the listener of Kafka clients reports how that ends
            self._on_failed(self, reason)

    def _ended(self) -> None:
        self._on_ended(self)


async def dial(
    identity: Identity,
    kind: ChannelKind,
    address: tuple[str, int],
    *,
    expect: int | None,
    seconds: float | None = None,
    admit: Callable[[Introduced], str | None] = lambda _peer: None,
) -> OutboundChannel:
    """Connect and authenticate, within `seconds` or HANDSHAKE_SECONDS. `admit` may return a reason to refuse a peer.

    Raise OSError (refused, unreachable, TimeoutError) or HandshakeRefused.

    The call owns the channel until it returns, and closes it on every failure.
    """
    loop = asyncio.get_running_loop()
    channel = OutboundChannel(identity, kind, expect=expect, admit=admit)
    usual_s = HANDSHAKE_SECONDS + identity.lateness.patience_s
    try:
        async with asyncio.timeout(usual_s if seconds is None else seconds):
            options = {} if identity.tls is None else await identity.tls.dial_options()
            await loop.create_connection(lambda: channel, *address, **options)
            return await channel.ready
    except ssl.SSLError as error:
        from raftlog.quorum.channel_tls import why_insecure

        channel.abandon()
        raise HandshakeRefused(why_insecure(error)) from error
    except BaseException:
        channel.abandon()
        raise
