"""Decides administrators' requests: users, ACLs, quotas, tokens, and moves of leaderships and replicas.

A controller imports this with the first such request, to start faster.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidRequest
from raftlog.base.machine import Decision
from raftlog.controller import (
    acls,
    client_quotas,
    elections,
    leaderships,
    reassignment,
    scram_users,
    tokens,
)
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.leader_and_isr import UncleanRule
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.controller_api import (
    AlterClientQuotas,
    AlterReassignments,
    AlterScramCredentials,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    DrainBroker,
    ElectLeaders,
    ExpireToken,
    ListReassignments,
    RenewToken,
    Request,
    TransferLeaderships,
)
from raftlog.metadata.image import MetadataImage


class Circumstances(NamedTuple):
    """The controller's state that a decision needs. `now_ms` is its wall clock, for tokens."""

    config: NodeConfig
    now_ms: int
    availability: BrokerAvailability
    unclean: UncleanRule
    partitions: PartitionIndex


def decide_admin_request(image: MetadataImage, request: Request, given: Circumstances) -> Decision:
    """Return the decision about one request. Raise KafkaError; InvalidRequest for any other request."""
    match request:
        case CreateAcls():
            return acls.decide_create_acls(image, request, given.config)
        case DeleteAcls():
            return acls.decide_delete_acls(image, request)
        case AlterScramCredentials():
            return scram_users.decide_alter_scram_credentials(image, request, given.config)
        case AlterClientQuotas():
            return client_quotas.decide_alter_client_quotas(image, request, given.config)
        case CreateToken():
            return tokens.decide_create_token(image, request, given.config, given.now_ms)
        case RenewToken():
            return tokens.decide_renew_token(image, request, given.config, given.now_ms)
        case ExpireToken():
            return tokens.decide_expire_token(image, request, given.config, given.now_ms)
        case _:
            return _decide_move(image, request, given)


def _decide_move(image: MetadataImage, request: Request, given: Circumstances) -> Decision:
    """Return the decision about a request that moves leaderships or replicas."""
    match request:
        case ElectLeaders():
            return elections.decide_elect_leaders(image, request, given.availability)
        case AlterReassignments():
            return reassignment.decide_alter_reassignments(image, request, given.availability, given.config)
        case ListReassignments():
            return reassignment.decide_list_reassignments(image, request, given.partitions)
        case TransferLeaderships():
            return leaderships.decide_transfer_leaderships(image, request, given.availability)
        case DrainBroker():
            return leaderships.decide_drain(
                image, request, availability=given.availability, unclean=given.unclean, index=given.partitions
            )
        case _:
            raise InvalidRequest(f"{type(request).__name__} is not the controller's to answer")
