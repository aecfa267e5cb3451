"""Feature levels: the rules to raise and lower them (KIP-584, KIP-778, Apache Kafka 4's rule of all or none)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidRequest, InvalidUpdateVersion, UnsupportedVersion
from raftlog.controller.feature_updates import decide_update_features
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    CreateAcls,
    FeatureResults,
    FeatureUpdate,
    UnregisterBroker,
    UpdateFeatures,
)
from raftlog.metadata.features import (
    FEATURES,
    GROUP_VERSION,
    KAFKAS_ALONE,
    KRAFT_VERSION,
    METADATA_VERSION,
    NEWEST_METADATA_LEVEL,
    RAFTLOG_METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    finalized_level,
)
from raftlog.metadata.image import EMPTY_IMAGE, SupportedFeature
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.controller.controller_cluster import ControllerCluster

OURS = next(each for each in SUPPORTED_FEATURES if each.name == RAFTLOG_METADATA_VERSION)
SHARE_GROUPS = SupportedFeature(SHARE_VERSION, 0, 2)
OLDER = (
    SupportedFeature(GROUP_VERSION, 0, 0),
    SupportedFeature(TRANSACTION_VERSION, 0, 2),
    SHARE_GROUPS,
    OURS,
)
"""The features of a broker that lacks one level and one feature."""

PREVIOUS = tuple(each for each in SUPPORTED_FEATURES if each is not OURS)
"""The features of 0.2.0, which knew no levels of the metadata."""


def update(
    controllers: ControllerCluster, *updates: tuple[str, int, int], **fields: Any
) -> list[tuple[int, str | None]]:
    """Ask for levels; returns (error code, message) of each."""
    wanted = UpdateFeatures(tuple(FeatureUpdate(*each) for each in updates), **fields)
    return [(each.error_code, each.error_message) for each in controllers.ask(wanted).results]


def levels(controllers: ControllerCluster) -> dict[str, int]:
    return {each.name: finalized_level(controllers.image, each.name) for each in FEATURES}


def test_levels_go_down_and_up_again(controllers: ControllerCluster) -> None:
    """All nodes have them, through snapshots too; the epoch grows with each change and with no other event."""
    initial = levels(controllers)
    assert update(
        controllers, (GROUP_VERSION, 0, SAFE_DOWNGRADE), (METADATA_VERSION, 27, UNSAFE_DOWNGRADE)
    ) == [
        (0, None),
        (0, None),
    ]
    assert levels(controllers) == {**initial, GROUP_VERSION: 0, METADATA_VERSION: 27}
    epoch = controllers.image.features_epoch
    assert epoch == controllers.image.offset
    controllers.create("t")
    assert update(controllers, (GROUP_VERSION, 0, UPGRADE)) == [(0, None)]
    assert controllers.image.features_epoch == epoch, "nothing changed"
    before = controllers.image
    controllers.restart_from_snapshot(1)
    assert controllers.image == before
    assert update(controllers, (GROUP_VERSION, 1, UPGRADE)) == [(0, None)]
    assert controllers.image.features_epoch > epoch
    assert levels(controllers) == {**initial, METADATA_VERSION: 27}


@pytest.mark.parametrize(
    "wanted,sentence",
    [
        ((GROUP_VERSION, 2, UPGRADE), "the active controller supports levels 0 to 1 of group.version"),
        ((METADATA_VERSION, 7, UNSAFE_DOWNGRADE), "the active controller supports levels 25 to 30"),
        (("streams.version", 1, UPGRADE), "the active controller does not support streams.version"),
        ((SHARE_VERSION, 3, UPGRADE), "the active controller supports levels 0 to 2 of share.version"),
        ((GROUP_VERSION, -1, SAFE_DOWNGRADE), "a level cannot be less than 0"),
        ((GROUP_VERSION, 0, UPGRADE), "the level in force is 1, and the upgrade type is neither"),
        ((GROUP_VERSION, 1, 0), "the upgrade type 0 is unknown"),
        ((GROUP_VERSION, 1, 4), "the upgrade type 4 is unknown"),
    ],
)
def test_faulty_updates_are_refused_with_the_reason(
    controllers: ControllerCluster, wanted: tuple[str, int, int], sentence: str
) -> None:
    """INVALID_UPDATE_VERSION without effect."""
    before = controllers.image
    ((code, message),) = update(controllers, wanted)
    assert code == InvalidUpdateVersion.code
    assert message is not None and sentence in message
    assert controllers.image is before


def test_share_groups_are_turned_off_and_on(controllers: ControllerCluster) -> None:
    """A new cluster has them with dead letters, as of Apache Kafka 4.4; an older cluster turns them on by itself."""
    assert levels(controllers)[SHARE_VERSION] == 2
    assert update(controllers, (SHARE_VERSION, 0, SAFE_DOWNGRADE)) == [(0, None)]
    assert levels(controllers)[SHARE_VERSION] == 0
    assert update(controllers, (SHARE_VERSION, 1, UPGRADE)) == [(0, None)]
    assert levels(controllers)[SHARE_VERSION] == 1


def test_a_downgrade_does_not_raise_a_level(controllers: ControllerCluster) -> None:
    """A type that is a downgrade is refused for a higher level, as Kafka does."""
    update(controllers, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        ((code, message),) = update(controllers, (GROUP_VERSION, 1, kind))
        assert code == InvalidUpdateVersion.code
        assert "the upgrade type is a downgrade" in (message or "")


def test_one_faulty_update_keeps_all_others_from_being_made(controllers: ControllerCluster) -> None:
    """All or none; each has its own error. validate_only has no effect."""
    before = controllers.image
    results = update(controllers, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE), ("nonsense", 1, UPGRADE))
    assert [code for code, _ in results] == [0, InvalidUpdateVersion.code]
    assert update(controllers, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE), validate_only=True) == [(0, None)]
    assert controllers.image is before
    twice = UpdateFeatures((FeatureUpdate(GROUP_VERSION, 1),) * 2)
    assert controllers.ask(twice).error_code == InvalidRequest.code


def test_kraft_version_goes_up_once(controllers: ControllerCluster) -> None:
    """At a level of the metadata at which all nodes read sets of voters; a set is there for ever."""
    assert update(controllers, (KRAFT_VERSION, 2, UPGRADE))[0][0] == InvalidUpdateVersion.code
    assert update(controllers, (KRAFT_VERSION, 1, UPGRADE)) == [(0, None)]
    ((code, message),) = update(controllers, (KRAFT_VERSION, 0, UNSAFE_DOWNGRADE))
    assert code == InvalidUpdateVersion.code and message and "never goes down" in message


def test_kraft_version_1_needs_nodes_that_read_sets_of_voters() -> None:
    """A release without them would ignore a set in its log, and count by its config."""
    image = replace(EMPTY_IMAGE, features={RAFTLOG_METADATA_VERSION: 2})
    decision = decide_update_features(
        image,
        UpdateFeatures((FeatureUpdate(KRAFT_VERSION, 1, UPGRADE),)),
        supported=SUPPORTED_FEATURES,
        voters={},
    )
    assert isinstance(decision.reply, FeatureResults)
    (result,) = decision.reply.results
    assert result.error_code == InvalidUpdateVersion.code
    assert "needs level 3" in (result.error_message or "") and not decision.records


def test_kraft_version_1_needs_the_directories_of_all_voters(controllers: ControllerCluster) -> None:
    """Otherwise the log holds no set, and voters that edit their config, as they may, count differently."""
    controllers.active.levels_of_voters = lambda: {5: (0, NEWEST_METADATA_LEVEL)}
    ((code, message),) = update(controllers, (KRAFT_VERSION, 1, UPGRADE))
    assert code == InvalidUpdateVersion.code and "directory of voter 5" in (message or "")
    assert finalized_level(controllers.image, KRAFT_VERSION) == 0


def test_a_release_of_kafkas_brings_no_features_that_are_not_there(controllers: ControllerCluster) -> None:
    """`kafka-features upgrade --release-version 4.3` names them all; alone they are refused, beyond 4.3 as well."""
    release = (
        (METADATA_VERSION, 30, UPGRADE),
        ("kraft.version", 1, UPGRADE),
        (TRANSACTION_VERSION, 2, UPGRADE),
        (GROUP_VERSION, 1, UPGRADE),
        ("eligible.leader.replicas.version", 1, UPGRADE),
        ("share.version", 1, UPGRADE),
        ("streams.version", 1, UPGRADE),
    )
    before = controllers.image
    with capture_logs() as lines:
        assert update(controllers, *release) == [(0, None)] * len(release)
    warned = {each["feature"] for each in lines if each["event"] == "feature_without_effect"}
    assert warned == KAFKAS_ALONE.keys() | {SHARE_VERSION}
    assert controllers.image is before
    codes = [
        code
        for code, _ in update(controllers, (METADATA_VERSION, 30, UPGRADE), ("share.version", 3, UPGRADE))
    ]
    assert codes == [0, InvalidUpdateVersion.code]


def test_every_registered_broker_must_support_a_level(controllers: ControllerCluster) -> None:
    """A stopped broker too, until it is unregistered: it may come back."""
    update(controllers, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    assert controllers.register(4, features=OLDER).broker_epoch
    controllers.heartbeat(4)
    ((code, message),) = update(controllers, (GROUP_VERSION, 1, UPGRADE))
    assert code == InvalidUpdateVersion.code
    assert "broker 4 supports levels 0 to 0 of group.version" in (message or "")
    ((code, message),) = update(controllers, (METADATA_VERSION, 29, SAFE_DOWNGRADE))
    assert code == InvalidUpdateVersion.code
    assert "broker 4 does not support metadata.version" in (message or "")
    controllers.die(4)
    assert update(controllers, (GROUP_VERSION, 1, UPGRADE))[0][0] == InvalidUpdateVersion.code
    controllers.ask(UnregisterBroker(4))
    assert update(controllers, (GROUP_VERSION, 1, UPGRADE)) == [(0, None)]


def test_a_broker_registers_only_if_it_supports_the_levels_that_were_chosen(
    controllers: ControllerCluster,
) -> None:
    """UNSUPPORTED_VERSION names the feature; before a level was chosen, brokers of older releases may come."""
    assert controllers.register(4, features=(OURS, SHARE_GROUPS)).broker_epoch
    controllers.ask(UnregisterBroker(4))
    update(controllers, (GROUP_VERSION, 0, SAFE_DOWNGRADE))
    update(controllers, (GROUP_VERSION, 1, UPGRADE))
    refused = controllers.register(5, features=OLDER)
    assert refused.error_code == UnsupportedVersion.code
    assert refused.message == (
        "broker 5 supports levels 0 to 0 of group.version; the cluster's level of it is 1"
    )
    assert controllers.register(5, features=SUPPORTED_FEATURES).broker_epoch


RULE = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW)
NEWEST = (RAFTLOG_METADATA_VERSION, NEWEST_METADATA_LEVEL, UPGRADE)


@pytest.fixture
def upgraded() -> ControllerCluster:
    """A cluster that was made by 0.2.0, with an active controller of this release: broker 3 is not yet."""
    made = ControllerCluster(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    for controller in made.controllers.values():
        controller.features = PREVIOUS
    made.start(1, 2)
    for controller in made.controllers.values():
        controller.features = SUPPORTED_FEATURES
    made.register(3, features=PREVIOUS)
    made.heartbeat(3)
    return made


def test_a_new_cluster_begins_at_the_newest_level(controllers: ControllerCluster) -> None:
    """All its brokers have this release."""
    assert levels(controllers)[RAFTLOG_METADATA_VERSION] == NEWEST_METADATA_LEVEL


def test_what_older_nodes_do_not_know_is_written_once_the_level_is_raised(
    upgraded: ControllerCluster,
) -> None:
    """Until then UNSUPPORTED_VERSION; the level waits for the last broker, which is named."""
    before = upgraded.image
    refused = upgraded.ask(CreateAcls((RULE,)))
    assert refused.error_code == UnsupportedVersion.code
    assert "raftlog.metadata.version is 0, and this needs 1" in refused.message
    ((code, message),) = update(upgraded, NEWEST)
    assert code == InvalidUpdateVersion.code
    assert "broker 3 does not support raftlog.metadata.version" in (message or "")
    assert upgraded.image is before
    upgraded.die(3)
    upgraded.register(3)
    assert update(upgraded, NEWEST, validate_only=True) == [(0, None)]
    assert upgraded.ask(CreateAcls((RULE,))).error_code == UnsupportedVersion.code
    assert update(upgraded, NEWEST) == [(0, None)]
    assert upgraded.ask(CreateAcls((RULE,))).results[0].error_code == 0
    upgraded.die(3)
    refused = upgraded.register(3, features=PREVIOUS)
    assert refused.error_code == UnsupportedVersion.code
    assert (
        f"does not support raftlog.metadata.version; the cluster's level of it is {NEWEST_METADATA_LEVEL}"
        in refused.message
    )


def test_the_level_of_the_metadata_does_not_go_down(controllers: ControllerCluster) -> None:
    """Records of that level are on the disks of all voters, where an older release would find them."""
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        ((code, message),) = update(controllers, (RAFTLOG_METADATA_VERSION, 0, kind))
        assert code == InvalidUpdateVersion.code
        assert "nodes keep records of that level on their disks" in (message or "")


@pytest.mark.parametrize(
    "voters,sentence",
    [
        ({5: (0, 0)}, "voter 5 supports levels 0 to 0 of raftlog.metadata.version"),
        ({5: None}, "voter 5 is not connected, so its supported levels are unknown"),
        ({2: None, 5: (0, NEWEST_METADATA_LEVEL)}, None),
    ],
)
def test_voters_that_are_no_brokers_must_support_the_level_too(
    upgraded: ControllerCluster, voters: dict[int, tuple[int, int] | None], sentence: str | None
) -> None:
    """They do not register: their connections have their levels. For an absent broker its registration counts."""
    upgraded.die(3)
    upgraded.register(3)
    upgraded.active.levels_of_voters = lambda: voters
    ((code, message),) = update(upgraded, NEWEST)
    assert code == (InvalidUpdateVersion.code if sentence else 0)
    assert sentence is None or sentence in (message or "")
