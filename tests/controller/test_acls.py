"""CreateAcls and DeleteAcls: each rule and each filter on its own, errors by their field (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidRequest, PolicyViolation
from raftlog.metadata.controller_api import CreateAcls, DeleteAcls
from raftlog.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.controller.controller_cluster import ControllerCluster

RULE = Acl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW
)
ALL = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def create(controllers: ControllerCluster, *acls: Acl) -> list[int]:
    return [each.error_code for each in controllers.ask(CreateAcls(acls)).results]


def test_rules_are_created_once(controllers: ControllerCluster) -> None:
    """Creating an existing ACL is no error, within a request or after it, and writes no record. Source: Kafka."""
    prefixed = replace(RULE, pattern_type=PatternType.PREFIXED)
    assert create(controllers, RULE, prefixed, RULE) == [0, 0, 0]
    assert set(controllers.image.acls) == {RULE, prefixed}
    offset = controllers.image.offset
    with capture_logs() as logs:
        assert create(controllers, RULE) == [0]
    assert (controllers.image.offset, logs) == (offset, [])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"resource_type": ResourceType.ANY}, "resource_type"),
        ({"resource_type": ResourceType.UNKNOWN}, "resource_type"),
        ({"pattern_type": PatternType.ANY}, "pattern_type"),
        ({"pattern_type": PatternType.MATCH}, "pattern_type"),
        ({"operation": Operation.ANY}, "operation"),
        ({"operation": Operation.UNKNOWN}, "operation"),
        ({"permission": Permission.ANY}, "permission"),
        ({"resource_name": ""}, "name"),
        ({"resource_name": "x" * 1025}, "name"),
        ({"host": ""}, "host"),
        ({"principal": "al"}, "principal"),
        ({"principal": "User:" + "x" * 1024}, "principal"),
        ({"resource_type": ResourceType.CLUSTER}, "name"),
    ],
)
def test_a_rule_that_cannot_be_one_is_refused_alone(
    controllers: ControllerCluster, changes: dict[str, Any], field: str
) -> None:
    """The message names the field; the other rules of the request are created."""
    reply = controllers.ask(CreateAcls((replace(RULE, **changes), RULE)))
    assert [each.error_code for each in reply.results] == [InvalidRequest.code, 0]
    assert reply.results[0].error_message.startswith(f"{field}: ")
    assert set(controllers.image.acls) == {RULE}


def test_a_filter_removes_what_it_matches_and_says_so(controllers: ControllerCluster) -> None:
    """A rule that two filters match is among the matches of both. The others stay."""
    write = replace(RULE, operation=Operation.WRITE)
    cluster_rule = replace(RULE, resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME)
    create(controllers, RULE, write, cluster_rule)
    reads, topics = ALL._replace(operation=Operation.READ), ALL._replace(resource_type=ResourceType.TOPIC)
    nothing = ALL._replace(principal="User:nobody")
    with capture_logs() as logs:
        reply = controllers.ask(DeleteAcls((reads, topics, nothing)))
    assert [set(each.matches) for each in reply.results] == [{RULE, cluster_rule}, {RULE, write}, set()]
    assert not controllers.image.acls
    assert [line["event"] for line in logs] == ["acl_removed"] * 3
    create(controllers, RULE, write)
    controllers.ask(DeleteAcls((reads,)))
    assert set(controllers.image.acls) == {write}


def test_rules_are_bounded_and_can_always_be_removed() -> None:
    """`raftlog.security.max` counts rules, credentials and quotas together."""
    controllers = ControllerCluster(raftlog_security_max=1)
    controllers.start(1)
    write = replace(RULE, operation=Operation.WRITE)
    assert create(controllers, RULE, write, RULE) == [0, PolicyViolation.code, 0]
    controllers.ask(DeleteAcls((ALL,)))
    assert create(controllers, write) == [0]
