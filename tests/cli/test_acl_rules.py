"""Claims about the rules that the words of kafka-acls stand for."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.cli.acl.rules import Asked, filters, rules
from raftlog.cli.exits import Failure
from raftlog.security.acls import Operation, PatternType, Permission, ResourceType
from tests.cli.live import invoke

ALICE = "User:alice"


def _said(asked: Asked) -> list[str]:
    return [str(each) for each in rules(asked)]


def test_every_user_and_host_gets_each_operation_on_each_resource() -> None:
    """As kafka-acls: the product of the options; ALL operations and every host by default."""
    asked = Asked(
        topics=("a", "b"),
        allow_principals=(ALICE, "User:bob"),
        deny_principals=("User:eve",),
        deny_hosts=("10.0.0.1",),
        operations=(Operation.READ,),
        pattern_type=PatternType.PREFIXED,
    )
    assert _said(asked) == [
        f"{rule} on TOPIC PREFIXED {topic}"
        for topic in "ab"
        for rule in (
            "ALLOW User:alice READ from *",
            "ALLOW User:bob READ from *",
            "DENY User:eve READ from 10.0.0.1",
        )
    ]
    assert _said(Asked(groups=("g",), allow_principals=(ALICE,))) == [
        "ALLOW User:alice ALL from * on GROUP LITERAL g"
    ]


def test_a_producer_and_a_consumer_get_what_kafka_acls_gives_them() -> None:
    """Also both at once; the cluster is never a prefix."""
    both = Asked(
        topics=("t",),
        groups=("g",),
        transactional_ids=("x",),
        allow_principals=(ALICE,),
        pattern_type=PatternType.PREFIXED,
        producer=True,
        consumer=True,
        idempotent=True,
    )
    found = {
        (each.resource_type, each.pattern_type, each.resource_name, each.operation) for each in rules(both)
    }
    prefixed = PatternType.PREFIXED
    assert found == {
        *(
            (ResourceType.TOPIC, prefixed, "t", operation)
            for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.READ)
        ),
        (ResourceType.TRANSACTIONAL_ID, prefixed, "x", Operation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, prefixed, "x", Operation.DESCRIBE),
        (ResourceType.GROUP, prefixed, "g", Operation.READ),
        (ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster", Operation.IDEMPOTENT_WRITE),
    }


def test_filters_are_for_the_same_rules_or_for_all_of_a_resource() -> None:
    """The words of `add` remove what it made; without users, all rules of the resource go."""
    exact = Asked(topics=("t",), allow_principals=(ALICE,), producer=True)
    assert [each[:6] for each in filters(exact)] == [
        (each.resource_type, each.resource_name, each.pattern_type, each.principal, each.host, each.operation)
        for each in rules(exact)
    ]
    (found,) = filters(Asked(topics=("t",), pattern_type=PatternType.MATCH))
    assert found == (
        ResourceType.TOPIC, "t", PatternType.MATCH, None, None, Operation.ANY, Permission.ANY
    )  # fmt: skip
    (every,) = filters(Asked(), [ALICE])
    assert every == (
        ResourceType.ANY, None, PatternType.ANY, ALICE, None, Operation.ANY, Permission.ANY
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topics": ("t",)}, "name a principal"),
        ({"allow_principals": (ALICE,)}, "name a resource"),
        ({"topics": ("t",), "allow_principals": ("alice",)}, "must be User:NAME, but is 'alice'"),
        ({"topics": ("t",), "deny_principals": (":x",)}, "--deny-principal"),
        (
            {"topics": ("t",), "allow_principals": (ALICE,), "allow_hosts": ("one.example",)},
            "an address or *",
        ),
        (
            {"topics": ("t",), "allow_principals": (ALICE,), "deny_hosts": ("*",)},
            "goes with --deny-principal",
        ),
        ({"topics": ("",), "allow_principals": (ALICE,)}, "--topic: a name is empty"),
        (
            {"groups": ("g",), "allow_principals": (ALICE,), "operations": (Operation.WRITE,)},
            "--operation WRITE: a GROUP has READ",
        ),
        (
            {"topics": ("t",), "allow_principals": (ALICE,), "pattern_type": PatternType.MATCH},
            "literal or prefixed",
        ),
        ({"topics": ("t",), "allow_principals": (ALICE,), "idempotent": True}, "goes with --producer"),
        ({"topics": ("t",), "allow_principals": (ALICE,), "consumer": True}, "--consumer needs --group"),
        ({"allow_principals": (ALICE,), "producer": True}, "need --topic"),
        ({"topics": ("t",), "producer": True}, "need --allow-principal"),
        (
            {"topics": ("t",), "deny_principals": (ALICE,), "producer": True},
            "cannot be combined with --operation and --deny-principal",
        ),
        (
            {"topics": ("t",), "groups": ("g",), "allow_principals": (ALICE,), "producer": True},
            "--group goes with --consumer",
        ),
        (
            {"topics": ("t",), "allow_principals": (ALICE,), "producer": True, "cluster": True},
            "combined with --cluster",
        ),
    ],
)
def test_words_that_do_not_go_together_are_refused(wrong: dict[str, Any], said: str) -> None:
    """Before any cluster is asked, with the option to mend."""
    with pytest.raises(Failure) as refused:
        rules(Asked(**wrong))
    assert said in str(refused.value)
    assert refused.value.code == exits.USAGE


def test_operations_are_read_as_kafka_writes_them() -> None:
    """DescribeConfigs, describe_configs, DESCRIBE-CONFIGS; the error for another word lists the operations."""
    for word in ("fly", "any", "unknown"):
        code, _, said = invoke("acl", "add", "--allow-principal", ALICE, "--cluster", "--operation", word)
        assert code == exits.USAGE and "DESCRIBE_CONFIGS" in said
    code, _, said = invoke("acl", "add", "--operation", "DescribeConfigs", "--cluster")
    assert code == exits.USAGE and "--operation goes with" in said


def test_only_words_that_can_be_written_are_offered_for_a_new_rule() -> None:
    """`any` and `match` look for rules: help of `add` does not name them, that of `list` and `remove` does."""
    assert "match" not in invoke("acl", "add", "--help")[1]
    assert all("match" in invoke("acl", verb, "--help")[1] for verb in ("list", "delete"))
    code, _, said = invoke("acl", "add", "--topic", "x", "--resource-pattern-type", "any")
    assert code == exits.USAGE and "'any' is not one of 'literal', 'prefixed'" in said


def test_a_rule_about_somebodys_tokens_names_a_principal() -> None:
    """As Kafka's authorizer is asked: USER User:alice, not alice."""
    asked = Asked(users=(ALICE,), allow_principals=("User:bob",), operations=(Operation.DESCRIBE_TOKENS,))
    assert _said(asked) == ["ALLOW User:bob DESCRIBE_TOKENS from * on USER LITERAL User:alice"]
    with pytest.raises(Failure, match="--user-principal: must be User:NAME, but is 'alice'"):
        rules(Asked(users=("alice",), allow_principals=("User:bob",)))
