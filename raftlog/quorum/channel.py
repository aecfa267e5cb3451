"""One mutually authenticated, framed connection between two nodes of a cluster.

Handshake: hello (who, what for, a nonce) → challenge (who, a nonce, proof) → proof → welcome, or at any point a refusal
with its reason. A proof is HMAC-SHA256 with the cluster secret over the whole transcript, so both sides know the
secret, agree on the cluster id, and no recorded handshake is worth anything. From the transcript each direction gets
its own key; every frame carries a MAC over its sequence number and bytes, so that a frame can be neither forged, nor
replayed, nor left out. It is authentication, not secrecy: run it over a network you would run Kafka's PLAINTEXT on.

Frame: length u32 of what follows, payload, 16 bytes of MAC (none during the handshake).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from secrets import token_bytes
from typing import Any, Final, Literal

import msgspec

Kind = Literal["raft", "rpc", "heartbeat", "observe"]

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_HANDSHAKE_BYTES: Final = 4 * 1024
HANDSHAKE_SECONDS: Final = 3.0
NONCE_BYTES: Final = 32
_MAC_BYTES: Final = 16
_PROTOCOL: Final = 1
_LENGTH: Final = struct.Struct(">I")
_SEQUENCE: Final = struct.Struct(">Q")


class Refused(Exception):
    """One side turned the other away; the message says why."""


class ForeignCluster(Refused):
    """The peer knows the secret, but belongs to another cluster."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="raftlog hello"):
    protocol: int
    kind: Kind
    node_id: int
    cluster_id: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="raftlog challenge"):
    node_id: int
    cluster_id: str
    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="raftlog proof"):
    proof: bytes


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="raftlog welcome"):
    pass


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag="raftlog refusal"):
    reason: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello | Challenge | Proof | Welcome | Refusal).decode


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are to peers. `cluster_id` may be unknown (None) until the first metadata is there."""

    node_id: int
    secret: bytes
    cluster_id: Callable[[], str | None]
    random: Random | None = None
    """Nonces come from here in simulations, else from the operating system."""

    def nonce(self) -> bytes:
        return self.random.randbytes(NONCE_BYTES) if self.random else token_bytes(NONCE_BYTES)


def _why_not(identity: Identity, node_id: int, cluster_id: str) -> str | None:
    """Return the reason to refuse an authenticated peer, or None."""
    ours = identity.cluster_id() or ""
    if ours and cluster_id and ours != cluster_id:
        return f"node {node_id} belongs to cluster {cluster_id}, node {identity.node_id} to cluster {ours}"
    return None


def _keep_alive(sock: Any) -> None:
    """Have the kernel find out about a peer whose machine is gone, in about 20 s."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def _ignored(_told: object) -> None:
    pass


