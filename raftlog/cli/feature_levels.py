"""The level of raftlog.metadata.version of a cluster: the finalized level, and how to raise it."""

from __future__ import annotations

from typing import Any, NamedTuple

from raftlog import __version__
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target
from raftlog.metadata.controller_api import UPGRADE
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.protocol.apis import ApiKey


class MetadataLevels(NamedTuple):
    """The level in force, and the highest level that the queried broker supports."""

    finalized: int
    highest: int


def metadata_levels(target: Target) -> MetadataLevels:
    """Return the levels of a cluster. Raise Failure."""
    response = target.ask(
        ApiKey.API_VERSIONS,
        lambda make: make.ApiVersionsRequest(
            client_software_name="raftlog", client_software_version=__version__
        ),
    )
    features = getattr(response, "supported_features", ())
    highest = [each.max_version for each in features if each.name == RAFTLOG_METADATA_VERSION]
    if not highest:
        raise Failure(
            f"the broker at {target.servers} does not know {RAFTLOG_METADATA_VERSION}: first, run the new release on "
            "all nodes"
        )
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return MetadataLevels(finalized.get(RAFTLOG_METADATA_VERSION, 0), highest[0])


def upgrade_metadata(
    target: Target, level: int, *, dry_run: bool, feature: str = RAFTLOG_METADATA_VERSION
) -> None:
    """Raise the level, or that of another feature, or only ask whether it could be. Raise Failure."""

    def build(make: Any) -> Any:
        update = make.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=UPGRADE)
        return make.UpdateFeaturesRequest(
            timeout=int(target.timeout_s * 1000), feature_updates=(update,), validate_only=dry_run
        )

    for each in target.ask(ApiKey.UPDATE_FEATURES, build, needs="ALTER").results:
        if each.error_code:
            raise Failure(each.error_message or f"error {each.error_code}")
