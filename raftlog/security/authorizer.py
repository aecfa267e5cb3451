"""Authorizes principals by the rules of Kafka's StandardAuthorizer.

The first of these that holds decides:

1. A super user may do everything.
2. A DENY that matches denies.
3. An ALLOW that matches allows.
4. Without an ACL for the resource, `allow.everyone.if.no.acl.found` decides.
5. Everything else is denied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import chain
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

MAX_KEPT_ANSWERS: Final = 10_000
"""Cached answers until ACLs change; then all are dropped."""

MAX_NOTED_PRINCIPALS: Final = 10_000
"""Principals with a recorded change of their ACLs; beyond this, all principals count as changed."""

ANY_NAME: Final = "hardcode"
"""The resource name for a check of any resource, as in Kafka: a super user passes, whatever is denied."""

Reason = Literal[
    "super user", "denied by a rule", "allowed by a rule", "no rule about the resource", "no rule matches"
]


_Question = tuple[str, Operation, ResourceType, str | None]
"""Host, operation, and a resource; the name None means any."""

_DENIED_BY: Final = {each: frozenset({each, Operation.ALL}) for each in Operation}
_ALLOWED_BY: Final = {each: _DENIED_BY[each] | IMPLIED_BY.get(each, frozenset()) for each in Operation}
"""The operations of ACLs that decide about an operation."""


@lru_cache(maxsize=1024)
def _hosts_of(host: str) -> tuple[str, ...]:
    """Return the hosts of ACLs that apply to an address.

    Kafka's ACLs have Java's long spelling of IPv6: 0:0:0:0:0:0:0:1 for ::1. Here both are the same address.
    """
    if ":" not in host:
        return WILDCARD, host
    try:
        address = IPv6Address(host)
    except ValueError:
        return WILDCARD, host
    if address.ipv4_mapped is not None:
        return WILDCARD, host, str(address.ipv4_mapped)
    long = ":".join(part.lstrip("0") or "0" for part in address.exploded.split(":"))
    return WILDCARD, host, long


class Verdict(NamedTuple):
    """An answer and its reason."""

    allowed: bool
    reason: Reason
    rule: Acl | None = None

    @property
    def is_by_rule(self) -> bool:
        """Whether an ACL or the list of super users allows it, not `allow.everyone.if.no.acl.found`."""
        return self.allowed and self.reason != "no rule about the resource"


class _Patterns:
    """ACLs for one type of resource, by name and by prefix: of one principal, or of all."""

    __slots__ = ("_by_prefix", "_lengths", "_literal", "_sorted_lengths")

    def __init__(self) -> None:
        self._literal: dict[str, dict[Acl, None]] = {}
        self._by_prefix: dict[str, dict[Acl, None]] = {}
        self._lengths: Counter[int] = Counter()
        """How many prefixes there are of each length."""
        self._sorted_lengths: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._literal or self._by_prefix)

    def __iter__(self) -> Iterator[Acl]:
        for rules in chain(self._literal.values(), self._by_prefix.values()):
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

    def about(self, name: str) -> list[Iterable[Acl]]:
        """Return the ACLs that apply to a resource: for all names, this name, and its prefixes."""
        literal, by_prefix = self._literal, self._by_prefix
        found: list[Iterable[Acl]] = []
        if WILDCARD in literal and name != WILDCARD:
            found.append(literal[WILDCARD])
        if name in literal:
            found.append(literal[name])
        for length in self._sorted_lengths:
            if length > len(name):
                break
            prefix = name[:length]
            if prefix in by_prefix:
                found.append(by_prefix[prefix])
        return found

    def cover(self, acl: Acl) -> bool:
        """Return whether an ACL here covers every name that another ACL covers."""
        if WILDCARD in self._literal:
            return True
        if acl.is_about_all:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return bool(self.about(acl.resource_name))
        return any(acl.resource_name[:length] in self._by_prefix for length in self._sorted_lengths)

    def _named(self, acl: Acl) -> dict[str, dict[Acl, None]]:
        return self._by_prefix if acl.pattern_type is PatternType.PREFIXED else self._literal

    def _count(self, acl: Acl, difference: int) -> None:
        """Count a new prefix, or a removed prefix."""
        if acl.pattern_type is not PatternType.PREFIXED:
            return
        length = len(acl.resource_name)
        before = self._lengths[length]
        self._lengths[length] += difference
        if (before == 0) != (self._lengths[length] == 0):
            self._lengths = +self._lengths
            self._sorted_lengths = tuple(sorted(self._lengths))


class _RulesOfType:
    """The ACLs for one type of resource, by principal: a check costs only the principal's ACLs."""

    __slots__ = ("_all", "_of")

    def __init__(self) -> None:
        self._of: dict[str, _Patterns] = {}
        self._all = _Patterns()

    def add(self, acl: Acl) -> None:
        self._all.add(acl)
        if acl.principal not in self._of:
            self._of[acl.principal] = _Patterns()
        self._of[acl.principal].add(acl)

    def remove(self, acl: Acl) -> None:
        self._all.remove(acl)
        rules = self._of[acl.principal]
        rules.remove(acl)
        if not rules:
            del self._of[acl.principal]

    def of(self, principal: str) -> list[_Patterns]:
        """Return the ACLs of a principal, and of `User:*`."""
        of = self._of
        return [of[each] for each in {principal: None, EVERY_USER: None} if each in of]

    def has_about(self, name: str) -> bool:
        """Return whether there is any ACL for a resource, of any principal."""
        return bool(self._all.about(name))


