"""The subscriptions of all members of a consumer group are bounded, and their size is kept as a sum."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import GroupMaxSizeReached
from raftlog.coordinator import group_memory
from raftlog.coordinator.consumer import consumer_group
from raftlog.coordinator.consumer.consumer_membership import ClassicProtocols, MemberMetadata
from raftlog.coordinator.consumer.heartbeat_requests import ConsumerGroupHeartbeatResult
from raftlog.coordinator.group_memory import SubscriptionBytes, subscriber_bytes
from tests.coordinator.group_coordinator_setup import GroupCoordinatorSetup, image_of


def test_the_sum_is_that_of_all_members():
    """The sum is right whichever members come, go, or change; reading it has no effect."""
    sums = SubscriptionBytes()
    a, b = MemberMetadata(topics=("t", "uu")), MemberMetadata(regex="x.*")
    c = MemberMetadata(classic=ClassicProtocols(1, (("range", b"12345"),)))
    for members in ({"a": a}, {"a": a, "b": b, "c": c}, {"a": b, "c": c}, {"c": c}, {}):
        expected = sum(subscriber_bytes(*each) for each in members.items())
        assert sums.total_with(members) == expected
        sums.update(members)
        assert sums.total == sums.total_with(members) == expected


def test_only_changed_members_are_weighed(monkeypatch: pytest.MonkeyPatch):
    """A thousand members are not weighed for the join of one more."""
    weighed: list[MemberMetadata] = []

    def noting(member_id: str, subscriber: MemberMetadata) -> int:
        weighed.append(subscriber)
        return subscriber_bytes(member_id, subscriber)

    sums = SubscriptionBytes()
    members: dict[str, Any] = {str(number): MemberMetadata(topics=(str(number),)) for number in range(1_000)}
    sums.update(members)
    monkeypatch.setattr(group_memory, "subscriber_bytes", noting)
    more = {**members, "new": MemberMetadata(topics=("t",))}
    sums.total_with(more)
    sums.update(more)
    assert weighed == [more["new"]] * 2


def test_all_that_a_member_says_of_itself_counts():
    """Ids, rack and address are as long as a client likes."""
    least = subscriber_bytes("", MemberMetadata())
    assert subscriber_bytes("x" * 100, MemberMetadata()) == least + 100
    for name in ("instance_id", "rack_id", "client_id", "client_host", "regex"):
        assert subscriber_bytes("", MemberMetadata(**{name: "x" * 100})) == least + 100, name


def test_a_member_with_a_too_large_subscription_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
):
    """Also after a failover: what was recorded is weighed again."""
    monkeypatch.setattr(consumer_group, "MAX_SUBSCRIPTION_BYTES", 1_300)
    made = GroupCoordinatorSetup()
    made.image = image_of({"t": 2})
    assert isinstance(made.consumer_group_heartbeat("a", 0), ConsumerGroupHeartbeatResult)
    assert isinstance(
        made.consumer_group_heartbeat("b", 0, topics=tuple(map(str, range(20)))), GroupMaxSizeReached
    )
    made.fail_over()
    assert isinstance(made.consumer_group_heartbeat("c", 0, topics=("t", "x" * 400)), GroupMaxSizeReached)
    heard = made.consumer_group_heartbeat("b", 0)
    assert isinstance(heard, ConsumerGroupHeartbeatResult)
    assert isinstance(
        made.consumer_group_heartbeat("b", heard.epoch, topics=("t", "x" * 400)), GroupMaxSizeReached
    )
    assert isinstance(made.consumer_group_heartbeat("b", heard.epoch), ConsumerGroupHeartbeatResult)
    assert isinstance(made.consumer_group_heartbeat("b", -1), ConsumerGroupHeartbeatResult)
