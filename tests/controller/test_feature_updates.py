"""Feature levels: who may raise and lower them (KIP-584, KIP-778, Apache Kafka 4's rule of all or none)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import InvalidRequest, InvalidUpdateVersion, UnsupportedVersion
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UnregisterBroker,
    UpdateFeatures,
)
from raftlog.metadata.features import (
    FEATURES,
    GROUP_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    finalized_level,
)
from raftlog.metadata.image import SupportedFeature
from tests.controller.controller_cluster import ControllerCluster

OLDER = (SupportedFeature(GROUP_VERSION, 0, 0), SupportedFeature(TRANSACTION_VERSION, 0, 2))
"""The features of a broker that lacks one level and one feature."""


@pytest.fixture
def cluster() -> ControllerCluster:
    made = ControllerCluster()
    made.start(1, 2, 3)
    return made


def update(
    cluster: ControllerCluster, *updates: tuple[str, int, int], **fields: Any
) -> list[tuple[int, str | None]]:
    """Ask for levels; returns (error code, message) of each."""
    wanted = UpdateFeatures(tuple(FeatureUpdate(*each) for each in updates), **fields)
    return [(each.error_code, each.error_message) for each in cluster.ask(wanted).results]


def levels(cluster: ControllerCluster) -> dict[str, int]:
    return {each.name: finalized_level(cluster.image, each.name) for each in FEATURES}


def test_levels_go_down_and_up_again(cluster: ControllerCluster) -> None:
    """All nodes have them, through snapshots too; the epoch grows with each change and with nothing else."""
    initial = levels(cluster)
    assert update(cluster, (GROUP_VERSION, 0, SAFE_DOWNGRADE), (METADATA_VERSION, 27, UNSAFE_DOWNGRADE)) == [
        (0, None),
        (0, None),
    ]
    assert levels(cluster) == {**initial, GROUP_VERSION: 0, METADATA_VERSION: 27}
    epoch = cluster.image.features_epoch
    assert epoch == cluster.image.offset
    cluster.create("t")
    assert update(cluster, (GROUP_VERSION, 0, UPGRADE)) == [(0, None)]
    assert cluster.image.features_epoch == epoch, "nothing changed"
    before = cluster.image
    cluster.restart_from_snapshot(1)
    assert cluster.image == before
    assert update(cluster, (GROUP_VERSION, 1, UPGRADE)) == [(0, None)]
    assert cluster.image.features_epoch > epoch
    assert levels(cluster) == {**initial, METADATA_VERSION: 27}


@pytest.mark.parametrize(
    "wanted,sentence",
    [
        ((GROUP_VERSION, 2, UPGRADE), "the active controller supports levels 0 to 1 of group.version"),
        ((METADATA_VERSION, 7, UNSAFE_DOWNGRADE), "the active controller supports levels 25 to 30"),
        (("share.version", 1, UPGRADE), "the active controller does not support share.version"),
        ((GROUP_VERSION, -1, SAFE_DOWNGRADE), "a level cannot be less than 0"),
        ((GROUP_VERSION, 0, UPGRADE), "the level in force is 1, and the upgrade type is neither"),
        ((GROUP_VERSION, 1, 0), "the upgrade type 0 is unknown"),
        ((GROUP_VERSION, 1, 4), "the upgrade type 4 is unknown"),
    ],
)
def test_faulty_updates_are_refused_with_the_reason(
    cluster: ControllerCluster, wanted: tuple[str, int, int], sentence: str
) -> None:
    """INVALID_UPDATE_VERSION, and nothing changes."""
    before = cluster.image
    ((code, message),) = update(cluster, wanted)
    assert code == InvalidUpdateVersion.code
    assert message is not None and sentence in message
    assert cluster.image is before


def test_a_downgrade_does_not_raise_a_level(cluster: ControllerCluster) -> None:
    """A type that is a downgrade is refused for a higher level, as Kafka does."""
    update(cluster, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        ((code, message),) = update(cluster, (GROUP_VERSION, 1, kind))
        assert code == InvalidUpdateVersion.code
        assert "the upgrade type is a downgrade" in (message or "")


def test_one_faulty_update_keeps_all_others_from_being_made(cluster: ControllerCluster) -> None:
    """All or none; each is told its own error. validate_only changes nothing."""
    before = cluster.image
    results = update(cluster, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE), ("nonsense", 1, UPGRADE))
    assert [code for code, _ in results] == [0, InvalidUpdateVersion.code]
    assert update(cluster, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE), validate_only=True) == [(0, None)]
    assert cluster.image is before
    twice = UpdateFeatures((FeatureUpdate(GROUP_VERSION, 1),) * 2)
    assert cluster.ask(twice).error_code == InvalidRequest.code


def test_every_registered_broker_must_support_a_level(cluster: ControllerCluster) -> None:
    """One that is stopped too, until it is unregistered: it may come back."""
    update(cluster, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    assert cluster.register(4, features=OLDER).broker_epoch
    cluster.heartbeat(4)
    ((code, message),) = update(cluster, (GROUP_VERSION, 1, UPGRADE))
    assert code == InvalidUpdateVersion.code
    assert "broker 4 supports levels 0 to 0 of group.version" in (message or "")
    ((code, message),) = update(cluster, (METADATA_VERSION, 29, SAFE_DOWNGRADE))
    assert code == InvalidUpdateVersion.code
    assert "broker 4 does not support metadata.version" in (message or "")
    cluster.die(4)
    assert update(cluster, (GROUP_VERSION, 1, UPGRADE))[0][0] == InvalidUpdateVersion.code
    cluster.ask(UnregisterBroker(4))
    assert update(cluster, (GROUP_VERSION, 1, UPGRADE)) == [(0, None)]


def test_a_broker_registers_only_if_it_supports_the_levels_that_were_chosen(
    cluster: ControllerCluster,
) -> None:
    """UNSUPPORTED_VERSION names the feature; before anybody chose one, brokers of older releases may come."""
    assert cluster.register(4, features=()).broker_epoch
    cluster.ask(UnregisterBroker(4))
    update(cluster, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    update(cluster, (GROUP_VERSION, 1, UPGRADE))
    refused = cluster.register(5, features=OLDER)
    assert refused.error_code == UnsupportedVersion.code
    assert refused.message == (
        "broker 5 supports levels 0 to 0 of group.version; the cluster's level of it is 1"
    )
    assert cluster.register(5, features=SUPPORTED_FEATURES).broker_epoch
