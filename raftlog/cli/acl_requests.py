"""Requests about rules: by librdkafka, or by a connection of our own for what librdkafka does not know.

librdkafka knows neither delegation tokens and users as resources, nor the operations on users. A connection of our own
knows all of them, but fewer ways to log in, so it is the second choice.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from raftlog.base.errors import KafkaError, from_code
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.refusals import not_authorized
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

VERSION: Final = 3
"""Of the three requests: the first version with users as resources."""

Outcome = list[Acl] | Failure
"""The rules that a wish added or removed, or its failure."""


def describe_rules(target: Target, filters: Sequence[AclFilter]) -> list[Acl]:
    """Return the rules that are asked for. Raises Failure."""
    if not _librdkafka_knows(filters):
        return _describe(target, filters)
    admin = target.admin
    admin.demand("DESCRIBE")
    describe, wanted = admin.client.describe_acls, _bindings("AclBindingFilter", filters)
    found = [_read_binding(each) for asked in wanted for each in admin.ask(describe, asked)]
    if all(each.resource_type and each.operation for each in found):
        return found
    try:
        return _describe(target, filters)
    except Failure as failure:
        print(f"raftlog: what is shown as UNKNOWN cannot be told: {failure}", file=sys.stderr)
        return found


def create_rules(target: Target, rules: Sequence[Acl]) -> list[Outcome]:
    """Add rules. Raise Failure if the request could not be sent."""
    if _librdkafka_knows(rules):
        admin = target.admin
        admin.demand("ALTER")
        asked = admin.ask(admin.client.create_acls, _bindings("AclBinding", rules))
        return [_waited(target, future, [_read_binding(binding)]) for binding, future in asked.items()]
    make = request_builders(ApiKey.CREATE_ACLS, VERSION)
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
    answer = _ask(target, ApiKey.CREATE_ACLS, make.CreateAclsRequest(creations=creations), "ALTER")
    results = zip(rules, answer.results, strict=True)
    return [_failure(result, "ALTER") or [rule] for rule, result in results]


def delete_rules(target: Target, filters: Sequence[AclFilter]) -> list[Outcome]:
    """Remove the rules that match. Raise Failure if the request could not be sent."""
    if _librdkafka_knows(filters):
        admin = target.admin
        admin.demand("ALTER")
        asked = admin.ask(admin.client.delete_acls, _bindings("AclBindingFilter", filters))
        return [_waited(target, future) for future in asked.values()]
    make = request_builders(ApiKey.DELETE_ACLS, VERSION)
    wanted = tuple(make.DeleteAclsFilter(**_filter_fields(each)) for each in filters)
    answer = _ask(target, ApiKey.DELETE_ACLS, make.DeleteAclsRequest(filters=wanted), "ALTER")
    return [
        _failure(result, "ALTER") or [_read_rule(each, each) for each in result.matching_acls]
        for result in answer.filter_results
    ]


def _librdkafka_knows(asked: Sequence[Acl | AclFilter]) -> bool:
    library = confluent_kafka().admin
    resources, operations = (
        {each.value for each in kind} for kind in (library.ResourceType, library.AclOperation)
    )
    return all(each.resource_type in resources and each.operation in operations for each in asked)


def _bindings(kind: str, asked: Sequence[Acl | AclFilter]) -> list[Any]:
    """Return librdkafka's objects for rules or filters. It calls the cluster a broker."""
    library = confluent_kafka().admin
    return [
        getattr(library, kind)(
            library.ResourceType(int(each.resource_type)),
            each.resource_name,
            library.ResourcePatternType(int(each.pattern_type)),
            each.principal,
            each.host,
            library.AclOperation(int(each.operation)),
            library.AclPermissionType(int(each.permission)),
        )
        for each in asked
    ]


def _read_binding(binding: Any) -> Acl:
    return Acl(
        ResourceType(binding.restype.value),
        binding.name,
        PatternType(binding.resource_pattern_type.value),
        binding.principal,
        binding.host,
        Operation(binding.operation.value),
        Permission(binding.permission_type.value),
    )


def _waited(target: Target, future: Any, added: list[Acl] | None = None) -> Outcome:
    """Return a future's result: the `added` rules, else the rules that it names."""
    try:
        found = target.admin.wait(future)
    except Failure as failure:
        return failure
    return [_read_binding(each) for each in found] if added is None else added


def _describe(target: Target, filters: Sequence[AclFilter]) -> list[Acl]:
    make = request_builders(ApiKey.DESCRIBE_ACLS, VERSION)
    found = []
    for each in filters:
        asked = make.DescribeAclsRequest(**_filter_fields(each))
        answer = _ask(target, ApiKey.DESCRIBE_ACLS, asked, "DESCRIBE")
        found += [_read_rule(resource, rule) for resource in answer.resources for rule in resource.acls]
    return found


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


def _ask(target: Target, api_key: int, message: Any, needs: str) -> Any:
    """Return the answer to a request on a connection of our own. Raises Failure."""
    with target.wire() as wire:
        try:
            return wire.ask(api_key, VERSION, message)
        except KafkaError as error:
            raise _refusal(error, needs) from None


def _failure(result: Any, needs: str) -> Failure | None:
    """Return why a single wish was refused, or None."""
    if not result.error_code:
        return None
    return _refusal(from_code(result.error_code, result.error_message), needs)


def _refusal(error: KafkaError, needs: str) -> Failure:
    if words := not_authorized(type(error).__name__, needs):
        return Failure(words, exits.DENIED)
    return Failure(error.message or type(error).__name__)
