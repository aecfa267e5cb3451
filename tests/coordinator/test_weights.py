"""What all members of a consumer group say of themselves is bounded, and kept as a sum."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import GroupMaxSizeReached
from raftlog.coordinator.consumer import group as consumer_group
from raftlog.coordinator.consumer import weights
from raftlog.coordinator.consumer.requests import Heard
from raftlog.coordinator.consumer.state import ClassicProtocols, Subscriber
from raftlog.coordinator.consumer.weights import Weights, weigh
from tests.coordinator.journals import Bench, image_of


def test_the_sum_is_that_of_all_members():
    """Whoever comes, goes, or says something else; asking for it changes nothing."""
    sums = Weights()
    a, b = Subscriber(topics=("t", "uu")), Subscriber(regex="x.*")
    c = Subscriber(classic=ClassicProtocols(1, (("range", b"12345"),)))
    for members in ({"a": a}, {"a": a, "b": b, "c": c}, {"a": b, "c": c}, {"c": c}, {}):
        expected = sum(weigh(*each) for each in members.items())
        assert sums.after(members) == expected
        sums.follow(members)
        assert sums.total == sums.after(members) == expected


def test_only_who_has_changed_is_weighed(monkeypatch: pytest.MonkeyPatch):
    """A thousand members are not weighed for the join of one more."""
    weighed: list[Subscriber] = []

    def noting(member_id: str, subscriber: Subscriber) -> int:
        weighed.append(subscriber)
        return weigh(member_id, subscriber)

    sums = Weights()
    members: dict[str, Any] = {str(number): Subscriber(topics=(str(number),)) for number in range(1_000)}
    sums.follow(members)
    monkeypatch.setattr(weights, "weigh", noting)
    more = {**members, "new": Subscriber(topics=("t",))}
    sums.after(more)
    sums.follow(more)
    assert weighed == [more["new"]] * 2


def test_all_that_a_member_says_of_itself_counts():
    """Ids, rack and address are as long as a client likes."""
    least = weigh("", Subscriber())
    assert weigh("x" * 100, Subscriber()) == least + 100
    for name in ("instance_id", "rack_id", "client_id", "client_host", "regex"):
        assert weigh("", Subscriber(**{name: "x" * 100})) == least + 100, name


def test_who_says_too_much_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch):
    """Also after a failover: what was recorded is weighed again."""
    monkeypatch.setattr(consumer_group, "MOST_BYTES", 1_300)
    made = Bench()
    made.image = image_of({"t": 2})
    assert isinstance(made.beat("a", 0), Heard)
    assert isinstance(made.beat("b", 0, topics=tuple(map(str, range(20)))), GroupMaxSizeReached)
    made.fail_over()
    assert isinstance(made.beat("c", 0, topics=("t", "x" * 400)), GroupMaxSizeReached)
    heard = made.beat("b", 0)
    assert isinstance(heard, Heard)
    assert isinstance(made.beat("b", heard.epoch, topics=("t", "x" * 400)), GroupMaxSizeReached)
    assert isinstance(made.beat("b", heard.epoch), Heard)
    assert isinstance(made.beat("b", -1), Heard)
