"""raftlog_chaos.checkers.rights: what is wrong with what users were let do, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from raftlog.security.scram import ScramCredential
from raftlog_chaos.checkers.rights import Rights, RightsBook

NAMES = ("t", "tt", "u")
HOSTS = ("10.0.0.1", "10.0.0.2")
USERS = ("ann", "ben")
KEPT = ScramCredential(b"salt", 4096, b"stored", b"server")


def rule(user: str = "ann", operation: Operation = Operation.READ, **changes: Any) -> Acl:
    given = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "t",
        "pattern_type": PatternType.LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission": Permission.ALLOW,
    }
    return Acl(**(given | changes))


READ_T, WRITE_T = rule(), rule(operation=Operation.WRITE)
ONE, BOTH = frozenset({READ_T}), frozenset({READ_T, WRITE_T})


def may_read(rights: Rights) -> bool:
    return rights.allows("ann", HOSTS[0], Operation.READ, "t")


class Told:
    """A book in which node 1 began at 0, took {READ} at 10, and {} again at 20."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.book = RightsBook(self.faults.append)
        self.book.began(1, 0.0)
        for at, state in ((10.0, ONE), (20.0, BOTH - ONE)):
            self.book.ask(Rights(state))
            self.book.take(1, at, rules=state, credentials=())
            self.book.acknowledge()

    def judge(self, since: float, until: float, *, let_in: bool) -> list[str]:
        self.book.judge("a fetch", self.book.lives[1], may_read, let_in=let_in, between=(since, until))
        return self.faults


@pytest.mark.parametrize(
    ("since", "until", "let_in", "wrong"),
    [
        (1, 2, False, ""),
        (1, 2, True, "let a fetch pass"),
        (9, 11, True, ""),
        (9, 11, False, ""),
        (11, 12, True, ""),
        (11, 12, False, "refused a fetch"),
        (19, 21, True, ""),
        (20, 21, True, "let a fetch pass"),
        (20, 21, False, ""),
    ],
)
def test_an_answer_must_fit_a_moment_in_which_it_may_have_been_decided(
    since: float, until: float, let_in: bool, wrong: str
) -> None:
    """From the moment at which a broker applied a change, the earlier state is no excuse."""
    faults = Told().judge(since, until, let_in=let_in)
    assert len(faults) == bool(wrong) and wrong in "".join(faults)


def test_rights_without_an_acl_are_found() -> None:
    """A lost rule and a rule too many; asked for and not acknowledged is no fault."""
    told = Told()
    told.book.ask(Rights(BOTH))
    told.book.take(1, 30.0, rules=BOTH, credentials=())
    assert not told.faults and told.book.have_all([1])
    told.book.take(1, 31.0, rules=[rule("mallory")], credentials=())
    assert "2 rules fewer and 1 more" in told.faults[0] and "User:mallory" in told.faults[0]
    told.book.take(1, 32.0, rules=BOTH, credentials=[(("ann", "SCRAM-SHA-256"), KEPT)])
    assert "users ['ann']" in told.faults[1]


def test_a_broker_that_goes_back_is_found() -> None:
    """Within one life; a new life begins empty, but serves no client before it has every acknowledged change."""
    told = Told()
    told.book.take(1, 30.0, rules=ONE, credentials=())
    assert "went back from rights 2 to 1" in told.faults.pop()
    told.book.began(1, 40.0)
    told.book.take(1, 41.0, rules=ONE, credentials=())
    assert not told.faults
    told.judge(41.5, 42.0, let_in=True)
    assert "before it knew of rights 2" in told.faults[0]


def test_a_password_admits_its_user_only_while_it_is_the_users() -> None:
    """A removed user has no password, nor has a user that never existed."""
    rights = Rights(passwords={"ann": "x"})
    assert rights.admits("ann", "x")
    assert not rights.admits("ann", "y") and not rights.admits("ben", "x")


rules = st.builds(
    rule,
    user=st.sampled_from((*USERS, "*")),
    operation=st.sampled_from([each for each in Operation if each > Operation.ANY]),
    resource_name=st.sampled_from((*NAMES, "*")),
    pattern_type=st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    host=st.sampled_from((*HOSTS, "*")),
    permission=st.sampled_from((Permission.ALLOW, Permission.DENY)),
)


@given(
    st.frozensets(rules, max_size=6),
    st.sampled_from(USERS),
    st.sampled_from(HOSTS),
    st.sampled_from((Operation.READ, Operation.WRITE, Operation.DESCRIBE)),
    st.sampled_from(NAMES),
)
def test_the_checkers_own_rule_is_the_authorizers(
    rules: frozenset[Acl], user: str, host: str, operation: Operation, topic: str
) -> None:
    """Two programs for one table of StandardAuthorizer: this one looks at every rule."""
    authorizer = Authorizer(rules)
    expected = authorizer.allows(f"User:{user}", host, operation, ResourceType.TOPIC, topic)
    assert Rights(rules).allows(user, host, operation, topic) == expected
