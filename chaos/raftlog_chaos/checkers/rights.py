"""Judges authorization by the administrator's ACLs and passwords, and by the time at which each broker got them.

The administrator makes one change at a time, so there is a sequence of states, and each broker has one state at any
moment. A broker that has replayed a change applies it from then on. Whether a state allows an operation is decided here
by looking at every rule, without the authorizer under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential

CredentialKey = tuple[str, str]
"""User and mechanism."""

IMPLYING: Final = {
    Operation.READ: {Operation.DESCRIBE},
    Operation.WRITE: {Operation.DESCRIBE},
    Operation.DELETE: {Operation.DESCRIBE},
    Operation.ALTER: {Operation.DESCRIBE},
}
"""The operations that another right implies."""


class Rights(NamedTuple):
    """The rules and the users at one time, and the users' passwords, which brokers do not know."""

    rules: frozenset[Acl] = frozenset()
    credentials: frozenset[tuple[CredentialKey, ScramCredential]] = frozenset()
    passwords: Mapping[str, str] = {}

    def allows(self, user: str, host: str, operation: Operation, topic: str) -> bool:
        """Return whether a user may do something with a topic (KIP-11, KIP-290)."""
        verdicts = {
            rule.permission for rule in self.rules if _concerns(rule, user, host, topic, operation=operation)
        }
        return verdicts == {Permission.ALLOW}

    def admits(self, user: str, password: str) -> bool:
        """Return whether a user gets in with a password."""
        return self.passwords.get(user) == password


def _concerns(rule: Acl, user: str, host: str, topic: str, *, operation: Operation) -> bool:
    if rule.resource_type is not ResourceType.TOPIC:
        return False
    if rule.pattern_type is PatternType.PREFIXED:
        about = topic.startswith(rule.resource_name)
    else:
        about = rule.resource_name in ("*", topic)
    covered = {rule.operation}
    if rule.permission is Permission.ALLOW:
        covered |= IMPLYING.get(rule.operation, set())
    return (
        about
        and rule.principal in (f"User:{user}", "User:*")
        and rule.host in (host, "*")
        and bool(covered & {operation, Operation.ALL})
    )


class Life:
    """One life of a broker: the states that it replayed, and when. `least`: it serves no client before this state."""

    def __init__(self, node_id: int, began_at: float, least: int) -> None:
        self.node_id = node_id
        self.least = least
        self.taken = [(began_at, 0)]

    def in_force(self, since: float, until: float) -> list[int]:
        """Return the numbers of the states that it went by at some moment between two."""
        before = [number for at, number in self.taken if at <= since]
        return before[-1:] + [number for at, number in self.taken if since < at <= until]


class RightsBook:
    """The sequence of states, the states of each broker, and every wrong answer to a user."""

    def __init__(self, blame: Callable[[str], object]) -> None:
        self._blame = blame
        self.states = [Rights()]
        self.acknowledged = 0
        """The number of the newest state that a broker acknowledged to the administrator."""
        self.judged = 0
        self._numbers = {_key(self.states[0]): 0}
        self.lives: dict[int, Life] = {}
        """The newest life of each broker."""

    @property
    def newest(self) -> Rights:
        """Return the state that the administrator has asked for last."""
        return self.states[-1]

    # -- the administrator

    def ask(self, state: Rights) -> None:
        """Record that the administrator requests a state, which may be in force from now on. No two are equal."""
        assert _key(state) not in self._numbers, "states can be told apart"
        self._numbers[_key(state)] = len(self.states)
        self.states.append(state)

    def acknowledge(self) -> None:
        """Record that a broker applies the newest state."""
        self.acknowledged = len(self.states) - 1

    # -- the brokers

    def began(self, node_id: int, now: float) -> None:
        """Record a new life of a broker: before it listens it knows every state that is acknowledged by now."""
        self.lives[node_id] = Life(node_id, now, self.acknowledged)

    def take(
        self,
        node_id: int,
        now: float,
        *,
        rules: Iterable[Acl],
        credentials: Iterable[tuple[CredentialKey, ScramCredential]],
    ) -> None:
        """Record the rules and users that a broker applies from now on."""
        key = frozenset(rules), frozenset(credentials)
        number = self._numbers.get(key)
        if number is None:
            self._blame(f"node {node_id} goes by rights that nobody made: {self._difference(key)}")
            return
        taken = self.lives[node_id].taken
        if number < taken[-1][1]:
            self._blame(f"node {node_id} went back from rights {taken[-1][1]} to {number}")
        taken.append((now, number))

    def _difference(self, key: _Key) -> str:
        rules, credentials = _key(self.newest)
        lost, more = rules - key[0], key[0] - rules
        users = {each for (each, _), _ in credentials} ^ {each for (each, _), _ in key[1]}
        told = [f"{len(lost)} rules fewer and {len(more)} more than the newest"]
        told += [f"without {each}" for each in sorted(map(str, lost))[:2]]
        told += [f"with {each}" for each in sorted(map(str, more))[:2]]
        return ", ".join(told) + (f"; users {sorted(users)}" if users else "")

    def have_all(self, node_ids: Iterable[int]) -> bool:
        """Return whether brokers go by the newest state."""
        newest = len(self.states) - 1
        return all(self.lives[each].taken[-1][1] == newest for each in node_ids)

    # -- the users

    def judge(
        self,
        what: str,
        life: Life,
        allows: Callable[[Rights], bool],
        *,
        let_in: bool,
        between: tuple[float, float],
    ) -> None:
        """Judge an answer that a broker decided on at some moment between two."""
        self.judged += 1
        numbers = life.in_force(*between)
        if numbers[-1] < life.least:
            self._blame(f"node {life.node_id} served {what} before it knew of rights {life.least}")
        allowed = [allows(self.states[each]) for each in numbers]
        if let_in and not any(allowed):
            self._blame(f"node {life.node_id} let {what} pass, which rights {numbers} do not allow")
        if not let_in and all(allowed):
            self._blame(f"node {life.node_id} refused {what}, which rights {numbers} allow")


_Key = tuple[frozenset[Acl], frozenset[tuple[CredentialKey, ScramCredential]]]


def _key(rights: Rights) -> _Key:
    return rights.rules, rights.credentials
