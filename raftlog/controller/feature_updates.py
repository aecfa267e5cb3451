"""UpdateFeatures: levels go up and down, if every registered broker supports the new level (KIP-584, KIP-778)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

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
from raftlog.metadata.features import (
    DEAD_LETTERS,
    KAFKAS_ALONE,
    KRAFT_VERSION,
    METADATA_VERSION,
    RAFTLOG_METADATA_VERSION,
    SHARE_VERSION,
    VOTERS_CHANGE,
    finalized_level,
    unsupported_by_broker,
    unsupported_reason,
)
from raftlog.metadata.image import MetadataImage, SupportedFeature
from raftlog.metadata.metadata_records import FeatureChanged

VoterLevels = Mapping[int, tuple[int, int] | None]
"""The lowest and highest level of raftlog.metadata.version of each other voter; None if it is not connected."""


def _passed_over(image: MetadataImage, name: str) -> int:
    """Return the highest level of a feature that has no effect in an update to a release of Apache Kafka.

    Dead letters of share groups are on before Kafka's release that has them.
    """
    has_letters = name == SHARE_VERSION and finalized_level(image, name) >= DEAD_LETTERS
    return DEAD_LETTERS - 1 if has_letters else KAFKAS_ALONE.get(name, -1)


def decide_update_features(
    image: MetadataImage,
    request: UpdateFeatures,
    *,
    supported: tuple[SupportedFeature, ...],
    voters: VoterLevels,
) -> Decision:
    """Change levels, all or none; with `validate_only`, return what would happen.

    `supported`: the levels of the active controller. Features that only Apache Kafka has are skipped with a warning
    when all features go to a release's levels. Without `metadata.version` in the request they are refused.
    """
    if any(count > 1 for count in Counter(each.name for each in request.updates).values()):
        raise InvalidRequest("a feature is named more than once")
    records: list[FeatureChanged] = []
    results: list[FeatureResult] = []
    passed_over: list[LogEvent] = []
    is_release = any(each.name == METADATA_VERSION for each in request.updates)
    for update in request.updates:
        if is_release and 0 <= update.level <= _passed_over(image, update.name):
            results.append(FeatureResult(update.name))
            facts = {"feature": update.name, "level": update.level}
            passed_over.append(LogEvent("warning", "feature_without_effect", facts))
            continue
        try:
            _check(image, update, supported, voters)
        except KafkaError as error:
            results.append(FeatureResult(update.name, error.code, error.message))
            continue
        results.append(FeatureResult(update.name))
        if update.level != finalized_level(image, update.name):
            records.append(FeatureChanged(update.name, update.level))
    if request.validate_only or any(each.error_code for each in results):
        records.clear()
        passed_over.clear()
    epoch = image.offset + len(records) if records else image.features_epoch
    events = [
        LogEvent("info", "feature_changed", {"feature": each.name, "level": each.level}) for each in records
    ]
    return Decision(tuple(records), FeatureResults(tuple(results), epoch), (*events, *passed_over))


def _check(
    image: MetadataImage,
    update: FeatureUpdate,
    supported: tuple[SupportedFeature, ...],
    voters: VoterLevels,
) -> None:
    """Raise InvalidUpdateVersion, with the reason, for an update that cannot be carried out."""
    name, level, kind = update.name, update.level, update.upgrade_type
    present = finalized_level(image, name)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason: str | None = f"the upgrade type {kind} is unknown"
    elif level < 0:
        reason = "a level cannot be less than 0"
    else:
        reason = _unsupported(image, name, level, supported)
    if reason is None and level != present:
        reason = _wrong_way(name, level, present, kind)
    if reason is None and name == RAFTLOG_METADATA_VERSION and level > present:
        reason = _too_old_voter(image, level, voters)
    if reason is None and name == KRAFT_VERSION and level > present:
        reason = _too_low_for_voters(image) or _unrecorded_voter(image, voters)
    if reason is not None:
        raise InvalidUpdateVersion(f"invalid level {level} of feature {name!r}: {reason}")


def _wrong_way(name: str, level: int, present: int, kind: int) -> str | None:
    """Return why a level cannot be lowered or raised by an update of this kind."""
    if level > present:
        return (
            f"the level in force is {present}, and the upgrade type is a downgrade"
            if kind != UPGRADE
            else None
        )
    if kind == UPGRADE:
        return (
            f"the level in force is {present}, and the upgrade type is neither a safe nor an unsafe downgrade"
        )
    if name == KRAFT_VERSION:
        return f"the level in force is {present}, and it never goes down"
    if name == RAFTLOG_METADATA_VERSION:
        return f"the level in force is {present}, and nodes keep records of that level on their disks"
    return None


def _unsupported(
    image: MetadataImage, name: str, level: int, supported: tuple[SupportedFeature, ...]
) -> str | None:
    """Return the active controller, or registered broker (stopped brokers included), that does not support a level."""
    reason = unsupported_reason(supported, name, level)
    if reason is not None:
        return f"the active controller {reason}"
    return unsupported_by_broker(image, name, level)


def _too_low_for_voters(image: MetadataImage) -> str | None:
    level = finalized_level(image, RAFTLOG_METADATA_VERSION)
    if level >= VOTERS_CHANGE:
        return None
    return f"it needs level {VOTERS_CHANGE} of {RAFTLOG_METADATA_VERSION}, and {level} is in force"


def _unrecorded_voter(image: MetadataImage, voters: VoterLevels) -> str | None:
    """Return a voter whose directory is unknown: the log could not hold the voters, and the config would count on."""
    for voter in voters:
        if voter not in image.voters:
            return f"the metadata does not name the directory of voter {voter} yet: start it, and ask again"
    return None


def _too_old_voter(image: MetadataImage, level: int, voters: VoterLevels) -> str | None:
    """Return a voter that does not, or may not, support a level: voters that are not brokers do not register."""
    for voter, levels in voters.items():
        if levels is None:
            if voter not in image.brokers:
                return f"voter {voter} is not connected, so its supported levels are unknown"
        elif not levels[0] <= level <= levels[1]:
            return f"voter {voter} supports levels {levels[0]} to {levels[1]} of {RAFTLOG_METADATA_VERSION}"
    return None