class Authorizer:
    """The ACLs in force, and the super users. ACLs change only through `change`."""

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
        self._answers: dict[str, dict[_Question, bool]] = {}
        """Cached answers by principal, so that a new ACL invalidates only the affected principals."""
        self._kept = 0
        """The number of cached answers."""
        self._changes = self._changed_for_all = 0
        """The number of changes of ACLs so far, and that number at the last change that affected all principals."""
        self._changed_for: dict[str, int] = {}
        """The number of the last change that affected each principal, since then."""
        self.change(added=acls)

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs; every later check uses the result."""
        concerned = set()
        for acl in removed:
            self._rules[acl.resource_type].remove(acl)
            concerned.add(acl.principal)
        for acl in added:
            self._rules[acl.resource_type].add(acl)
            concerned.add(acl.principal)
        self._changes += 1
        noted = len(self._changed_for) + len(concerned)
        if self._allow_if_no_rule or EVERY_USER in concerned or noted > MAX_NOTED_PRINCIPALS:
            self._changed_for_all = self._changes
            self._changed_for.clear()
            self._forget()
            return
        for principal in concerned:
            self._changed_for[principal] = self._changes
            self._kept -= len(self._answers.pop(principal, ()))

    def version(self, principal: str) -> int:
        """Return a number that grows with each change of ACLs that affects a principal."""
        if principal in self.super_users:
            return 0
        return max(self._changed_for_all, self._changed_for.get(principal, 0))

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether a principal may do something with a resource, from an address."""
        try:
            return self._answers[principal][host, operation, resource_type, name]
        except KeyError:
            answer = self.verdict(principal, host, operation, resource_type, name).allowed
        if len(name) <= NAME_MAX_CHARS:  # names are as clients send them, so cached names need a limit
            self._cache_answer(principal, (host, operation, resource_type, name), answer)
        return answer

    def verdict(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Verdict:
        """Return the answer with its reason."""
        if principal in self.super_users:
            return Verdict(True, "super user")
        rules, allowing = self._rules[resource_type], None
        allowed_by, denied_by, hosts = _ALLOWED_BY[operation], _DENIED_BY[operation], _hosts_of(host)
        for patterns in rules.of(principal):
            for acl in chain.from_iterable(patterns.about(name)):
                if acl.host not in hosts:
                    continue
                if acl.permission is Permission.DENY:
                    if acl.operation in denied_by:
                        return Verdict(False, "denied by a rule", acl)
                elif allowing is None and acl.operation in allowed_by:
                    allowing = acl
        if allowing is not None:
            return Verdict(True, "allowed by a rule", allowing)
        if rules.has_about(name):
            return Verdict(False, "no rule matches")
        return Verdict(self._allow_if_no_rule, "no rule about the resource")

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether a principal may do something with at least some resource of a type (KIP-679).

        Implied operations do not count, as in Kafka.
        """
        question = host, operation, resource_type, None
        answer = self._answers.get(principal, {}).get(question)
        if answer is None:
            answer = self.allows(principal, host, operation, resource_type, ANY_NAME) or self._allows_some(
                principal, host, operation, self._rules[resource_type]
            )
            self._cache_answer(principal, question, answer)
        return answer

    @staticmethod
    def _allows_some(principal: str, host: str, operation: Operation, rules: _RulesOfType) -> bool:
        allowed, denied, hosts = [], _Patterns(), _hosts_of(host)
        for acl in chain.from_iterable(rules.of(principal)):
            if acl.operation in (operation, Operation.ALL) and acl.host in hosts:
                if acl.permission is Permission.DENY:
                    denied.add(acl)
                else:
                    allowed.append(acl)
        return any(not denied.cover(each) for each in allowed)

    def _cache_answer(self, principal: str, question: _Question, answer: bool) -> None:
        if self._kept >= MAX_KEPT_ANSWERS:
            self._forget()
        self._answers.setdefault(principal, {})[question] = answer
        self._kept += 1

    def _forget(self) -> None:
        self._answers.clear()
        self._kept = 0
