"""UpdateRaftVoter 0: a voter has moved to another address (KIP-853). Only controllers serve it, as in Kafka."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnsupportedVersion,
)
from raftlog.broker.api import AT_ONCE, Api
from raftlog.broker.audited_changes import named_by_request
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask
from raftlog.broker.handlers.add_raft_voter import check_cluster_id, default_endpoint
from raftlog.metadata.controller_api import Done, UpdateVoter
from raftlog.metadata.features import KRAFT_VERSION, finalized_level
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.UPDATE_RAFT_VOTER


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the quorum's leader, which is this node, replace the voter's address. The answer comes once appended."""
    make = response_builders(API_KEY, request.api_version)
    quorum = None
    try:
        check_cluster_id(broker, message.cluster_id)
        quorum = await ask(broker, DescribeQuorum(), QuorumDescription)
        _check_leader(broker, quorum, message.current_leader_epoch)
        host, port = _endpoint(broker, message)
        await ask(broker, UpdateVoter(message.voter_id, message.voter_directory_id, host, port), Done)
    except KafkaError as error:
        return _response(make, quorum, error.code)
    return _response(make, quorum, 0)


def _check_leader(broker: BrokerContext, quorum: QuorumDescription, epoch: int) -> None:
    """Raise as KafkaRaftClient does for requests to leaders."""
    if epoch < quorum.leader_epoch:
        raise FencedLeaderEpoch(f"the leader epoch is {quorum.leader_epoch}")
    if epoch > quorum.leader_epoch:
        raise UnknownLeaderEpoch(f"the leader epoch is {quorum.leader_epoch}")
    if quorum.leader_id != broker.config.node_id:
        raise NotLeaderOrFollower(f"the leader is node {quorum.leader_id}")


def _endpoint(broker: BrokerContext, message: Any) -> tuple[str, int]:
    """Return the voter's new address, after Kafka's checks in its order."""
    if message.voter_id < 0 or message.voter_directory_id is None or not message.voter_directory_id.int:
        raise InvalidRequest("Update voter request didn't include a valid voter")
    level, supported = finalized_level(broker.image(), KRAFT_VERSION), message.k_raft_version_feature
    if level < 1:
        raise UnsupportedVersion("raise kraft.version to 1 to change the voters")
    if not supported.min_supported_version <= level <= supported.max_supported_version:
        raise InvalidRequest(f"the voter does not support kraft.version {level}")
    return default_endpoint(broker, message.listeners, "Update")


def _response(make: Any, quorum: QuorumDescription | None, code: int) -> Any:
    leader, epoch, (host, port) = -1, -1, ("", 0)
    if quorum is not None:
        leader, epoch = quorum.leader_id, quorum.leader_epoch
        host, port = quorum.addresses.get(leader, (host, port))
    return make.UpdateRaftVoterResponse(
        error_code=code,
        current_leader=make.CurrentLeader(leader_id=leader, leader_epoch=epoch, host=host, port=port),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded((Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)),
    max_parts=AT_ONCE,
    audit=named_by_request("voter", "voter_id"),
    controllers=True,
)
