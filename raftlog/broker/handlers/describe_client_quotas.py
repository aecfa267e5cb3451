"""DescribeClientQuotas 0-1: there are no quotas of clients, and none can be set (KIP-546).

`kafka-configs` asks for the quotas of users whenever it describes users.
"""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders

API_KEY: Final = ApiKey.DESCRIBE_CLIENT_QUOTAS


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer that nothing matches."""
    make = response_builders(API_KEY, request.api_version)
    return make.DescribeClientQuotasResponse(throttle_time=0, error_code=NONE, error_message=None, entries=())
