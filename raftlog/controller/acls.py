"""CreateAcls and DeleteAcls (KIP-140): each ACL and each filter succeeds or fails on its own."""

from __future__ import annotations

from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.base.machine import Decision
from raftlog.base.principals import parse_principal
from raftlog.controller.decisions import BatchLimit, LogEvent
from raftlog.controller.metadata_limits import MetadataLimits
from raftlog.metadata.controller_api import (
    AclDeletion,
    AclDeletions,
    CreateAcls,
    DeleteAcls,
    PartResult,
    PartResults,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import AclCreated, AclRemoved
from raftlog.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType

MAX_NAME_CHARS: Final = 1_024
"""Characters of an ACL's resource name, principal and host."""


def decide_create_acls(image: MetadataImage, request: CreateAcls, config: NodeConfig) -> Decision:
    """Create ACLs; an existing ACL is not an error, as in Kafka."""
    limits = MetadataLimits(image, config)
    created: dict[Acl, bool] = {}
    results = []
    for acl in request.acls:
        try:
            check_acl(acl)
            if acl not in image.acls and acl not in created:
                limits.add_acl(acl)
                created[acl] = True
        except KafkaError as error:
            results.append(PartResult(error.code, error.message))
            continue
        results.append(PartResult())
    events = tuple(LogEvent("info", "acl_created", {"acl": str(acl)}) for acl in created)
    return Decision(tuple(map(AclCreated, created)), PartResults(tuple(results)), events)


def decide_delete_acls(image: MetadataImage, request: DeleteAcls) -> Decision:
    """Remove the ACLs that filters match; an ACL that two filters match is in the results of both."""
    removed: dict[Acl, bool] = {}
    deletions = []
    for asked in request.filters:
        matches = tuple(acl for acl in image.acls if asked.matches(acl))
        removed.update(dict.fromkeys(matches, True))
        deletions.append(AclDeletion(matches))
    BatchLimit().check(others=len(removed))
    events = tuple(LogEvent("info", "acl_removed", {"acl": str(acl)}) for acl in removed)
    return Decision(tuple(map(AclRemoved, removed)), AclDeletions(tuple(deletions)), events)


def check_acl(acl: Acl) -> None:
    """Raise InvalidRequest for an invalid ACL; the message names the field."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequest(
            f"resource_type: an ACL has exactly one resource type, not {acl.resource_type.name}"
        )
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"pattern_type: must be LITERAL or PREFIXED, not {acl.pattern_type.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise InvalidRequest(f"operation: an ACL has exactly one operation or ALL, not {acl.operation.name}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequest(f"permission: must be ALLOW or DENY, not {acl.permission.name}")
    for field, text in (("name", acl.resource_name), ("principal", acl.principal), ("host", acl.host)):
        if not text or len(text) > MAX_NAME_CHARS:
            raise InvalidRequest(f"{field}: has 1 to {MAX_NAME_CHARS} characters, not {len(text)}")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"name: must be {CLUSTER_NAME} for the cluster, not {acl.resource_name!r}")
    try:
        parse_principal(acl.principal)
    except ValueError as error:
        raise InvalidRequest(f"principal: {error}") from None
