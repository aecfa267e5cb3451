"""Converts ACLs and filters between wire fields and values, for the three ACL APIs."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import Any, TypeVar

from raftlog.base.config.security import NO_AUTHORIZER
from raftlog.base.errors import InvalidRequest, SecurityDisabled
from raftlog.broker.context import BrokerContext
from raftlog.security.acls import WILDCARD, Acl, AclFilter, Operation, PatternType, Permission, ResourceType

Numbers = TypeVar("Numbers", bound=IntEnum)


def check_enabled(broker: BrokerContext) -> None:
    """Raise SecurityDisabled where ACLs are not used."""
    if broker.authorizer is None:
        raise SecurityDisabled(NO_AUTHORIZER)


def acl_of(creation: Any) -> Acl:
    """Return the ACL of a CreateAcls request. Raises InvalidRequest for unknown enum values."""
    return Acl(
        _number(ResourceType, creation.resource_type, "resource_type"),
        creation.resource_name,
        _number(PatternType, creation.resource_pattern_type, "pattern_type"),
        creation.principal,
        _host(creation.host),
        _number(Operation, creation.operation, "operation"),
        _number(Permission, creation.permission_type, "permission"),
    )


def filter_of(asked: Any) -> AclFilter:
    """Return a filter of DescribeAcls or DeleteAcls. Raises InvalidRequest for unknown enum values."""
    found = AclFilter(
        _number(ResourceType, asked.resource_type_filter, "resource_type"),
        asked.resource_name_filter,
        _number(PatternType, asked.pattern_type_filter, "pattern_type"),
        asked.principal_filter,
        _host(asked.host_filter) if asked.host_filter else asked.host_filter,
        _number(Operation, asked.operation, "operation"),
        _number(Permission, asked.permission_type, "permission"),
    )
    unknown = (ResourceType.UNKNOWN, PatternType.UNKNOWN, Operation.UNKNOWN, Permission.UNKNOWN)
    if any(
        a is b for a, b in zip((found.resource_type, found.pattern_type, *found[5:]), unknown, strict=True)
    ):
        raise InvalidRequest("a filter has an UNKNOWN resource type, pattern type, operation or permission")
    return found


def describe_acl(rule: Any, pattern_type: int) -> str:
    """Return an ACL of a request or a response as the audit log writes it. Its enum values may be unknown."""
    try:
        return str(
            Acl(
                ResourceType(rule.resource_type),
                rule.resource_name,
                PatternType(pattern_type),
                rule.principal,
                rule.host,
                Operation(rule.operation),
                Permission(rule.permission_type),
            )
        )
    except ValueError:
        return f"a rule about {rule.resource_name}"


def _host(text: str) -> str:
    """Return an address as connections have it: `::1`. Raises InvalidRequest for the name of a host."""
    if text == WILDCARD:
        return text
    try:
        return ipaddress.ip_address(text).compressed
    except ValueError:
        raise InvalidRequest(f"host: must be an address or *, but is {text[:100]!r}") from None


def _number(kind: type[Numbers], number: int, field: str) -> Numbers:
    try:
        return kind(number)
    except ValueError:
        raise InvalidRequest(
            f"{field}: must be one of {', '.join(each.name for each in kind)}, not {number}"
        ) from None
