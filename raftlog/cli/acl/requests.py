"""Requests about rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raftlog.base.errors import from_code
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target, refusal
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import Acl, AclFilter, read_acl

Outcome = list[Acl] | Failure
"""The rules that a wish added or removed, or its failure."""


def describe_rules(target: Target, filters: Sequence[AclFilter]) -> list[Acl]:
    """Return the rules that are asked for. Raise Failure."""
    return [
        read_acl(resource, rule)
        for each in filters
        for resource in target.ask(ApiKey.DESCRIBE_ACLS, _describe(each), needs="DESCRIBE").resources
        for rule in resource.acls
    ]


def _describe(asked: AclFilter) -> Callable[[Any], Any]:
    return lambda make: make.DescribeAclsRequest(**asked.fields())


def create_rules(target: Target, rules: Sequence[Acl]) -> list[Outcome]:
    """Add rules. Raise Failure if the request could not be sent."""

    def build(make: Any) -> Any:
        creations = tuple(make.AclCreation(**each.creation_fields()) for each in rules)
        return make.CreateAclsRequest(creations=creations)

    results = zip(rules, target.ask(ApiKey.CREATE_ACLS, build, needs="ALTER").results, strict=True)
    return [_failure(result) or [rule] for rule, result in results]


def delete_rules(target: Target, filters: Sequence[AclFilter]) -> list[Outcome]:
    """Remove the rules that match. Raise Failure if the request could not be sent."""

    def build(make: Any) -> Any:
        wanted = tuple(make.DeleteAclsFilter(**each.fields()) for each in filters)
        return make.DeleteAclsRequest(filters=wanted)

    return [
        _failure(result) or [read_acl(each, each) for each in result.matching_acls]
        for result in target.ask(ApiKey.DELETE_ACLS, build, needs="ALTER").filter_results
    ]


def _failure(result: Any) -> Failure | None:
    """Return why a single wish was refused, or None."""
    if not result.error_code:
        return None
    return refusal(from_code(result.error_code, result.error_message), needs="ALTER")
