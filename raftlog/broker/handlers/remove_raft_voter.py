"""RemoveRaftVoter 0: make a voter of the metadata an observer (KIP-853)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import AT_ONCE, Api
from raftlog.broker.audited_changes import named_by_request
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask
from raftlog.broker.handlers.add_raft_voter import check_cluster_id
from raftlog.metadata.controller_api import Done, RemoveVoter
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.REMOVE_RAFT_VOTER


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the quorum's leader remove the voter; the answer comes at the commit."""
    make = response_builders(API_KEY, request.api_version)
    check_cluster_id(broker, message.cluster_id)
    if message.voter_id < 0 or message.voter_directory_id is None or not message.voter_directory_id.int:
        raise InvalidRequest("Remove voter request didn't include a valid voter")
    await ask(broker, RemoveVoter(message.voter_id, message.voter_directory_id), Done)
    return make.RemoveRaftVoterResponse(error_code=0, error_message=None)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=named_by_request("voter", "voter_id"),
    controllers=True,
)