class Channel(asyncio.Protocol):
    """One end. Subclasses say what follows each handshake message; both ends are alike once open.

    Once open it is given to its user, who says by `attach` who gets its frames and its end; frames that came before
    wait for that.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.peer_id = -1
        self.kind: Kind = "rpc"
        self.address = ""
        self.opened = False
        self.closed_because: str | None = None
        self.heard_at = 0.0
        self.sent_at = 0.0
        self.on_writable: Callable[[], None] = lambda: None
        self.writable = True
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._transcript = hashlib.sha256()
        self._timeout: asyncio.TimerHandle | None = None
        self._send_key = self._receive_key = b""
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
            on_frame(payload)
        if self._transport is None:
            self._loop.call_soon(on_lost, self.closed_because or "closed by the peer")

    def detach(self) -> None:
        """Have nobody called any more."""
        self._on_frame, self._on_lost = _ignored, _ignored

    def send(self, payload: bytes) -> None:
        """Queue one frame; silently nothing once closed."""
        if self._transport is None or not self.opened or self.closed_because is not None:
            return
        assert len(payload) <= MAX_FRAME_BYTES
        self.sent_at = self._loop.time()
        mac = self._mac(self._send_key, self._sent, payload)
        self._sent += 1
        self._transport.write(b"".join([_LENGTH.pack(len(payload) + _MAC_BYTES), payload, mac]))

    def close(self, reason: str) -> None:
        """Close at once, dropping what is queued; the end is told from the loop."""
        if self.closed_because is None:
            self.closed_because = reason
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # -- asyncio -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername")
        self.address = ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
        _keep_alive(transport.get_extra_info("socket"))
        self._timeout = self._loop.call_later(HANDSHAKE_SECONDS, self._refuse, "the handshake took too long")
        self.heard_at = self.sent_at = self._loop.time()
        self._begin()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self._buffer += data
        while self.closed_because is None and len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            limit = MAX_FRAME_BYTES + _MAC_BYTES if self.opened else MAX_HANDSHAKE_BYTES
            if not 0 < length <= limit:
                self._refuse(f"a frame of {length} bytes: not a raftlog peer, or over the limit of {limit}")
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

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timeout()
        self._transport = None
        reason = self.closed_because or (f"connection lost: {error}" if error else "closed by the peer")
        self.closed_because = reason
        if not self.opened:
            self._failed(reason)
        elif self._on_lost is not None:
            self._on_lost(reason)
        self._ended()

    # -- inside --------------------------------------------------------------------------

    def _begin(self) -> None:
        raise NotImplementedError

    def _take_handshake(self, frame: bytes) -> None:
        try:
            message = _decode(frame)
        except msgspec.MsgspecError:
            self._refuse("it does not speak this protocol")
            return
        if isinstance(message, Refusal):
            self.close(f"refused by the peer: {message.reason[:200]}")
            return
        self._next(message, frame)

    def _next(self, message: Any, frame: bytes) -> None:
        raise NotImplementedError

    def _failed(self, reason: str) -> None:
        """It ended before it was open."""
        raise NotImplementedError

    def _ended(self) -> None:
        """It ended, open or not."""

    def _take_frame(self, frame: bytes) -> None:
        payload, mac = frame[:-_MAC_BYTES], frame[-_MAC_BYTES:]
        if len(frame) < _MAC_BYTES or not hmac.compare_digest(
            mac, self._mac(self._receive_key, self._received, payload)
        ):
            self.close("a frame was forged, replayed or damaged")
            return
        self._received += 1
        self._on_frame(payload)

    @staticmethod
    def _mac(key: bytes, sequence: int, payload: bytes) -> bytes:
        return hmac.digest(key, _SEQUENCE.pack(sequence) + payload, "sha256")[:_MAC_BYTES]

    def _say(self, message: Any) -> bytes:
        """Send one handshake message; returns its bytes."""
        frame = _encode(message)
        if self._transport is not None:
            self._transport.write(_LENGTH.pack(len(frame)) + frame)
        return frame

    def _refuse(self, reason: str) -> None:
        """Tell the peer why, and close once that is sent."""
        if self.closed_because is not None:
            return
        if not self.opened:
            self._say(Refusal(reason))
        self.closed_because = reason
        if self._transport is not None:
            self._transport.close()

    def _prove(self, role: bytes) -> bytes:
        """Return this moment's proof for a role; both ends compute the same."""
        return hmac.digest(self.identity.secret, role + self._transcript.digest(), "sha256")

    def _open(self, *, dialled: bool) -> None:
        self._stop_timeout()
        keys = self._prove(b"dialler's key"), self._prove(b"listener's key")
        self._send_key, self._receive_key = keys if dialled else keys[::-1]
        self.opened = True

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


