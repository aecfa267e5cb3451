"""Feature levels go up and down, where every registered broker supports the new level (KIP-584, KIP-778)."""

from __future__ import annotations

from collections import Counter

from raftlog.base.errors import InvalidRequest, InvalidUpdateVersion, KafkaError
from raftlog.base.machine import Decision
from raftlog.controller.decisions import LogEvent
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureResult,
    FeatureResults,
    FeatureUpdate,
    UpdateFeatures,
)
from raftlog.metadata.features import SUPPORTED_FEATURES, finalized_level, unsupported_reason
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import FeatureChanged


def decide_update_features(image: MetadataImage, request: UpdateFeatures) -> Decision:
    """Change levels, all of them or none; with `validate_only`, say what would happen."""
    if any(count > 1 for count in Counter(each.name for each in request.updates).values()):
        raise InvalidRequest("a feature is named more than once")
    records: list[FeatureChanged] = []
    results: list[FeatureResult] = []
    for update in request.updates:
        try:
            _check(image, update)
        except KafkaError as error:
            results.append(FeatureResult(update.name, error.code, error.message))
            continue
        results.append(FeatureResult(update.name))
        if update.level != finalized_level(image, update.name):
            records.append(FeatureChanged(update.name, update.level))
    if request.validate_only or any(each.error_code for each in results):
        records.clear()
    epoch = image.offset + len(records) if records else image.features_epoch
    events = (
        LogEvent("info", "feature_changed", {"feature": each.name, "level": each.level}) for each in records
    )
    return Decision(tuple(records), FeatureResults(tuple(results), epoch), tuple(events))


def _check(image: MetadataImage, update: FeatureUpdate) -> None:
    """Raise InvalidUpdateVersion, with the reason, for an update that cannot be carried out."""
    name, level, kind = update.name, update.level, update.upgrade_type
    present = finalized_level(image, name)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason: str | None = f"the upgrade type {kind} is unknown"
    elif level < 0:
        reason = "a level cannot be less than 0"
    else:
        reason = _unsupported(image, name, level)
    if reason is None and level < present and kind == UPGRADE:
        reason = (
            f"the level in force is {present}, and the upgrade type is neither a safe nor an unsafe downgrade"
        )
    elif reason is None and level > present and kind != UPGRADE:
        reason = f"the level in force is {present}, and the upgrade type is a downgrade"
    if reason is not None:
        raise InvalidUpdateVersion(f"invalid level {level} of feature {name!r}: {reason}")


def _unsupported(image: MetadataImage, name: str, level: int) -> str | None:
    """Return who does not support a level: the active controller, or a registered broker, stopped ones too."""
    reason = unsupported_reason(SUPPORTED_FEATURES, name, level)
    if reason is not None:
        return f"the active controller {reason}"
    for broker in image.brokers.values():
        reason = unsupported_reason(broker.features, name, level)
        if reason is not None:
            return f"broker {broker.broker_id} {reason}"
    return None
