"""Requests about rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raftlog.base.errors import from_code
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target, refusal
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

Outcome = list[Acl] | Failure
"""The rules that a wish added or removed, or its failure."""


def describe_rules(target: Target, filters: Sequence[AclFilter]) -> list[Acl]:
    """Return the rules that are asked for. Raise Failure."""
    return [
        _read_rule(resource, rule)
        for each in filters
        for resource in target.ask(ApiKey.DESCRIBE_ACLS, _describe(each), needs="DESCRIBE").resources
        for rule in resource.acls
    ]


def _describe(asked: AclFilter) -> Callable[[Any], Any]:
    return lambda make: make.DescribeAclsRequest(**_filter_fields(asked))


def create_rules(target: Target, rules: Sequence[Acl]) -> list[Outcome]:
    """Add rules. Raise Failure if the request could not be sent."""

    def build(make: Any) -> Any:
        creations = tuple(
            make.AclCreation(
                resource_type=int(each.resource_type),
                resource_name=each.resource_name,
                resource_pattern_type=int(each.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=int(each.operation),
                permission_type=int(each.permission),
            )
            for each in rules
        )
        return make.CreateAclsRequest(creations=creations)

    results = zip(rules, target.ask(ApiKey.CREATE_ACLS, build, needs="ALTER").results, strict=True)
    return [_failure(result) or [rule] for rule, result in results]


def delete_rules(target: Target, filters: Sequence[AclFilter]) -> list[Outcome]:
    """Remove the rules that match. Raise Failure if the request could not be sent."""

    def build(make: Any) -> Any:
        wanted = tuple(make.DeleteAclsFilter(**_filter_fields(each)) for each in filters)
        return make.DeleteAclsRequest(filters=wanted)

    return [
        _failure(result) or [_read_rule(each, each) for each in result.matching_acls]
        for result in target.ask(ApiKey.DELETE_ACLS, build, needs="ALTER").filter_results
    ]


def _filter_fields(asked: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(asked.resource_type),
        "resource_name_filter": asked.resource_name,
        "pattern_type_filter": int(asked.pattern_type),
        "principal_filter": asked.principal,
        "host_filter": asked.host,
        "operation": int(asked.operation),
        "permission_type": int(asked.permission),
    }


def _read_rule(resource: Any, rule: Any) -> Acl:
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        rule.principal,
        rule.host,
        Operation(rule.operation),
        Permission(rule.permission_type),
    )


def _failure(result: Any) -> Failure | None:
    """Return why a single wish was refused, or None."""
    if not result.error_code:
        return None
    return refusal(from_code(result.error_code, result.error_message), needs="ALTER")