class Dialled(Channel):
    """The end that connected. `ready` completes when open, or fails with Refused."""

    def __init__(self, identity: Identity, kind: Kind, *, expect: int | None) -> None:
        super().__init__(identity)
        self.kind = kind
        self.ready: asyncio.Future[Dialled] = self._loop.create_future()
        self._expect = expect
        self._foreign = False

    def _begin(self) -> None:
        identity = self.identity
        hello = Hello(_PROTOCOL, self.kind, identity.node_id, identity.cluster_id() or "", identity.nonce())
        self._transcript.update(self._say(hello))

    def _next(self, message: Any, frame: bytes) -> None:
        if isinstance(message, Challenge):
            self._take_challenge(message)
        elif isinstance(message, Welcome) and self.peer_id >= 0:
            self._open(dialled=True)
            if not self.ready.done():
                self.ready.set_result(self)
        else:
            self._refuse("out of turn")

    def _take_challenge(self, challenge: Challenge) -> None:
        bare = Challenge(challenge.node_id, challenge.cluster_id, challenge.nonce, b"")
        self._transcript.update(_encode(bare))
        if not hmac.compare_digest(challenge.proof, self._prove(b"listener")):
            self._refuse("the cluster secrets differ (raftlog.cluster.secret)")
            return
        if self._expect is not None and challenge.node_id != self._expect:
            self._refuse(f"expected node {self._expect} at {self.address}, it is node {challenge.node_id}")
            return
        reason = _why_not(self.identity, challenge.node_id, challenge.cluster_id)
        if reason is not None:
            self._foreign = True
            self._refuse(reason)
            return
        self.peer_id = challenge.node_id
        self._say(Proof(self._prove(b"dialler")))

    def _failed(self, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ForeignCluster(reason) if self._foreign else Refused(reason))


class Accepted(Channel):
    """The end that listened. `admit(hello)` may return a reason to refuse an authenticated peer."""

    def __init__(
        self,
        identity: Identity,
        *,
        admit: Callable[[Hello], str | None],
        on_open: Callable[[Accepted], None],
        on_failed: Callable[[Accepted, str], None],
        on_ended: Callable[[Accepted], None] = lambda _channel: None,
    ) -> None:
        super().__init__(identity)
        self._on_ended = on_ended
        self._admit = admit
        self._on_open = on_open
        self._on_failed = on_failed
        self._hello: Hello | None = None

    def _begin(self) -> None:
        pass

    def _next(self, message: Any, frame: bytes) -> None:
        if isinstance(message, Hello) and self._hello is None:
            self._take_hello(message, frame)
        elif isinstance(message, Proof) and self._hello is not None:
            self._take_proof(message)
        else:
            self._refuse("out of turn")

    def _take_hello(self, hello: Hello, frame: bytes) -> None:
        if hello.protocol != _PROTOCOL or len(hello.nonce) != NONCE_BYTES:
            self._refuse(f"protocol {hello.protocol} is not spoken here, {_PROTOCOL} is")
            return
        self._hello = hello
        identity = self.identity
        bare = Challenge(identity.node_id, identity.cluster_id() or "", identity.nonce(), b"")
        self._transcript.update(frame)
        self._transcript.update(_encode(bare))
        self._say(msgspec.structs.replace(bare, proof=self._prove(b"listener")))

    def _take_proof(self, proof: Proof) -> None:
        hello = self._hello
        assert hello is not None
        if not hmac.compare_digest(proof.proof, self._prove(b"dialler")):
            self._refuse("the cluster secrets differ (raftlog.cluster.secret)")
            return
        reason = _why_not(self.identity, hello.node_id, hello.cluster_id) or self._admit(hello)
        if reason is not None:
            self._refuse(reason)
            return
        self.peer_id, self.kind = hello.node_id, hello.kind
        self._say(Welcome())
        self._open(dialled=False)
        self._on_open(self)

    def _failed(self, reason: str) -> None:
        self._on_failed(self, reason)

    def _ended(self) -> None:
        self._on_ended(self)


async def dial(
    identity: Identity,
    kind: Kind,
    address: tuple[str, int],
    *,
    expect: int | None,
    seconds: float = HANDSHAKE_SECONDS,
) -> Dialled:
    """Connect and authenticate. Raises OSError (refused, unreachable, TimeoutError) or Refused."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        _, channel = await loop.create_connection(lambda: Dialled(identity, kind, expect=expect), *address)
        try:
            return await channel.ready
        except asyncio.CancelledError:
            channel.close("not needed any more")
            raise
