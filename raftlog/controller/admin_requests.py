"""The rows of administrators' requests: users, ACLs, quotas, tokens, and moves of leaderships and replicas.

A node imports this with the first such request, to start faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    DelegationTokenNotFound,
    ElectionNotNeeded,
    NoReassignmentInProgress,
    ResourceNotFound,
)
from raftlog.base.machine import Decision
from raftlog.controller import (
    acls,
    client_quotas,
    decommissions,
    elections,
    leaderships,
    reassignment,
    scram_users,
    tokens,
)
from raftlog.controller.request_row import ControllerRequest, same_reply
from raftlog.metadata.causes import Cause
from raftlog.metadata.controller_api import (
    UNCLEAN,
    AclDeletion,
    AclDeletions,
    AlterClientQuotas,
    AlterReassignments,
    AlterScramCredentials,
    CreateAcls,
    CreateToken,
    DecommissionBroker,
    DeleteAcls,
    DrainBroker,
    ElectionResult,
    ElectionResults,
    ElectLeaders,
    ErrorReply,
    ExpireToken,
    ListReassignments,
    PartitionResult,
    PartitionResults,
    PartResult,
    PartResults,
    RenewToken,
    Reply,
    TokenTimes,
    TransferLeaderships,
)
from raftlog.metadata.image import MetadataImage
from raftlog.security.acls import AclFilter


def _acls_deleted(request: DeleteAcls, reply: Reply, before: MetadataImage) -> Reply:
    """Return the deletions with every ACL that matched before."""
    if not isinstance(reply, AclDeletions):
        return reply
    asked = zip(request.filters, reply.results, strict=True)
    return AclDeletions(tuple(_removed(each, deletion, before) for each, deletion in asked))


def _removed(asked: AclFilter, deletion: AclDeletion, before: MetadataImage) -> AclDeletion:
    """Return a deletion with every ACL that matched before the first attempt: any attempt may have removed it."""
    seen = (acl for acl in before.acls if asked.matches(acl))
    return AclDeletion(tuple(dict.fromkeys((*deletion.matches, *seen))))


def _token_expired(request: ExpireToken, reply: Reply, before: MetadataImage) -> Reply:
    """Return success if the token existed before and is missing now."""
    token = before.tokens.get(request.token_id)
    is_missing = isinstance(reply, ErrorReply) and reply.error_code == DelegationTokenNotFound.code
    if not is_missing or token is None or request.period_ms >= 0:
        return reply
    return TokenTimes(token.issued_ms, -1, token.max_ms)


def _reassignments_cancelled(request: AlterReassignments, reply: Reply, before: MetadataImage) -> Reply:
    """Return success for the reassignments that were under way before and are not now."""
    if not isinstance(reply, PartitionResults):
        return reply
    return PartitionResults(tuple(_cancelled(result, before) for result in reply.results))


def _cancelled(result: PartitionResult, before: MetadataImage) -> PartitionResult:
    state = before.partition(result.topic, result.partition)
    if result.error_code != NoReassignmentInProgress.code or state is None or not state.is_reassigned:
        return result
    return PartitionResult(result.topic, result.partition)


def _leaders_elected(request: ElectLeaders, reply: Reply, before: MetadataImage) -> Reply:
    """Return success for the partitions that needed an election before and do not now.

    A request for all partitions names only those that needed it.
    """
    if not isinstance(reply, ElectionResults):
        return reply
    results = [_elected(result, request.election_type, before) for result in reply.results]
    if request.partitions is None:
        named = {(each.topic, each.partition) for each in results}
        results += [
            ElectionResult(topic.name, index)
            for topic in before.topics.values()
            for index, state in enumerate(topic.partitions)
            if elections.needs_election(state, request.election_type) and (topic.name, index) not in named
        ]
    return ElectionResults(tuple(results))


def _elected(result: ElectionResult, election_type: int, before: MetadataImage) -> ElectionResult:
    state = before.partition(result.topic, result.partition)
    if result.error_code != ElectionNotNeeded.code or state is None:
        return result
    if not elections.needs_election(state, election_type):
        return result
    return ElectionResult(result.topic, result.partition)


def _credentials_altered(request: AlterScramCredentials, reply: Reply, before: MetadataImage) -> Reply:
    """Return success for the users that existed before and are missing now."""
    if not isinstance(reply, PartResults):
        return reply
    users: dict[str, bool] = {}
    for each in request.alterations:
        was_there = each.credential is not None or (each.user, each.mechanism) in before.scram
        users[each.user] = users.get(each.user, True) and was_there
    return PartResults(
        tuple(
            PartResult() if seen and result.error_code == ResourceNotFound.code else result
            for seen, result in zip(users.values(), reply.results, strict=True)
        )
    )


def _of_tokens(
    decide: Callable[[MetadataImage, Any, NodeConfig, int], Decision],
    after_retry: Callable[[Any, Any, MetadataImage], Reply] = same_reply,
) -> ControllerRequest:
    return ControllerRequest(
        lambda image, request, given: decide(image, request, given.config, given.wall_clock_ms()),
        "tokens_asked",
        since=1,
        after_retry=after_retry,
    )


ADMIN_REQUESTS: Final[Mapping[type, ControllerRequest]] = {
    CreateAcls: ControllerRequest(
        lambda image, request, given: acls.decide_create_acls(image, request, given.config),
        "acls_created",
        since=1,
    ),
    DeleteAcls: ControllerRequest(
        lambda image, request, given: acls.decide_delete_acls(image, request),
        "acls_deleted",
        since=1,
        after_retry=_acls_deleted,
    ),
    AlterScramCredentials: ControllerRequest(
        lambda image, request, given: scram_users.decide_alter_scram_credentials(
            image, request, given.config
        ),
        "credentials_altered",
        since=1,
        after_retry=_credentials_altered,
    ),
    AlterClientQuotas: ControllerRequest(
        lambda image, request, given: client_quotas.decide_alter_client_quotas(image, request, given.config),
        "quotas_altered",
        since=1,
    ),
    CreateToken: _of_tokens(tokens.decide_create_token),
    RenewToken: _of_tokens(tokens.decide_renew_token),
    ExpireToken: _of_tokens(tokens.decide_expire_token, after_retry=_token_expired),
    ElectLeaders: ControllerRequest(
        lambda image, request, given: elections.decide_elect_leaders(
            image, request, given.availability, given.index
        ),
        lambda request: Cause("unclean_asked" if request.election_type == UNCLEAN else "preferred_asked"),
        after_retry=_leaders_elected,
    ),
    AlterReassignments: ControllerRequest(
        lambda image, request, given: reassignment.decide_alter_reassignments(
            image, request, availability=given.availability, config=given.config
        ),
        "reassigned",
        after_retry=_reassignments_cancelled,
    ),
    ListReassignments: ControllerRequest(
        lambda image, request, given: reassignment.decide_list_reassignments(image, request, given.index),
        None,
    ),
    TransferLeaderships: ControllerRequest(
        lambda image, request, given: leaderships.decide_transfer_leaderships(
            image, request, given.availability
        ),
        "transferred",
    ),
    DrainBroker: ControllerRequest(
        lambda image, request, given: leaderships.decide_drain(image, request, **given.rules),
        lambda request: Cause("drained" if request.draining else "undrained", request.broker_id),
        about_another=True,
    ),
    DecommissionBroker: ControllerRequest(
        lambda image, request, given: decommissions.decide_decommission(image, request, **given.rules),
        lambda request: Cause("recommissioned" if request.ended else "decommissioned", request.broker_id),
        about_another=True,
        since=3,
    ),
}
