"""Access control lists: list, create one or several, delete the matches of a filter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.audit import record_parts
from raftlog.admin.errors import check, of_kafka
from raftlog.admin.kafka_rest.shared import ItemMetadata, ListMetadata, Page, image_of, item, page_of
from raftlog.admin.route import Call, Route
from raftlog.base.config.security import NO_AUTHORIZER
from raftlog.base.errors import SecurityDisabled
from raftlog.base.turns import each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import (
    ALTER_CLUSTER,
    DESCRIBE_CLUSTER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    read_acl,
)

MAX_RULES: Final = 1_000
"""In one request."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
Name = Annotated[str, msgspec.Meta(max_length=249)]
"""In a query. A line of HTTP has room for several, however they are encoded."""
Host = Annotated[str, msgspec.Meta(max_length=45)]
KnownType = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
AnyType = Literal[KnownType, "ANY"]
KnownPattern = Literal["LITERAL", "PREFIXED"]
AnyPattern = Literal[KnownPattern, "MATCH", "ANY"]
KnownOperation = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]
AnyOperation = Literal[KnownOperation, "ANY"]
KnownPermission = Literal["ALLOW", "DENY"]
AnyPermission = Literal[KnownPermission, "ANY"]


class AclData(msgspec.Struct, kw_only=True):
    """One ACL."""

    kind: str = "KafkaAcl"
    metadata: ItemMetadata
    cluster_id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaAclList"
    metadata: ListMetadata
    data: list[AclData]


class DeletedAcls(msgspec.Struct):
    """The deleted ACLs."""

    data: list[AclData]


class NewAcl(msgspec.Struct, forbid_unknown_fields=True):
    """An ACL to create. `principal` is Type:name, `host` an address or *."""

    resource_type: KnownType
    resource_name: Text
    pattern_type: KnownPattern
    principal: Text
    host: Text
    operation: KnownOperation
    permission: KnownPermission


class NewAcls(msgspec.Struct, forbid_unknown_fields=True):
    """ACLs to create. Each succeeds or fails by itself."""

    data: Annotated[list[NewAcl], msgspec.Meta(min_length=1, max_length=MAX_RULES)]


class AclQuery(Page, forbid_unknown_fields=True):
    """A filter for ACLs by all given fields. MATCH finds the ACLs that apply to a resource of the name."""

    resource_type: AnyType = "ANY"
    resource_name: Name = ""
    pattern_type: AnyPattern = "ANY"
    principal: Name = ""
    host: Host = ""
    operation: AnyOperation = "ANY"
    permission: AnyPermission = "ANY"


class AclDeletionQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A filter for deletion. Parameters without a default are required, against accidental deletion of all ACLs."""

    resource_type: AnyType
    resource_name: Name = ""
    pattern_type: AnyPattern
    principal: Name = ""
    host: Host = ""
    operation: AnyOperation
    permission: AnyPermission


def filter_of(query: AclQuery | AclDeletionQuery) -> AclFilter:
    """Return the filter that a query means."""
    return AclFilter(
        ResourceType[query.resource_type],
        query.resource_name or None,
        PatternType[query.pattern_type],
        query.principal or None,
        query.host or None,
        Operation[query.operation],
        Permission[query.permission],
    )


async def list_acls(call: Call) -> AclList:
    """Return the ACLs by resource, as this node knows them."""
    image, asked = image_of(call), filter_of(call.query)
    if call.node.authorizer is None:
        raise of_kafka(SecurityDisabled(NO_AUTHORIZER))
    found = sorted((acl for acl in image.acls if asked.matches(acl)), key=msgspec.structs.astuple)
    shown, metadata = page_of(call, found, "clusters", image.cluster_id, "acls", key=msgspec.structs.astuple)
    return AclList(metadata=metadata, data=await each_part(call, shown, partial(_acl_data, call, image)))


async def create_acl(call: Call) -> None:
    """Create an ACL; an existing ACL is no error."""
    await _create(call, [call.body])


async def create_acls(call: Call) -> None:
    """Create ACLs, and return the error of the first refused ACL; the others are created."""
    await _create(call, call.body.data)


async def _create(call: Call, wanted: Sequence[NewAcl]) -> None:
    image_of(call)
    make = builders_for(ApiKey.CREATE_ACLS)
    names = [_written(each) for each in wanted]
    record_parts(call, (), names)  # until the response
    request = make.CreateAclsRequest(
        creations=tuple(
            make.AclCreation(
                resource_type=int(ResourceType[each.resource_type]),
                resource_name=each.resource_name,
                resource_pattern_type=int(PatternType[each.pattern_type]),
                principal=each.principal,
                host=each.host,
                operation=int(Operation[each.operation]),
                permission_type=int(Permission[each.permission]),
            )
            for each in wanted
        )
    )
    response = await call.asker.ask(ApiKey.CREATE_ACLS, request)
    results = list(zip(names, response.results, strict=True))
    refused = [name for name, result in results if result.error_code]
    record_parts(call, [name for name, result in results if not result.error_code], refused)
    for name, result in results:
        check(result.error_code, result.error_message, about=name if len(names) > 1 else "")


async def delete_acls(call: Call) -> DeletedAcls:
    """Delete the ACLs that match; no match is no error."""
    image, asked = image_of(call), filter_of(call.query)
    make = builders_for(ApiKey.DELETE_ACLS)
    request = make.DeleteAclsRequest(filters=(make.DeleteAclsFilter(**asked.fields()),))
    response = await call.asker.ask(ApiKey.DELETE_ACLS, request)
    (result,) = response.filter_results
    check(result.error_code, result.error_message)
    gone = [read_acl(each, each) for each in result.matching_acls]
    record_parts(call, [str(acl) for acl in gone], ())
    return DeletedAcls([_acl_data(call, image, acl) for acl in sorted(gone, key=msgspec.structs.astuple)])


def _written(wanted: NewAcl) -> str:
    """Return an ACL in the form of the log, see Acl."""
    return (
        f"{wanted.permission} {wanted.principal} {wanted.operation} from {wanted.host} on"
        f" {wanted.resource_type} {wanted.pattern_type} {wanted.resource_name}"
    )


def _acl_data(call: Call, image: MetadataImage, acl: Acl) -> AclData:
    return AclData(
        metadata=item(call, image, "acls", acl=acl.resource_name),
        cluster_id=image.cluster_id,
        resource_type=acl.resource_type.name,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name,
        permission=acl.permission.name,
    )


BASE: Final = "/v3/clusters/{cluster_id}/acls"
ROUTES: Final = (
    Route("GET", BASE, list_acls, "List access rules", query=AclQuery, rights=DESCRIBE_CLUSTER),
    Route("POST", BASE, create_acl, "Create an access rule", body=NewAcl, status=201, rights=ALTER_CLUSTER),
    Route(
        "POST",
        f"{BASE}:batch",
        create_acls,
        "Create several access rules",
        body=NewAcls,
        status=201,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        BASE,
        delete_acls,
        "Delete the access rules that are asked for",
        query=AclDeletionQuery,
        rights=ALTER_CLUSTER,
    ),
)
