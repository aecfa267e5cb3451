"""The listening side of the broker handshake (`links.peer_auth`), on a client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.base.errors import InvalidRequest
from raftlog.base.handshake import NONCE_BYTES
from raftlog.broker.links.peer_auth import (
    ADMIN_HELLO,
    API_KEY,
    FIRST_ASKING_HELLO,
    FRAME_BYTES,
    HELLO,
    LAST_HELLO,
    VERSION,
    ServerHandshake,
    framed,
)
from raftlog.protocol.codec import RequestHeader, decode_header
from raftlog.security.acls import ADMIN_API

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection


def dispatch_in_hall(connection: Connection, frame: memoryview) -> None:
    """Handle a handshake step of a connection in the hall (`admission`); refuse any other request.

    `frame` is without its length. Never raises.
    """
    try:
        header, position = decode_header(frame)
        if header.api_key == API_KEY and not connection.to_controller:
            connection.api_key = header.api_key
            answer(connection, header, frame, position)
        else:
            connection.server.admission.refuse(connection)
    except InvalidRequest as error:
        connection.close("request_malformed", reason=error.message)
    except Exception:
        connection.crash("handshake")


def answer(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Serve one step of the handshake.

    An invalid proof closes the connection, a valid proof the broker's older connections.
    """
    server = connection.server
    if len(frame) > FRAME_BYTES:
        raise InvalidRequest(
            f"a step of the peer handshake has at most {FRAME_BYTES} bytes, not {len(frame)}"
        )
    body = bytes(frame[position:])
    step = body[0] if body else 0
    if header.api_version != VERSION:
        raise InvalidRequest(
            f"version {header.api_version} of the peer handshake is not supported, only {VERSION}"
        )
    is_first = connection.handshake is None and connection.peer is None
    if is_first and (step == HELLO or FIRST_ASKING_HELLO <= step <= LAST_HELLO):
        connection.handshake = ServerHandshake(
            body,
            secret=server.peer_secret(connection),
            broker_id=server.config.node_id,
            nonce=server.nonce(NONCE_BYTES),
        )
        connection.responses.add((framed(connection.handshake.challenge, header.correlation_id),))
    elif connection.handshake is not None and connection.handshake.is_proof(body):
        handshake, connection.handshake = connection.handshake, None
        _judge(connection, header, handshake, body)
    else:
        raise InvalidRequest("a step of the peer handshake is out of order or malformed")


def _judge(connection: Connection, header: RequestHeader, handshake: ServerHandshake, proof: bytes) -> None:
    peer = handshake.admit(proof)
    if peer is not None and not connection.server.takes_node(handshake.purpose):
        connection.abort()
        return
    refused = ""
    if peer is None:
        refused = "it has another raftlog.cluster.secret, or belongs to another cluster"
    elif not connection.server.take_peer(connection, peer, handshake.purpose):
        refused = "it has a newer connection"
    else:
        connection.peer, connection.purpose = peer, handshake.purpose
        connection.is_follower = handshake.purpose == HELLO
        if handshake.purpose == ADMIN_HELLO:
            connection.principal = ADMIN_API
    verdict = handshake.refusal() if refused else handshake.welcome()
    connection.responses.add((framed(verdict, header.correlation_id),))
    if refused:
        connection.close("peer_refused", reason=refused)
