"""An administrator that creates and removes ACLs and users, one change at a time, each until it is done.

A change with an unknown outcome is retried, and may be carried out twice. So the next change waits until no earlier
request can still take effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from msgspec.structs import astuple

from raftlog.base.errors import ResourceNotFound
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import MIN_ITERATIONS, NUMBERS, ScramCredential, from_salted
from raftlog_chaos.checkers.rights import CredentialKey, Rights, RightsBook
from raftlog_chaos.workloads.guest import GROUPS
from raftlog_chaos.workloads.login import salted_password
from raftlog_chaos.workloads.mover import LINGERS_S
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.producer import RETRIABLE
from raftlog_chaos.workloads.raw_client import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AWAY,
    CREATE_ACLS,
    DELETE_ACLS,
    Client,
    shapes,
)

NOT_CONTROLLER: Final = 41
NOBODY: Final = "nobody"
AGAIN_S: Final = 0.05
PAUSES_S: Final = (0.0, 0.005, 0.02, 0.1, 0.3)
RULES_AT_MOST: Final = 25
"""Without the notes; so rules are deleted about as fast as they are created."""


GROUPS_RULE: Final = Acl(
    ResourceType.GROUP, GROUPS, PatternType.PREFIXED, "User:*", "*", Operation.READ, Permission.ALLOW
)
"""All users may use the groups of guests; the rights that change are rights on topics."""


class User(NamedTuple):
    """The login of a user, and the address of its client."""

    mechanism: str
    host: str


class RightsAdmin:
    """`run` changes rights until `stopping`."""

    def __init__(
        self,
        client: Client,
        *,
        book: RightsBook,
        history: Observations,
        chance: random.Random,
        topics: Sequence[str],
        users: Mapping[str, User],
    ) -> None:
        self.client = client
        self.stopping = False
        self.done = False
        self._book = book
        self._history = history
        self._chance = chance
        self._topics = tuple(topics)
        self._users = dict(users)
        self._numbers = count(1)

    async def run(self) -> None:
        for user in self._users:
            await self._set_password(user)
        await self._create([GROUPS_RULE, *(self._rule() for _ in range(10))])
        while not self.stopping:
            await self._change()
            await asyncio.sleep(self._chance.random() * self._chance.choice(PAUSES_S))
        self.done = True

    async def _change(self) -> None:
        chance, newest = self._chance, self._book.newest
        rules = sorted(
            (each for each in newest.rules - {GROUPS_RULE} if not _is_note(each)),
            key=str,
        )
        kind = chance.random()
        if kind < 0.12:
            await self._set_password(chance.choice(sorted(self._users)))
        elif kind < 0.2 and newest.passwords:
            await self._remove_user(chance.choice(sorted(newest.passwords)))
        elif rules and (kind < 0.5 or len(rules) > RULES_AT_MOST):
            await self._delete(chance.choice(rules), all_of_user=chance.random() < 0.2)
        else:
            await self._create([self._rule() for _ in range(chance.randint(1, 3))])

    def _rule(self) -> Acl:
        """Return a rule, which mostly allows; a DENY is about one topic, or soon every request would be denied."""
        chance = self._chance
        user = chance.choice(sorted(self._users))
        topic = chance.choice(self._topics)
        denies = chance.random() < 0.12
        pattern, name = chance.choice(
            (
                (PatternType.LITERAL, topic),
                (PatternType.LITERAL, topic),
                (PatternType.PREFIXED, topic[: chance.randint(1, len(topic))]),
                (PatternType.LITERAL, "*"),
            )[: 1 if denies else 4]
        )
        operations = (
            Operation.READ,
            Operation.READ,
            Operation.READ,
            Operation.WRITE,
            Operation.DESCRIBE,
            Operation.ALTER,
            Operation.ALL,
        )
        return Acl(
            ResourceType.TOPIC,
            name,
            pattern,
            "User:*" if chance.random() < 0.1 else f"User:{user}",
            self._users[user].host if chance.random() < 0.15 else "*",
            chance.choice(operations),
            Permission.DENY if denies else Permission.ALLOW,
        )

    # -- changes

    async def _create(self, rules: Sequence[Acl]) -> None:
        """Create rules, and with them a rule that matches no user: so no two states are equal."""
        note = Acl(
            ResourceType.TOPIC,
            f"note-{next(self._numbers)}",
            PatternType.LITERAL,
            f"User:{NOBODY}",
            "*",
            Operation.DESCRIBE,
            Permission.ALLOW,
        )
        make = shapes(CREATE_ACLS)
        request = make.CreateAclsRequest(
            creations=tuple(make.AclCreation(**each.creation_fields()) for each in (*rules, note))
        )
        newest = self._book.newest
        await self._reach(
            newest._replace(rules=newest.rules | {*rules, note}),
            CREATE_ACLS,
            request,
            codes=lambda answer: answer.results,
        )

    async def _delete(self, rule: Acl, *, all_of_user: bool) -> None:
        """Delete one rule, or all about its principal."""
        make = shapes(DELETE_ACLS)
        asked = AclFilter(*astuple(rule))
        if all_of_user:
            asked = AclFilter(
                ResourceType.TOPIC, None, PatternType.ANY, rule.principal, None, Operation.ANY, Permission.ANY
            )
        newest = self._book.newest
        gone = {
            each
            for each in newest.rules - {GROUPS_RULE}
            if each == rule or (all_of_user and each.principal == rule.principal)
        }
        await self._reach(
            newest._replace(rules=newest.rules - gone),
            DELETE_ACLS,
            make.DeleteAclsRequest(filters=(make.DeleteAclsFilter(**asked.fields()),)),
            codes=lambda answer: answer.filter_results,
        )

    async def _set_password(self, user: str) -> None:
        password = f"{user}'s {next(self._numbers)}"
        upsertion, made = self._upsertion(user, self._users[user].mechanism, password)
        newest = self._book.newest
        await self._reach(
            newest._replace(
                credentials=_others(newest, user) | {made}, passwords={**newest.passwords, user: password}
            ),
            ALTER_USER_SCRAM_CREDENTIALS,
            shapes(ALTER_USER_SCRAM_CREDENTIALS).AlterUserScramCredentialsRequest(
                deletions=(), upsertions=(upsertion,)
            ),
            codes=lambda answer: answer.results,
        )

    async def _remove_user(self, user: str) -> None:
        """Remove a user, and change another user that never logs in: so no two states are equal."""
        make = shapes(ALTER_USER_SCRAM_CREDENTIALS)
        deletion = make.ScramCredentialDeletion(name=user, mechanism=NUMBERS[self._users[user].mechanism])
        upsertion, made = self._upsertion(NOBODY, "SCRAM-SHA-256", "nobody's")
        newest = self._book.newest
        others = frozenset(each for each in _others(newest, user) if each[0][0] != NOBODY)
        await self._reach(
            newest._replace(
                credentials=others | {made},
                passwords={each: kept for each, kept in newest.passwords.items() if each != user},
            ),
            ALTER_USER_SCRAM_CREDENTIALS,
            make.AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=(upsertion,)),
            codes=lambda answer: answer.results,
        )

    def _upsertion(
        self, user: str, mechanism: str, password: str
    ) -> tuple[Any, tuple[CredentialKey, ScramCredential]]:
        """Return a password with a new salt, for the wire and as brokers keep it."""
        salt = b"salt %06d" % next(self._numbers)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        asked = shapes(ALTER_USER_SCRAM_CREDENTIALS).ScramCredentialUpsertion(
            name=user,
            mechanism=NUMBERS[mechanism],
            iterations=MIN_ITERATIONS,
            salt=salt,
            salted_password=salted,
        )
        return asked, ((user, mechanism), from_salted(mechanism, salted, salt, MIN_ITERATIONS))

    # -- the wire

    async def _reach(self, state: Rights, api_key: int, request: Any, *, codes: Any) -> None:
        """Retry until a broker reports that the state is in force."""
        self._book.ask(state)
        doubtful = False
        while not await self._ask(api_key, request, codes, again=doubtful):
            doubtful = True
            await asyncio.sleep(AGAIN_S)
        self._book.acknowledge()
        if doubtful:
            await asyncio.sleep(LINGERS_S)

    async def _ask(self, api_key: int, request: Any, codes: Any, *, again: bool) -> bool:
        """Send the request once; returns whether it is done. In a retry a removed user may be gone already."""
        try:
            answer = await self.client.ask_any(api_key, request)
        except AWAY:
            return False
        found = {int(each.error_code) for each in codes(answer)} - {0}
        if again:
            found -= {ResourceNotFound.code}
        if odd := found - RETRIABLE - {NOT_CONTROLLER}:
            self._history.blame(f"API {api_key}: a change of rights was refused with errors {sorted(odd)}")
        return not found


def _is_note(rule: Acl) -> bool:
    return rule.principal == f"User:{NOBODY}"


def _others(rights: Rights, user: str) -> frozenset[tuple[CredentialKey, ScramCredential]]:
    return frozenset(each for each in rights.credentials if each[0][0] != user)
