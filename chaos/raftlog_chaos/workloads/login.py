"""A login on a connection of `raw_client`: SaslHandshake and SaslAuthenticate with SCRAM."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.protocol.message_builders import request_builders
from raftlog.security.scram import salted
from raftlog.security.scram_client import ScramClient, ServerUnproven
from raftlog_chaos.workloads.raw_client import Client, RawConnection

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

salted_password: Final = lru_cache(maxsize=256)(salted)
"""`salted`, which takes milliseconds, with a cache."""


class OddAnswer(Exception):
    """The broker's answer to a step of the login violates the protocol; the message says how."""


async def log_in(
    client: Client,
    wire: RawConnection,
    scram: ScramClient,
    *,
    mechanism: str,
    between: Callable[[], Awaitable[None]],
) -> bool:
    """Return whether the broker lets the user in. `between` is awaited once the login is half done.

    Raises what `AWAY` lists, and OddAnswer.
    """
    make = request_builders(SASL_HANDSHAKE, HANDSHAKE_VERSION)
    message = make.SaslHandshakeRequest(mechanism=mechanism)
    answer = await client.answer(wire, wire.send(SASL_HANDSHAKE, message, HANDSHAKE_VERSION))
    if answer.error_code:
        raise OddAnswer(f"{mechanism} was refused with error {int(answer.error_code)}")
    answer = await _say(client, wire, scram.first())
    if answer.error_code:
        raise OddAnswer(f"a first message was refused with error {int(answer.error_code)}")
    await between()
    try:
        proof = scram.final(bytes(answer.auth_bytes))
    except ServerUnproven as error:
        raise OddAnswer(str(error)) from None
    answer = await _say(client, wire, proof)
    if int(answer.error_code) == SaslAuthenticationFailed.code:
        return False
    if answer.error_code:
        raise OddAnswer(f"a final message was refused with error {int(answer.error_code)}")
    try:
        scram.verify(bytes(answer.auth_bytes))
    except ServerUnproven:
        raise OddAnswer("the broker let a user in whose credential it does not know") from None
    return True


async def _say(client: Client, wire: RawConnection, message: bytes) -> Any:
    make = request_builders(SASL_AUTHENTICATE, AUTHENTICATE_VERSION)
    asked = make.SaslAuthenticateRequest(auth_bytes=message)
    return await client.answer(wire, wire.send(SASL_AUTHENTICATE, asked, AUTHENTICATE_VERSION))
