"""The causes that a request's batch carries. Not: what is decided."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from raftlog.metadata.causes import Cause
from raftlog.metadata.controller_api import (
    UNCLEAN,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    AlterScramCredentials,
    BrokerHeartbeat,
    ByClient,
    CreateAcls,
    CreatePartitions,
    CreateToken,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ExpireToken,
    RegisterBroker,
    RenewToken,
    Request,
    TransferLeaderships,
    UnregisterBroker,
    UpdateFeatures,
)

Causes = tuple[Cause, ...]

_OF_BROKERS: Final[dict[type, str]] = {
    RegisterBroker: "registered",
    AlterPartition: "proposed",
    UnregisterBroker: "unregistered",
}
_OF_CLIENTS: Final[dict[type, str]] = {
    AlterReassignments: "reassigned",
    TransferLeaderships: "transferred",
    CreateTopics: "topics_created",
    DeleteTopics: "topics_deleted",
    CreatePartitions: "partitions_added",
    AlterConfigs: "configs_asked",
    UpdateFeatures: "features_updated",
    CreateAcls: "acls_created",
    DeleteAcls: "acls_deleted",
    AlterScramCredentials: "credentials_altered",
    CreateToken: "tokens_asked",
    RenewToken: "tokens_asked",
    ExpireToken: "tokens_asked",
    AlterClientQuotas: "quotas_altered",
}


def causes_of(request: Request) -> Causes:
    """Return why a request makes changes, if it does, and its principal."""
    by = request.by if isinstance(request, ByClient) else ""
    return tuple(structs.replace(each, by=by) if by else each for each in _causes_of(request))


def _causes_of(request: Request) -> Causes:
    kind = _OF_BROKERS.get(type(request))
    if kind is not None:
        return (Cause(kind, request.broker_id),)  # type: ignore[union-attr]
    match request:
        case BrokerHeartbeat():
            return (_of_heartbeat(request),)
        case ElectLeaders():
            return (Cause("unclean_asked" if request.election_type == UNCLEAN else "preferred_asked"),)
        case DrainBroker():
            return (Cause("drained" if request.draining else "undrained", request.broker_id),)
    kind = _OF_CLIENTS.get(type(request))
    return (Cause(kind),) if kind is not None else ()


def _of_heartbeat(request: BrokerHeartbeat) -> Cause:
    if request.want_shutdown:
        kind = "shutdown"
    elif request.failed_directory_ids:
        kind = "disk_failed"
    elif request.want_fence:
        kind = "asked_to_leave"
    else:
        kind = "damage_reported" if request.damaged else "caught_up"
    return Cause(kind, request.broker_id)
