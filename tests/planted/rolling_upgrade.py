"""Bugs of a cluster of two releases: what comes with a level is written, sent or believed without the level."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog import control
from raftlog.base.errors import UnsupportedVersion
from raftlog.controller import brokers, controller, feature_updates
from raftlog.metadata import loader, record_levels
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.quorum import channel, listener, raft_links
from raftlog_chaos.scenarios.rolling_upgrade import rolling_upgrade
from tests.planted.plant import Plant
from tests.planted.rights import _snapshots_without


def nobody_asks_the_level(patch: pytest.MonkeyPatch) -> None:
    """Records that came with a level are written at each level."""
    patch.setattr(control, "check_request", lambda image, request: None)
    patch.setattr(controller, "check_records", lambda image, records: None)


def brokers_ask_any_controller(patch: pytest.MonkeyPatch) -> None:
    """Brokers leave it to the controller to refuse what comes with a level; an older one cannot even read it."""
    patch.setattr(control, "check_request", lambda image, request: None)


def stopped_brokers_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A level is raised while a registered broker that lacks it is stopped."""
    named = feature_updates.unsupported_by_broker

    def named_if_unfenced(image: Any, name: str, level: int) -> str | None:
        running = {broker_id: each for broker_id, each in image.brokers.items() if not each.fenced}
        return named(_with(image, brokers=running), name, level)

    patch.setattr(feature_updates, "unsupported_by_broker", named_if_unfenced)
    patch.setattr(record_levels, "unsupported_by_broker", named_if_unfenced)


def _with(image: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(image, **fields)


def absent_voters_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A level is raised while a voter is away that was unregistered."""
    too_old = feature_updates._too_old_voter

    def too_old_if_there(image: Any, level: int, voters: Any) -> str | None:
        return too_old(image, level, {each: levels for each, levels in voters.items() if levels})

    patch.setattr(feature_updates, "_too_old_voter", too_old_if_there)


def the_level_can_be_lowered(patch: pytest.MonkeyPatch) -> None:
    """The level of the metadata is lowered although nodes keep what came with it."""
    wrong_way = feature_updates._wrong_way

    def wrong_way_of_others(name: str, level: int, present: int, kind: int) -> str | None:
        return None if name == RAFTLOG_METADATA_VERSION else wrong_way(name, level, present, kind)

    patch.setattr(feature_updates, "_wrong_way", wrong_way_of_others)


def older_nodes_are_let_in(patch: pytest.MonkeyPatch) -> None:
    """Neither a node that starts nor the others look whether its release supports the cluster's level."""
    for module in (channel, listener, raft_links):
        patch.setattr(module, "why_too_old", lambda ours, node_id, theirs: None)
    patch.setattr(loader, "check_levels", lambda features, image: None)


def any_broker_registers(patch: pytest.MonkeyPatch) -> None:
    """A broker registers though its release lacks a level in force."""
    check = brokers._check_registration

    def check_all_but_levels(image: Any, request: Any) -> None:
        try:
            check(image, request)
        except UnsupportedVersion:
            return

    patch.setattr(brokers, "_check_registration", check_all_but_levels)
    older_nodes_are_let_in(patch)


PLANTS = [
    Plant("level-not-asked", "an early record", rolling_upgrade, nobody_asks_the_level),
    Plant("level-asked-by-controller", "an early request", rolling_upgrade, brokers_ask_any_controller),
    Plant("level-not-in-snapshot", "a lost level", rolling_upgrade, _snapshots_without("features")),
    Plant("stopped-brokers-ignored", "an early level", rolling_upgrade, stopped_brokers_do_not_count),
    Plant("absent-voters-ignored", "an early level", rolling_upgrade, absent_voters_do_not_count),
    Plant("metadata-level-lowered", "a lost level", rolling_upgrade, the_level_can_be_lowered),
    Plant("older-nodes-let-in", "an older node", rolling_upgrade, older_nodes_are_let_in),
    Plant("older-brokers-registered", "an older node", rolling_upgrade, any_broker_registers),
]
