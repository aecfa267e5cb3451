"""AddRaftVoter 0-1: make a controller that follows the metadata a voter (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from raftlog.base.errors import InconsistentClusterId, InvalidRequest
from raftlog.broker.api import AT_ONCE, Api
from raftlog.broker.audited_changes import named_by_request
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import MAX_TIMEOUT_S, MIN_TIMEOUT_S, ask
from raftlog.metadata.controller_api import AddVoter, Done
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.ADD_RAFT_VOTER


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the quorum's leader catch the node up, and add it. The answer comes at the commit, or once appended."""
    make = response_builders(API_KEY, request.api_version)
    check_cluster_id(broker, message.cluster_id)
    host, port = _endpoint(broker, message)
    timeout_ms = round(min(max(message.timeout, MIN_TIMEOUT_S * 1000), MAX_TIMEOUT_S * 1000))  # as `ask`
    until_committed = getattr(message, "ack_when_committed", True)  # since version 1
    asked = AddVoter(message.voter_id, message.voter_directory_id, host, port, timeout_ms, until_committed)
    await ask(broker, asked, Done, timeout_ms=timeout_ms)
    return make.AddRaftVoterResponse(error_code=0, error_message=None)


def check_cluster_id(broker: BrokerContext, asked: str | None) -> None:
    """Raise InconsistentClusterId for the id of another cluster."""
    ours = broker.image().cluster_id
    if asked is not None and asked != ours:
        raise InconsistentClusterId(f"the request is for cluster {asked[:40]}, and this is {ours}")


def _endpoint(broker: BrokerContext, message: Any) -> tuple[str, int]:
    """Return the address of the node's controller listener."""
    if message.voter_id < 0 or message.voter_directory_id is None or not message.voter_directory_id.int:
        raise InvalidRequest("Add voter request didn't include a valid voter")
    return default_endpoint(broker, message.listeners, "Add")


def default_endpoint(broker: BrokerContext, listeners: Iterable[Any], what: str) -> tuple[str, int]:
    """Return the address of the controller listener among the listeners of a request. Raise InvalidRequest."""
    wanted = next(iter(broker.config.controller_listener_names), "CONTROLLER")
    for each in listeners:
        if each.name.upper() == wanted.upper():
            return each.host, each.port
    raise InvalidRequest(
        f"{what} voter request didn't include the endpoint ({wanted}) of the default controller listener"
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=named_by_request("voter", "voter_id"),
    controllers=True,
)
