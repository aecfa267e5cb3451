"""The authorizer against a model that reads all rules for each question."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.security import authorizer as authorizers
from raftlog.security.acls import (
    EVERY_USER,
    IMPLIED_BY,
    OPERATIONS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from raftlog.security.authorizer import Authorizer

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE, BOB = "User:alice", "User:bob"
HERE = "127.0.0.1"

names = st.sampled_from(["*", "a", "ab", "abc", "b", "ba", "orders", "ord"])
rules = st.builds(
    Acl,
    resource_type=st.sampled_from([TOPIC, GROUP]),
    resource_name=names,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from([EVERY_USER, ALICE, BOB]),
    host=st.sampled_from(["*", HERE, "10.0.0.1"]),
    operation=st.sampled_from([Operation.ALL, *OPERATIONS[TOPIC]]),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
questions = st.tuples(
    st.sampled_from([ALICE, BOB]),
    st.just(HERE),
    st.sampled_from(OPERATIONS[TOPIC]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "abc", "abcd", "b", "orders", "*", "hardcode"]),
)


def model(acls, principal, host, operation, resource_type, name, *, allow_if_no_rule=False):
    """Answer as the documents of Kafka's authorizer say, with no index."""
    about = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name in ("*", name)
        )
    ]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(a.permission == Permission.DENY and a.operation in (operation, Operation.ALL) for a in mine):
        return False
    granting = IMPLIED_BY.get(operation, {operation}) | {Operation.ALL, operation}
    if any(a.permission == Permission.ALLOW and a.operation in granting for a in mine):
        return True
    return allow_if_no_rule and not about


@given(st.lists(rules, max_size=12, unique=True), st.lists(questions, min_size=1, max_size=8), st.booleans())
def test_answers_are_those_of_the_model_while_rules_come_and_go(acls, asked, lax):
    """Source: the documents of Kafka's StandardAuthorizer; rules come in any order, and some go."""
    authorizer = Authorizer(allow_if_no_rule=lax)
    for acl in acls:
        authorizer.change(added=[acl])
        for question in asked:
            authorizer.allows(*question)
    gone, kept = acls[::2], acls[1::2]
    authorizer.change(removed=gone)
    for question in asked:
        assert authorizer.allows(*question) == model(kept, *question, allow_if_no_rule=lax)
        assert authorizer.verdict(*question).allowed == authorizer.allows(*question)


@given(st.lists(rules, max_size=12, unique=True), st.lists(questions, min_size=1, max_size=8), st.booleans())
def test_no_answer_changes_in_one_version_of_a_principals_rules(acls, asked, lax):
    """Caches of derived results check the version only."""
    authorizer = Authorizer(allow_if_no_rule=lax)
    for change in [*({"added": [each]} for each in acls), *({"removed": [each]} for each in acls)]:
        before = [(authorizer.version(each[0]), authorizer.allows(*each)) for each in asked]
        authorizer.change(**change)
        for question, (version, answer) in zip(asked, before, strict=True):
            now = authorizer.version(question[0])
            assert now > version or (now, authorizer.allows(*question)) == (version, answer)


def test_a_rule_about_others_is_no_new_version(monkeypatch):
    """Each rule of thousands would otherwise have every cache checked; very many notes become one note about all
    principals.
    """
    authorizer = Authorizer(super_users=["User:root"])
    before = authorizer.version(ALICE)
    authorizer.change(added=[allow(Operation.READ, "t", principal=BOB)])
    assert (authorizer.version(ALICE), authorizer.version("User:root")) == (before, 0)
    assert authorizer.version(BOB) > before
    monkeypatch.setattr(authorizers, "MAX_NOTED_PRINCIPALS", 1)
    authorizer.change(added=[allow(Operation.READ, "t", principal="User:carol")])
    assert authorizer.version(ALICE) > before and not authorizer._changed_for


def allow(operation, name, pattern=PatternType.LITERAL, principal=ALICE, host="*", kind=TOPIC):
    return Acl(kind, name, pattern, principal, host, operation, Permission.ALLOW)


