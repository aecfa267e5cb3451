"""FindCoordinator 0-6: which broker coordinates a group or a transactional id; several at once since v4 (KIP-699).

Share partitions have coordinators too, since v6 (KIP-932). Only brokers look for them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from raftlog.base.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import demand
from raftlog.metadata.features import check_share_version
from raftlog.metadata.image import Endpoint
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.FIND_COORDINATOR

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_BATCHED_VERSION: Final = 4
FIRST_SHARE_VERSION: Final = 6


class CoordinatorLookup(NamedTuple):
    key: str
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per key; a key without a coordinator has its own error."""
    version = request.api_version
    key_type = getattr(message, "key_type", GROUP)
    if version < FIRST_BATCHED_VERSION:
        found = await _find(broker, request, key_type, message.key)
        fields = found._asdict()
        del fields["key"]
        return build_response(API_KEY, version, **fields)
    make = response_builders(API_KEY, version)

    async def coordinator(key: str) -> Any:
        return make.Coordinator(**(await _find(broker, request, key_type, key))._asdict())

    keys = dict.fromkeys(message.coordinator_keys)
    return make.FindCoordinatorResponse(coordinators=(coordinator(each) for each in keys))


async def _find(broker: BrokerContext, request: RequestContext, key_type: int, key: str) -> CoordinatorLookup:
    try:
        node_id = await _find_broker(broker, request, key_type, key)
        endpoint = _endpoint(broker, request, node_id)
    except KafkaError as error:
        if broker.silent_members and request.connection is not None:
            request.connection.finish(answers_all=True)  # it needs another broker
        return CoordinatorLookup(key, error_code=error.code, error_message=error.message)
    return CoordinatorLookup(key, node_id, endpoint.host, endpoint.port)


async def _find_broker(broker: BrokerContext, request: RequestContext, key_type: int, key: str) -> int:
    if key_type == GROUP:
        demand(broker, request, Operation.DESCRIBE, ResourceType.GROUP, key)
        return await broker.groups.find(key)
    if key_type == TRANSACTION:
        demand(broker, request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        return await broker.transactions.find(key)
    if key_type != SHARE or request.api_version < FIRST_SHARE_VERSION:
        raise InvalidRequest(f"coordinators of type {key_type} are not supported in this version")
    demand(broker, request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    from raftlog.coordinator.share_state.share_state import read_share_partition_key  # few clusters have any

    share_partition = read_share_partition_key(key)
    check_share_version(broker.image())
    return await broker.share_states.find(share_partition)


def _endpoint(broker: BrokerContext, request: RequestContext, node_id: int) -> Endpoint:
    state = broker.image().brokers.get(node_id)
    endpoint = None if state is None or state.fenced else state.endpoint(request.listener)
    if endpoint is None:
        raise CoordinatorNotAvailable(f"broker {node_id} cannot be reached on listener {request.listener}")
    return endpoint


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (
            Right(Operation.DESCRIBE, ResourceType.GROUP),
            Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
            Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
        )
    ),
    max_parts=NAMES,
    audit=NoChange(),
    controllers=False,
    prepared=(6, 2),
)
