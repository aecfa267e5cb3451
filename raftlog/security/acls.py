"""Access control lists as in Kafka: principals, operations, resources and hosts (KIP-11, KIP-290).

Numbers are the wire's. Names are as `kafka-acls` prints them: `TOPIC`, `PREFIXED`, `DESCRIBE_CONFIGS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

WILDCARD: Final = "*"
"""As a name: every resource of the type. As a host: every address."""

EVERY_USER: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection without a login."""

ADMIN_API: Final = "Node:admin-api"
"""The principal of a node's HTTP API, which has rights of its own kind. Logins always have the type User."""

ADMIN_CLIENT: Final = "raftlog-admin"
"""The client id of a node's HTTP API. After a blank it has the name of the represented client."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(IntEnum):
    """The resource type of an ACL. UNKNOWN and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of an ACL's resource name. UNKNOWN, ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operation on a resource. UNKNOWN and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """The effect of an ACL: to allow or to deny. UNKNOWN and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(msgspec.Struct, frozen=True, array_like=True):
    """One ACL. `principal` is `Type:name` or `User:*`, `host` an IP address or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def creation_fields(self) -> dict[str, Any]:
        """Return the fields of the ACL in CreateAcls."""
        return {
            "resource_type": int(self.resource_type),
            "resource_name": self.resource_name,
            "resource_pattern_type": int(self.pattern_type),
            "principal": self.principal,
            "host": self.host,
            "operation": int(self.operation),
            "permission_type": int(self.permission),
        }

    def concerns(self, name: str) -> bool:
        """Return whether this ACL applies to a resource of its type, by the resource's name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name == name or self.is_about_all

    @property
    def is_about_all(self) -> bool:
        """Whether it concerns every resource of its type."""
        return self.pattern_type is PatternType.LITERAL and self.resource_name == WILDCARD

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} from {self.host} on"
            f" {self.resource_type.name} {self.pattern_type.name} {self.resource_name}"
        )


def read_acl(resource: Any, rule: Any) -> Acl:
    """Return an ACL of a response. DescribeAcls names the resource apart from its rules, DeleteAcls with each."""
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        rule.principal,
        rule.host,
        Operation(rule.operation),
        Permission(rule.permission_type),
    )


class AclFilter(NamedTuple):
    """A filter for ACLs; None matches every name, principal or host."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def fields(self) -> dict[str, Any]:
        """Return the fields of the filter in DescribeAcls and DeleteAcls."""
        return {
            "resource_type_filter": int(self.resource_type),
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": int(self.pattern_type),
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": int(self.operation),
            "permission_type": int(self.permission),
        }

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter matches an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        """MATCH finds the ACLs that apply to a resource, the others find ACLs with the same pattern."""
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        return self.pattern_type is PatternType.MATCH and acl.concerns(self.resource_name)


class Right(NamedTuple):
    """A right that a request needs: `field` of the request names the resource, "" is the cluster."""

    operation: Operation
    resource_type: ResourceType
    field: str = ""


@dataclass(frozen=True, slots=True)
class BeforeLogin:
    """Every client may send it, even before it logs in."""


@dataclass(frozen=True, slots=True)
class NoRights:
    """Every client may send it, whatever the ACLs say."""


@dataclass(frozen=True, slots=True)
class BrokersOnly:
    """Only brokers that proved the cluster secret may send it."""


@dataclass(frozen=True, slots=True)
class Demanded:
    """The caller needs all of these rights. The server demands them before the handler runs."""

    rights: tuple[Right, ...]
    by_part: tuple[Right, ...] = ()
    """Further rights that the handler demands for each part of the request."""


@dataclass(frozen=True, slots=True)
class DemandedPerPart:
    """The request names its resources in its body, so the handler demands the rights for each of them."""

    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class DecidedByController:
    """The active controller decides: only the owner and the renewers of a delegation token may change it."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Every client may send it. The handler leaves out of the response what these rights do not allow it to see."""

    rights: tuple[Right, ...]


Needs = BeforeLogin | NoRights | BrokersOnly | Demanded | DemandedPerPart | DecidedByController | Filtered
"""The rights that a request needs, and the place where they are checked."""

ALTER_CLUSTER: Final = Demanded((Right(Operation.ALTER, ResourceType.CLUSTER),))
DESCRIBE_CLUSTER: Final = Demanded((Right(Operation.DESCRIBE, ResourceType.CLUSTER),))
READ_GROUP: Final = Demanded((Right(Operation.READ, ResourceType.GROUP, "group_id"),))

IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""The operations that imply another operation in an ALLOW. A DENY never implies others."""

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations of each type of resource, as listed in authorized operations (KIP-430)."""