def deny(operation, name, pattern=PatternType.LITERAL, principal=ALICE, host="*", kind=TOPIC):
    return Acl(kind, name, pattern, principal, host, operation, Permission.DENY)


def test_a_super_user_passes_a_deny():
    """Super users come before any rule. Source: Kafka, super.users."""
    authorizer = Authorizer([deny(Operation.ALL, "*")], super_users=[ALICE])
    assert authorizer.verdict(ALICE, HERE, Operation.READ, TOPIC, "t") == (True, "super user", None)


def test_a_deny_of_read_leaves_describe():
    """Implied operations are for ALLOW only."""
    authorizer = Authorizer([allow(Operation.WRITE, "t"), deny(Operation.READ, "t")])
    assert authorizer.allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "t")
    assert not authorizer.allows(ALICE, HERE, Operation.READ, TOPIC, "t")


def test_the_verdict_names_its_rule():
    """An administrator that asks for the reason gets the rule that decided."""
    rule = deny(Operation.WRITE, "or", PatternType.PREFIXED)
    authorizer = Authorizer([allow(Operation.WRITE, "orders"), rule])
    assert authorizer.verdict(ALICE, HERE, Operation.WRITE, TOPIC, "orders") == (
        False,
        "denied by a rule",
        rule,
    )


def test_any_topic_will_do_unless_all_that_are_allowed_are_denied():
    """InitProducerId asks so for an idempotent producer (KIP-679)."""
    some = Authorizer([allow(Operation.WRITE, "a"), deny(Operation.WRITE, "a")])
    assert not some.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    some.change(added=[allow(Operation.WRITE, "ab", PatternType.PREFIXED)])
    assert some.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    some.change(added=[deny(Operation.ALL, "a", PatternType.PREFIXED)])
    assert not some.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    some.change(added=[allow(Operation.WRITE, "*")])
    assert some.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    some.change(added=[deny(Operation.WRITE, "*")])
    assert not some.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)


def test_what_no_rule_is_about_is_allowed_by_a_setting_and_by_no_rule():
    """allow.everyone.if.no.acl.found counts for some listeners only."""
    authorizer = Authorizer([allow(Operation.READ, "t")], super_users=[BOB], allow_if_no_rule=True)
    for principal, topic, is_by_rule in ((ALICE, "t", True), (ALICE, "other", False), (BOB, "other", True)):
        verdict = authorizer.verdict(principal, HERE, Operation.READ, TOPIC, topic)
        assert (verdict.allowed, verdict.is_by_rule) == (True, is_by_rule)
    assert not authorizer.verdict(ALICE, HERE, Operation.WRITE, TOPIC, "t").is_by_rule


def test_a_filter_that_matches_finds_what_concerns_a_resource():
    """MATCH finds wildcards and prefixes, ANY only rules that are written so. Source: KIP-290."""
    wildcard, prefixed = allow(Operation.READ, "*"), allow(Operation.READ, "or", PatternType.PREFIXED)
    literal, other = allow(Operation.READ, "orders"), allow(Operation.READ, "ord")

    def found(pattern):
        asked = AclFilter(TOPIC, "orders", pattern, None, None, Operation.ANY, Permission.ANY)
        return [acl for acl in (wildcard, prefixed, literal, other) if asked.matches(acl)]

    assert found(PatternType.MATCH) == [wildcard, prefixed, literal]
    assert found(PatternType.ANY) == [literal]
    assert found(PatternType.PREFIXED) == []


def test_answers_about_long_names_are_not_kept():
    """They are as clients send them, and what is kept counts in no account."""
    authorizer = Authorizer()
    for length in (249, 250):
        authorizer.allows(ALICE, HERE, Operation.READ, TOPIC, "t" * length)
    assert [len(name) for *_, name in authorizer._answers[ALICE]] == [249]


