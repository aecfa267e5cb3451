"""Answers whether a principal may do something, by the rules of Kafka's StandardAuthorizer.

In this order: a super user may do everything; any DENY that matches refuses; any ALLOW that matches lets in; without a
rule about the resource, `allow.everyone.if.no.acl.found` decides; else the answer is no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from raftlog.base.types import NAME_MAX_CHARS
from raftlog.security.acls import (
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

MOST_KEPT_ANSWERS: Final = 10_000
"""Answers that are kept until rules change; then all go."""

ANY_NAME: Final = "hardcode"
"""A resource of this name is asked for where any would do, as Kafka does: a super user passes, whatever is denied."""

Reason = Literal[
    "super user", "denied by a rule", "allowed by a rule", "no rule about the resource", "no rule matches"
]


class Verdict(NamedTuple):
    """An answer and what it rests on."""

    allowed: bool
    reason: Reason
    rule: Acl | None = None


class _RulesOfType:
    """The rules about one type of resource, found by name and by prefix."""

    __slots__ = ("_by_prefix", "_lengths", "_literal", "_sorted_lengths")

    def __init__(self) -> None:
        self._literal: dict[str, dict[Acl, None]] = {}
        self._by_prefix: dict[str, dict[Acl, None]] = {}
        self._lengths: Counter[int] = Counter()
        """How many prefixes there are of each length."""
        self._sorted_lengths: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Acl]:
        for rules in (*self._literal.values(), *self._by_prefix.values()):
            yield from rules

    def add(self, acl: Acl) -> None:
        named, name = self._named(acl), acl.resource_name
        if name not in named:
            named[name] = {}
            self._count(acl, 1)
        named[name][acl] = None

    def remove(self, acl: Acl) -> None:
        named, name = self._named(acl), acl.resource_name
        del named[name][acl]
        if not named[name]:
            del named[name]
            self._count(acl, -1)

    def about(self, name: str) -> Iterator[Acl]:
        """Yield the rules that concern a resource."""
        if name != WILDCARD:
            yield from self._literal.get(WILDCARD, ())
        yield from self._literal.get(name, ())
        for length in self._sorted_lengths:
            if length > len(name):
                break
            yield from self._by_prefix.get(name[:length], ())

    def _named(self, acl: Acl) -> dict[str, dict[Acl, None]]:
        return self._by_prefix if acl.pattern_type is PatternType.PREFIXED else self._literal

    def _count(self, acl: Acl, difference: int) -> None:
        if acl.pattern_type is PatternType.PREFIXED:
            self._lengths[len(acl.resource_name)] += difference
            self._sorted_lengths = tuple(sorted(+self._lengths))


class Authorizer:
    """The rules in force, and who stands above them. `change` is the only way to other rules."""

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        *,
        super_users: Iterable[str] = (),
        allow_if_no_rule: bool = False,
    ) -> None:
        self.super_users = frozenset(super_users)
        self._allow_if_no_rule = allow_if_no_rule
        self._rules = {each: _RulesOfType() for each in OPERATIONS}
        self._answers: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}
        self.change(added=acls)

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Put rules in force and take others out; every question from now on is answered by the new ones."""
        for acl in removed:
            self._rules[acl.resource_type].remove(acl)
        for acl in added:
            self._rules[acl.resource_type].add(acl)
        self._answers.clear()

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a principal may do something with a resource, from an address."""
        key = (principal, host, operation, resource_type, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = self.verdict(*key).allowed
            if len(name) > NAME_MAX_CHARS:
                return answer  # names are as clients send them, and kept ones count nowhere
            if len(self._answers) >= MOST_KEPT_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def verdict(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Verdict:
        """Return the answer to the same question, with what it rests on."""
        if principal in self.super_users:
            return Verdict(True, "super user")
        found, allowing = False, None
        for acl in self._rules[resource_type].about(name):
            found = True
            if _matches(acl, principal, host, operation):
                if acl.permission is Permission.DENY:
                    return Verdict(False, "denied by a rule", acl)
                allowing = allowing or acl
        if allowing is not None:
            return Verdict(True, "allowed by a rule", allowing)
        if not found:
            return Verdict(self._allow_if_no_rule, "no rule about the resource")
        return Verdict(False, "no rule matches")

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there is some name of a resource with which a principal may do something (KIP-679).

        Implied operations do not count, as in Kafka.
        """
        if self.allows(principal, host, operation, resource_type, ANY_NAME):
            return True
        allowed: list[Acl] = []
        denied: list[Acl] = []
        for acl in self._rules[resource_type]:
            if (
                acl.operation in (operation, Operation.ALL)
                and acl.principal in (principal, EVERY_USER)
                and acl.host in (host, WILDCARD)
            ):
                (denied if acl.permission is Permission.DENY else allowed).append(acl)
        return any(not any(_covers(each, acl) for each in denied) for acl in allowed)

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return what a principal may do with a resource: a bit for each operation's number (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _matches(acl: Acl, principal: str, host: str, operation: Operation) -> bool:
    if acl.principal not in (principal, EVERY_USER) or acl.host not in (host, WILDCARD):
        return False
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def _covers(deny: Acl, allow: Acl) -> bool:
    """Whether all names of a rule that allows are names of one that denies."""
    if deny.is_about_all:
        return True
    if allow.is_about_all:
        return False
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name
