"""UpdateFeatures, and the features in ApiVersions (KIP-584)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.errors import InvalidUpdateVersion, NotController, UnsupportedVersion
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureResult,
    FeatureResults,
    FeatureUpdate,
    UpdateFeatures,
)
from raftlog.metadata.features import NEWEST_METADATA_LEVEL
from raftlog.protocol.message_builders import request_builders
from tests.broker.handlers.one_broker import HandlerSetup, versions

API_VERSIONS, UPDATE, HEARTBEAT, DESCRIBE = 18, 57, 68, 69


def answering(*results: FeatureResult) -> HandlerSetup:
    cluster = HandlerSetup()
    cluster.answers[UpdateFeatures] = FeatureResults(results, 0)
    return cluster


def wanted(version: int, name: str, level: int, kind: int) -> Any:
    make = request_builders(UPDATE, version)
    how = {"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}
    return make.FeatureUpdateKey(feature=name, max_version_level=level, **how)


@pytest.mark.parametrize("version", versions(UPDATE))
async def test_updates_reach_the_controller(version: int) -> None:
    """Version 0 has one kind of downgrade and no validate_only; version 2 returns no single results."""
    cluster = answering(FeatureResult("a"), FeatureResult("b"))
    updates = (wanted(version, "a", 2, UPGRADE), wanted(version, "b", 0, UNSAFE_DOWNGRADE))
    fields = {"validate_only": True} if version else {}
    response = await cluster.call(UPDATE, version, feature_updates=updates, **fields)
    downgrade = UNSAFE_DOWNGRADE if version else SAFE_DOWNGRADE
    asked = UpdateFeatures((FeatureUpdate("a", 2), FeatureUpdate("b", 0, downgrade)), bool(version))
    assert cluster.asked == [asked]
    assert response.error_code == 0
    if version < 2:
        assert [(each.feature, each.error_code) for each in response.results] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("version", versions(UPDATE))
async def test_one_refused_update_is_the_error_of_the_whole_request(version: int) -> None:
    """As the request's own error, in Kafka's words and in every version: clients of versions 0 and 1 look there."""
    cluster = answering(FeatureResult("a"), FeatureResult("b", InvalidUpdateVersion.code, "broker 3 is old"))
    updates = (wanted(version, "a", 2, UPGRADE), wanted(version, "b", 1, UPGRADE))
    response = await cluster.call(UPDATE, version, feature_updates=updates)
    sentence = "The update failed for all features since the following feature had an error: broker 3 is old"
    assert (response.error_code, response.error_message) == (95, sentence)
    assert not getattr(response, "results", ())


async def test_a_request_that_fails_as_a_whole_raises() -> None:
    """The connection makes the response of it, which has an error of its own."""
    cluster = HandlerSetup()
    cluster.answers[UpdateFeatures] = NotController()
    with pytest.raises(NotController):
        await cluster.call(UPDATE, 2, feature_updates=(wanted(2, "a", 2, UPGRADE),))


async def test_api_versions_has_the_levels_in_force() -> None:
    """With the epoch of their last change, so that clients recognize older responses; level 0 is left out."""
    cluster = HandlerSetup()
    asked = {"client_software_name": "a", "client_software_version": "1"}
    before = await cluster.call(API_VERSIONS, 4, **asked)
    assert before.finalized_features_epoch == 0
    cluster.image = replace(
        cluster.image, features={"group.version": 0, "transaction.version": 1}, features_epoch=40
    )
    after = await cluster.call(API_VERSIONS, 4, **asked)
    assert after.finalized_features_epoch == 40
    levels = [
        {each.name: each.max_version_level for each in answer.finalized_features}
        for answer in (before, after)
    ]
    assert levels == [
        {"metadata.version": 30, "group.version": 1, "transaction.version": 2},
        {"metadata.version": 30, "transaction.version": 1},
    ]
    supported = {each.name: (each.min_version, each.max_version) for each in after.supported_features}
    assert supported == {
        "metadata.version": (25, 30),
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "share.version": (0, 2),
        "kraft.version": (0, 1),
        "raftlog.metadata.version": (0, NEWEST_METADATA_LEVEL),
    }


async def test_group_version_0_turns_the_consumer_protocol_off() -> None:
    """UNSUPPORTED_VERSION for heartbeats, and for each group that is to be described."""
    cluster = HandlerSetup()
    cluster.image = replace(cluster.image, features={"group.version": 0})
    with pytest.raises(UnsupportedVersion, match=r"group\.version is 0"):
        await cluster.call(HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0)
    described = await cluster.call(DESCRIBE, 1, group_ids=("g", "h"))
    assert [each.error_code for each in described.groups] == [35, 35]
