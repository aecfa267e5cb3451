"""SaslHandshake 1: a client chooses its authentication mechanism (KIP-12, KIP-43).

Version 0 is listed, and refused. Old versions of librdkafka (such as kcat's in Debian 12) need it in the list to log
in, although they then send version 1.
"""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, IllegalSaslState, KafkaError
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.late_refusal import hold_up
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import BeforeLogin

API_KEY: Final = ApiKey.SASL_HANDSHAKE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Begin a login, or list the supported mechanisms after a delay; the dispatcher then closes the connection."""
    connection = request.connection
    login = None if connection is None else connection.login
    error_code, mechanisms = NONE, () if login is None else login.mechanisms
    try:
        if login is None:
            raise IllegalSaslState("this listener has no SASL authentication")
        if request.api_version == 0:
            login.refuse_version_0()
        login.begin(message.mechanism)
    except KafkaError as error:
        error_code = error.code
        if connection is not None and login is not None and login.failed:
            await hold_up(broker, connection)
    make = response_builders(API_KEY, request.api_version)
    return make.SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms)


API: Final = Api(
    key=API_KEY, handle=handle, needs=BeforeLogin(), max_parts=AT_ONCE, audit=NoChange(), controllers=False
)
