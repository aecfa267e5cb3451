"""The first metadata of a cluster, and the directories of its voters: at first, and when a disk was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from raftlog.base.machine import Decision
from raftlog.base.types import encode_uuid
from raftlog.controller.decisions import LogEvent
from raftlog.metadata.bootstrap import BootstrapRecords
from raftlog.metadata.features import (
    RAFTLOG_METADATA_VERSION,
    SHARE_VERSION,
    VOTERS_CHANGE,
    finalized_level,
)
from raftlog.metadata.image import MetadataImage, SupportedFeature
from raftlog.metadata.metadata_records import (
    ClusterNamed,
    FeatureChanged,
    ScramCredentialChanged,
    VoterRegistered,
)
from raftlog.metadata.record_levels import RECORDS_SINCE

BEGUN_HIGHEST = (RAFTLOG_METADATA_VERSION, SHARE_VERSION)
"""The features that a new cluster has at their highest levels. Clusters of older releases keep the initial levels."""

VOTERS_SINCE = RECORDS_SINCE[VoterRegistered]
"""The level of raftlog.metadata.version since which directories of voters are recorded."""


def decide_first_metadata(
    cluster_id: str,
    *,
    supported: Iterable[SupportedFeature],
    directories: Mapping[int, UUID],
    bootstrap: BootstrapRecords,
) -> Decision:
    """Name a new cluster, at the newest levels that its nodes support, with its first voters and users."""
    highest = {each.name: each.highest for each in supported}
    level = highest.get(RAFTLOG_METADATA_VERSION)
    levels = tuple(FeatureChanged(each, highest[each]) for each in BEGUN_HIGHEST if each in highest)
    recorded = directories if level is not None and level >= VOTERS_SINCE else {}
    if level is None or level < VOTERS_CHANGE:
        bootstrap = tuple(each for each in bootstrap if not isinstance(each, FeatureChanged))
    voters = tuple(VoterRegistered(*each) for each in recorded.items())
    return Decision(
        (ClusterNamed(cluster_id), *levels, *voters, *bootstrap),
        effects=(
            LogEvent("info", "cluster_named", {"cluster_id": cluster_id}),
            *(_voter_event(each, None) for each in voters),
            *(
                LogEvent("info", "scram_credential_set", {"user": each.user, "mechanism": each.mechanism})
                for each in bootstrap
                if isinstance(each, ScramCredentialChanged)
            ),
        ),
    )


def decide_register_voters(image: MetadataImage, directories: Mapping[int, UUID]) -> Decision:
    """Record the directories of voters, unless they are recorded or the cluster's level does not allow it."""
    if finalized_level(image, RAFTLOG_METADATA_VERSION) < VOTERS_SINCE:
        return Decision()
    records = tuple(
        VoterRegistered(voter, directory)
        for voter, directory in directories.items()
        if image.voters.get(voter) != directory
    )
    effects = tuple(_voter_event(each, image.voters.get(each.voter_id)) for each in records)
    return Decision(records, effects=effects)


def _voter_event(record: VoterRegistered, before: UUID | None) -> LogEvent:
    fields = {"voter_id": record.voter_id, "directory_id": encode_uuid(record.directory_id)}
    if before is None:
        return LogEvent("info", "voter_registered", fields)
    return LogEvent("warning", "voter_directory_replaced", {**fields, "replaced": encode_uuid(before)})
