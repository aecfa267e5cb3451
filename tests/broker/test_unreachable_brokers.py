"""Claims about unreachable brokers, from the view of one broker."""

from __future__ import annotations

import msgspec

from raftlog.broker.unreachable_brokers import LISTED_AFTER_FENCING_S, NO_BROKERS, UnreachableBrokers
from raftlog.metadata.image import MetadataImage
from tests.broker.handlers.one_broker import broker_state, cluster_image
from tests.kit.clock import Clock


def absences() -> tuple[Clock, UnreachableBrokers]:
    clock = Clock()
    return clock, UnreachableBrokers(clock, unnamed_s=3.0)


def with_broker(image: MetadataImage, broker_id: int, **changes: object) -> MetadataImage:
    return msgspec.structs.replace(
        image, brokers={**image.brokers, broker_id: broker_state(broker_id, **changes)}
    )


def test_a_lost_leader_is_unnamed_until_it_is_found() -> None:
    """A client that asks in between asks again, rather than trust a leader that is probably dead."""
    _, gone = absences()
    assert gone.gone() == NO_BROKERS
    gone.lost(2)
    assert gone.gone().unnamed == {2}
    gone.found(2)
    assert gone.gone() == NO_BROKERS


def test_a_leader_that_stays_lost_to_us_alone_is_named_again() -> None:
    """Others may reach it: a broker that is unreachable from here must not stay unavailable to clients."""
    clock, gone = absences()
    gone.lost(2)
    clock.now += 2.0
    gone.lost(2)
    clock.now += 1.5
    assert gone.gone().unnamed == frozenset()


def test_a_fenced_broker_is_listed_for_a_while_and_no_longer_lost() -> None:
    """The metadata has caught up: its leaderships have moved, and only the list of brokers keeps it."""
    clock, gone = absences()
    before = cluster_image()
    gone.lost(2)
    gone.on_metadata(before, with_broker(before, 2, fenced=True))
    assert gone.gone()[:2] == (frozenset(), {2})
    clock.now += LISTED_AFTER_FENCING_S
    assert gone.gone() == NO_BROKERS


def test_a_broker_that_restarts_is_listed_all_the_while() -> None:
    """For longer than Apache Kafka takes to fence a broker (9 s): librdkafka drops a missing broker once."""
    clock, gone = absences()
    before = cluster_image()
    gone.on_metadata(before, with_broker(before, 2, fenced=True))
    clock.now += 20.0
    assert gone.gone()[:2] == (frozenset(), {2})


def test_a_broker_that_is_back_is_neither_lost_nor_kept() -> None:
    """Unfenced, or registered again: what was known of it before no longer holds."""
    _, gone = absences()
    before = cluster_image()
    fenced = with_broker(before, 2, fenced=True)
    gone.on_metadata(before, fenced)
    gone.lost(2)
    gone.on_metadata(fenced, with_broker(fenced, 2, fenced=False, broker_epoch=99))
    assert gone.gone() == NO_BROKERS


def test_a_broker_that_was_fenced_all_along_is_not_listed() -> None:
    """Only a broker that left moments ago: a first image also has brokers dead for days."""
    _, gone = absences()
    gone.on_metadata(MetadataImage(), cluster_image())
    assert gone.gone() == NO_BROKERS
