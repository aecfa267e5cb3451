"""The rules that the words of kafka-acls stand for, and the filters. Pure: asks no cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_PRODUCER_TOPIC: Final = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_PRODUCER_TRANSACTIONAL_ID: Final = (Operation.WRITE, Operation.DESCRIBE)
_CONSUMER_TOPIC: Final = (Operation.READ, Operation.DESCRIBE)
_CONSUMER_GROUP: Final = (Operation.READ,)

RESOURCE_OPTIONS: Final = (
    "--topic, --group, --transactional-id, --cluster, --delegation-token or --user-principal"
)

Resource = tuple[ResourceType, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """The words on the line: resources, and for rules also principals, hosts and operations."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    cluster: bool = False
    delegation_tokens: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """As principals: a rule about alice's tokens has `User:alice` as the name of the resource."""
    pattern_type: PatternType = PatternType.LITERAL
    allow_principals: tuple[str, ...] = ()
    deny_principals: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def resources(self) -> list[Resource]:
        """The resources by type and name."""
        return [
            *((ResourceType.TOPIC, name) for name in self.topics),
            *((ResourceType.GROUP, name) for name in self.groups),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else []),
            *((ResourceType.DELEGATION_TOKEN, name) for name in self.delegation_tokens),
            *((ResourceType.USER, name) for name in self.users),
        ]

    @property
    def names_users(self) -> bool:
        """Whether it names the principals of rules."""
        return bool(self.allow_principals or self.deny_principals)


def rules(asked: Asked) -> list[Acl]:
    """Return the rules that are asked for, each once. Raises Failure for what kafka-acls refuses."""
    _check(asked)
    if not asked.names_users:
        raise _usage("name a principal: --allow-principal User:NAME or --deny-principal User:NAME")
    if asked.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _usage(
            "--resource-pattern-type: must be literal or prefixed for a new ACL; any and match are for list and delete"
        )
    return list(dict.fromkeys(_rules(asked)))


def filters(asked: Asked, principals: Sequence[str] = ()) -> list[AclFilter]:
    """Return the filters for the requested rules: exact filters if principals are named, else all of the resources.

    `principals` are the values of --principal. Raise Failure.
    """
    _check(asked)
    for principal in principals:
        _check_principal("--principal", principal)
    if asked.names_users:
        return [
            AclFilter(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in dict.fromkeys(_rules(asked))
        ]
    resources: list[tuple[ResourceType, str | None]] = [*asked.resources] or [(ResourceType.ANY, None)]
    pattern_type = asked.pattern_type if asked.resources else PatternType.ANY
    return [
        AclFilter(kind, name, pattern_type, principal, None, Operation.ANY, Permission.ANY)
        for kind, name in resources
        for principal in principals or (None,)
    ]


def _rules(asked: Asked) -> Iterator[Acl]:
    allowed = [
        (principal, host) for principal in asked.allow_principals for host in asked.allow_hosts or (WILDCARD,)
    ]
    denied = [
        (principal, host) for principal in asked.deny_principals for host in asked.deny_hosts or (WILDCARD,)
    ]
    who = [(Permission.ALLOW, *each) for each in allowed] + [(Permission.DENY, *each) for each in denied]
    for kind, name, operation in _what(asked):
        # the cluster's name is no beginning of others
        pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else asked.pattern_type
        for permission, principal, host in who:
            yield Acl(kind, name, pattern, principal, host, operation, permission)


def _what(asked: Asked) -> Iterator[tuple[ResourceType, str, Operation]]:
    if not (asked.producer or asked.consumer):
        for kind, name in asked.resources:
            for operation in asked.operations or (Operation.ALL,):
                yield kind, name, operation
        return
    for topic in asked.topics:
        for operation in (*(_PRODUCER_TOPIC * asked.producer), *(_CONSUMER_TOPIC * asked.consumer)):
            yield ResourceType.TOPIC, topic, operation
    for transactional_id in asked.transactional_ids:
        for operation in _PRODUCER_TRANSACTIONAL_ID:
            yield ResourceType.TRANSACTIONAL_ID, transactional_id, operation
    if asked.idempotent:
        yield ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE
    for group in asked.groups:
        for operation in _CONSUMER_GROUP:
            yield ResourceType.GROUP, group, operation


def _check(asked: Asked) -> None:
    """Raise Failure for words that do not go together."""
    if asked.producer or asked.consumer:
        _check_role(asked)
    elif asked.idempotent:
        raise _usage("--idempotent goes with --producer")
    elif asked.names_users and not asked.resources:
        raise _usage(f"name a resource: {RESOURCE_OPTIONS}")
    _check_who(asked)
    for user in asked.users:
        if user != WILDCARD:
            _check_principal("--user-principal", user)
    if asked.operations and not asked.names_users:
        raise _usage("--operation goes with --allow-principal or --deny-principal")
    for kind, name in asked.resources:
        if not name:
            raise _usage(f"--{kind.name.lower().replace('_', '-')}: a name is empty")
        for operation in asked.operations:
            if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
                known = ", ".join(each.name for each in (*OPERATIONS[kind], Operation.ALL))
                raise _usage(f"--operation {operation.name}: a {kind.name} has {known}")


def _check_who(asked: Asked) -> None:
    """Raise Failure for users and hosts that no rule can be about."""
    for option, principals in (
        ("--allow-principal", asked.allow_principals),
        ("--deny-principal", asked.deny_principals),
    ):
        for principal in principals:
            _check_principal(option, principal)
    for option, hosts, needed in (
        ("--allow-host", asked.allow_hosts, asked.allow_principals),
        ("--deny-host", asked.deny_hosts, asked.deny_principals),
    ):
        if hosts and not needed:
            raise _usage(f"{option} goes with {option.replace('host', 'principal')}")
        for host in hosts:
            _check_host(option, host)


def _check_role(asked: Asked) -> None:
    """Raise Failure for words that do not go with --producer or --consumer."""
    if asked.operations or asked.deny_principals:
        raise _usage("--producer and --consumer cannot be combined with --operation and --deny-principal")
    if not asked.allow_principals:
        raise _usage("--producer and --consumer need --allow-principal")
    if not asked.topics:
        raise _usage("--producer and --consumer need --topic")
    if asked.consumer and not asked.groups:
        raise _usage("--consumer needs --group")
    if asked.groups and not asked.consumer:
        raise _usage("--group goes with --consumer, not with --producer")
    if asked.cluster or asked.delegation_tokens or asked.users:
        raise _usage(
            "--producer and --consumer cannot be combined with --cluster, --delegation-token and --user-principal"
        )
    if (asked.transactional_ids or asked.idempotent) and not asked.producer:
        raise _usage("--transactional-id and --idempotent go with --producer")


def _check_principal(option: str, principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise _usage(f"{option}: must be User:NAME, but is {principal!r}")


def _check_host(option: str, host: str) -> None:
    try:
        if host != WILDCARD:
            ipaddress.ip_address(host)
    except ValueError:
        raise _usage(f"{option}: must be an address or *, but is {host!r}") from None


def _usage(message: str) -> Failure:
    return Failure(message, exits.USAGE)
