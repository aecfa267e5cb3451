"""Apache Kafka 4.3 itself passes its whole card, in the newest versions and in old versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog_chaos.conformance.brokers import brokers
from raftlog_chaos.conformance.card.guest import Host
from raftlog_chaos.conformance.card.result import Card, story_of
from raftlog_chaos.conformance.card.run import CardRun, host_with_versions
from raftlog_chaos.conformance.history import Needs, choose

pytestmark = pytest.mark.java

OLD = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 8,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 3,
}
"""The newest versions of a broker of 2020."""

NEVER_DELETED = ("groups/metadata/topics of -1", "groups/metadata/words", "groups/metadata/a protocol twice")
"""Kafka 4.3 fails on a member's malformed metadata, and the group of these histories stays in a rebalance."""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One node of Kafka, as it is started where its answers are recorded."""
    with brokers("kafka") as (side,):
        yield host_with_versions(Host(side.get(Needs()).servers(), cluster_wide=True))


def card_of(host: Host, only: str = "") -> Card:
    """Run histories and return the card."""
    made = CardRun(host, choose(only), name="Apache Kafka", progress=lambda _: None)
    made.begin(anyway=False)
    made.run()
    return made.card()


def stories(card: Card, *accepted: str) -> str:
    """Return the stories of all histories with another outcome."""
    others = [each for each in card.histories if each.outcome not in accepted]
    return "\n".join(line for each in others for line in (each.outcome, *story_of(each, card.broker)))


def test_apache_kafka_keeps_every_history(host: Host) -> None:
    """The recorded answers are its own; what it does not repeat is no claim about Kafka."""
    card = card_of(host)
    assert not stories(card, "kept")
    assert card.histories and not card.is_raftlog and not card.notes
    assert len(card.left) == len(NEVER_DELETED) and all(each.startswith("group ") for each in card.left)


def test_apache_kafka_asked_in_old_versions_differs_in_nothing(host: Host) -> None:
    """An older broker is compared with Kafka's responses in its versions; a missing version is reported."""
    ranges = {
        key: (first, min(last, OLD.get(ApiKey(key), last)) if key in set(OLD) else last)
        for key, (first, last) in host.versions.ranges.items()
    }
    older = host._replace(versions=host.versions._replace(ranges=ranges))
    card = card_of(older, "idempotence,produce")
    assert not stories(card, "kept", "not supported")
    assert card.counts()["kept"] > 100
