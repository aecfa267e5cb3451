"""Random rules and questions, and a model of Kafka's StandardAuthorizer that reads all rules for each question.

Names, hosts and principals are few and alike, so that rules meet: prefixes of each other, `*`, and DENY beside ALLOW.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from raftlog.security.acls import (
    ANONYMOUS,
    EVERY_USER,
    IMPLIED_BY,
    OPERATIONS,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from raftlog.security.authorizer import ANY_NAME, Authorizer

TYPES = tuple(OPERATIONS)
ALL_OPERATIONS = tuple(each for each in Operation if each > Operation.ALL)
NAMES = (WILDCARD, "a", "ab", "abc", "b", "ba", "orders", "ord", "hard", ANY_NAME, "kafka-cluster", "é")
ASKED = (*NAMES, "abcd", "orders-2", "x")
PRINCIPALS = (EVERY_USER, "User:alice", "User:alic", "User:bob", "User:CN=carol,O=x", ANONYMOUS)
HOSTS = (WILDCARD, "127.0.0.1", "10.0.0.1", "::1")
LONG = {"::1": "0:0:0:0:0:0:0:1"}
"""Java's spelling of an address. Kafka knows no other in rules."""

MAX_RULES = 14
QUESTIONS = 8


class Question(NamedTuple):
    """A question to an authorizer; without a name it is whether any will do (`allows_any`)."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str | None


class RuleSet(NamedTuple):
    """One case."""

    super_users: tuple[str, ...]
    allow_if_no_rule: bool
    acls: tuple[Acl, ...]
    questions: tuple[Question, ...]

    def authorizer(self) -> Authorizer:
        return Authorizer(self.acls, super_users=self.super_users, allow_if_no_rule=self.allow_if_no_rule)

    def expected(self, question: Question) -> bool:
        """Return the answer of the model."""
        if question.name is None:
            return _model_of_any(self, question)
        return _model(self, question)


def rule_sets(seed: int, count: int) -> Iterator[RuleSet]:
    """Yield so many cases, the same for a seed."""
    chance = Random(seed)
    for _ in range(count):
        # A few types and operations in each case, else few rules concern what is asked.
        types, operations = chance.sample(TYPES, 2), chance.sample(ALL_OPERATIONS, 4)
        operations = [
            *operations,
            chance.choice([Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ]),
        ]
        acls = {_acl(chance, types, operations): None for _ in range(chance.randrange(MAX_RULES + 1))}
        yield RuleSet(
            tuple(chance.sample(PRINCIPALS[1:], chance.choice([0, 0, 1]))),
            chance.random() < 0.3,
            tuple(acls),
            tuple(_question(chance, types, operations) for _ in range(QUESTIONS)),
        )


def _acl(chance: Random, types: list[ResourceType], operations: list[Operation]) -> Acl:
    return Acl(
        chance.choice(types),
        chance.choice(NAMES),
        chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        chance.choice(PRINCIPALS),
        chance.choice((WILDCARD, *HOSTS, *LONG.values())),
        chance.choice((Operation.ALL, *operations)),
        chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def _question(chance: Random, types: list[ResourceType], operations: list[Operation]) -> Question:
    return Question(
        chance.choice(PRINCIPALS[1:]),
        chance.choice(HOSTS[1:]),
        chance.choice(operations),
        chance.choice(types),
        None if chance.random() < 0.25 else chance.choice(ASKED),
    )


def _model(rules: RuleSet, question: Question) -> bool:
    """Answer as the documents of Kafka's authorizer say, with no index."""
    if question.principal in rules.super_users:
        return True
    about = [
        acl
        for acl in rules.acls
        if acl.resource_type == question.resource_type and _is_about(acl, question.name or "")
    ]
    mine = list(_of(about, question))
    operation = question.operation
    if any(a.permission == Permission.DENY and a.operation in (operation, Operation.ALL) for a in mine):
        return False
    granting = IMPLIED_BY.get(operation, frozenset()) | {Operation.ALL, operation}
    if any(a.permission == Permission.ALLOW and a.operation in granting for a in mine):
        return True
    return rules.allow_if_no_rule and not about


def _model_of_any(rules: RuleSet, question: Question) -> bool:
    """Answer as KIP-679 says: some ALLOW rule is not covered by a DENY rule; implied operations do not count.

    Kafka asks first for a resource with an invented name.
    """
    if _model(rules, question._replace(name=ANY_NAME)):
        return True
    mine = [
        acl
        for acl in _of(rules.acls, question)
        if acl.resource_type == question.resource_type
        and acl.operation in (question.operation, Operation.ALL)
    ]
    denied = [acl for acl in mine if acl.permission == Permission.DENY]
    return any(
        not any(_covers(deny, acl) for deny in denied) for acl in mine if acl.permission == Permission.ALLOW
    )


def _of(acls: Iterable[Acl], question: Question) -> Iterator[Acl]:
    for acl in acls:
        if acl.principal in (question.principal, EVERY_USER) and acl.host in (
            question.host,
            LONG.get(question.host),
            WILDCARD,
        ):
            yield acl


def _is_about(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (WILDCARD, name)


def _covers(deny: Acl, allow: Acl) -> bool:
    """Return whether a DENY rule matches every name of an ALLOW rule."""
    if deny.is_about_all:
        return True
    if allow.is_about_all:
        return False
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name


def answer(authorizer: Authorizer, question: Question) -> bool:
    """Return raftlog's own answer."""
    if question.name is None:
        return authorizer.allows_any(*question[:4])
    return authorizer.allows(*question[:4], question.name)


def as_json(rules: RuleSet) -> dict[str, Any]:
    """Return a case as the Java program reads it; enumerations have the wire's numbers there, too."""
    long_spelled = dict.fromkeys(
        msgspec.structs.replace(acl, host=LONG.get(acl.host, acl.host)) for acl in rules.acls
    )
    return {
        "superUsers": list(rules.super_users),
        "allowIfNoRule": rules.allow_if_no_rule,
        "acls": [
            {
                "type": int(acl.resource_type),
                "name": acl.resource_name,
                "pattern": int(acl.pattern_type),
                "principal": acl.principal,
                "host": acl.host,
                "operation": int(acl.operation),
                "permission": int(acl.permission),
            }
            for acl in long_spelled
        ],
        "questions": [
            {
                "principal": each.principal,
                "host": each.host,
                "operation": int(each.operation),
                "type": int(each.resource_type),
                "name": each.name,
            }
            for each in rules.questions
        ],
    }