def count_lines(call):
    """Return how many lines of the authorizer a call runs."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        if not frame.f_code.co_filename.endswith("raftlog/security/authorizer.py"):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def of_many(users):
    """Ten rules of each user, half of them about one topic that all share, and about everything that some may see."""
    for user in range(users):
        for number in range(10):
            pattern = PatternType.PREFIXED if number % 4 == 1 else PatternType.LITERAL
            name = "shared" if number % 2 else f"t-{user}-{number}"
            yield allow(
                list(OPERATIONS[TOPIC])[number % 8], name, pattern, f"User:{user}", f"10.0.0.{number}"
            )


@pytest.mark.parametrize(
    "work",
    [
        lambda it: it.verdict("User:3", HERE, Operation.DELETE, TOPIC, "shared"),
        lambda it: it.verdict("User:nobody", HERE, Operation.DELETE, TOPIC, "shared-too"),
        lambda it: it.allows_any("User:3", HERE, Operation.DELETE, TOPIC),
        lambda it: it.change(added=[deny(Operation.ALL, "shared", PatternType.PREFIXED)]),
        lambda it: it.change(removed=[next(of_many(1))]),
    ],
    ids=["verdict", "verdict-of-a-stranger", "any", "add", "remove"],
)
def test_work_is_the_same_with_ten_thousand_rules_as_with_a_hundred(work):
    """A check costs what concerns its principal, a change what changes."""
    few, many = Authorizer(of_many(10)), Authorizer(of_many(1_000))
    for authorizer in (few, many):
        for user in range(10):
            authorizer.allows(f"User:{user}", HERE, Operation.READ, TOPIC, "shared")
    assert count_lines(lambda: work(many)) == count_lines(lambda: work(few)) < 250


def test_a_rule_of_one_user_leaves_the_answers_of_others():
    """With 1,000 users a change would else cost all of them a new look."""
    authorizer = Authorizer([allow(Operation.READ, "t"), allow(Operation.READ, "t", principal=BOB)])
    for user in (ALICE, BOB):
        assert authorizer.allows(user, HERE, Operation.READ, TOPIC, "t")
    authorizer.change(added=[deny(Operation.READ, "t")])
    assert authorizer._answers.keys() == {BOB}
    assert not authorizer.allows(ALICE, HERE, Operation.READ, TOPIC, "t")
    authorizer.change(added=[deny(Operation.READ, "t", principal=EVERY_USER)])
    assert not authorizer.allows(BOB, HERE, Operation.READ, TOPIC, "t")


def test_the_answers_that_are_kept_are_bounded(monkeypatch):
    """Changes take them out of the count, too."""
    monkeypatch.setattr(authorizers, "MAX_KEPT_ANSWERS", 5)
    authorizer = Authorizer()
    for number in range(23):
        authorizer.allows(f"User:{number % 3}", HERE, Operation.READ, TOPIC, f"t{number}")
        if number % 7 == 0:
            authorizer.change(added=[allow(Operation.READ, f"t{number}", principal="User:1")])
        kept = sum(map(len, authorizer._answers.values()))
        assert kept == authorizer._kept <= 5


def test_a_rule_may_spell_an_ipv6_address_as_java_does_or_short():
    """Rules that come from a Kafka cluster have the long spelling; a DENY among them must not be lost."""
    authorizer = Authorizer(
        [allow(Operation.READ, "t"), deny(Operation.READ, "t", host="fe80:0:0:0:0:0:0:1a")]
    )
    assert not authorizer.allows(ALICE, "fe80::1a", Operation.READ, TOPIC, "t")
    assert authorizer.allows(ALICE, "fe80::1", Operation.READ, TOPIC, "t")
    authorizer.change(
        added=[deny(Operation.READ, "t", host="::1"), deny(Operation.READ, "t", host="10.0.0.1")]
    )
    assert not authorizer.allows(ALICE, "::1", Operation.READ, TOPIC, "t")
    assert not authorizer.allows(ALICE, "::ffff:10.0.0.1", Operation.READ, TOPIC, "t")
    assert authorizer.allows(ALICE, "not:an:address", Operation.READ, TOPIC, "t")
