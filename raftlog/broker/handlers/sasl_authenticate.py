"""SaslAuthenticate 0-2: the messages of a login, in the client's mechanism (KIP-152, KIP-368)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, IllegalSaslState, KafkaError, SaslAuthenticationFailed
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.late_refusal import hold_up
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import BeforeLogin

API_KEY: Final = ApiKey.SASL_AUTHENTICATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Handle one message.

    The response to a failed login is delayed, so that guessing is slow, and the connection is closed.
    """
    connection = request.connection
    make = response_builders(API_KEY, request.api_version)
    if connection is None or connection.login is None:
        return _refusal(make, IllegalSaslState("this listener asks for no login"))
    try:
        step = await connection.login.authenticate(bytes(message.auth_bytes))
    except SaslAuthenticationFailed as error:
        await hold_up(broker, connection)
        return _refusal(make, error)
    except KafkaError as error:
        return _refusal(make, error)
    if step.refused is not None:
        await hold_up(broker, connection)
    lifetime_ms = 0
    if step.principal is not None:
        lifetime_ms = connection.on_login(step.principal)
    return make.SaslAuthenticateResponse(
        error_code=NONE, error_message=None, auth_bytes=step.answer, session_lifetime=lifetime_ms
    )


def _refusal(make: Any, error: KafkaError) -> Any:
    return make.SaslAuthenticateResponse(
        error_code=error.code, error_message=error.message, auth_bytes=b"", session_lifetime=0
    )


API: Final = Api(
    key=API_KEY, handle=handle, needs=BeforeLogin(), max_parts=AT_ONCE, audit=NoChange(), controllers=False
)
