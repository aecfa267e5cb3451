"""The level of raftlog.metadata.version of a cluster: the finalized level, and how to raise it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from raftlog import __version__
from raftlog.base.errors import ClusterAuthorizationFailed, KafkaError
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.refusals import not_authorized
from raftlog.cli.wire import Wire
from raftlog.metadata.controller_api import UPGRADE
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders

LEVELS_SINCE: Final = 4
"""The version of ApiVersions that includes features with 0 as their lowest level."""
RESULTS_UNTIL: Final = 1
"""The last version of UpdateFeatures with a reason for each feature."""


class MetadataLevels(NamedTuple):
    """The level in force, and the highest level that the queried broker supports."""

    finalized: int
    highest: int


def metadata_levels(wire: Wire, servers: str) -> MetadataLevels:
    """Return the levels of a cluster. Raises Failure."""
    make = request_builders(ApiKey.API_VERSIONS, LEVELS_SINCE)
    asked = make.ApiVersionsRequest(client_software_name="raftlog", client_software_version=__version__)
    told = _ask(wire, ApiKey.API_VERSIONS, LEVELS_SINCE, asked)
    highest = [each.max_version for each in told.supported_features if each.name == RAFTLOG_METADATA_VERSION]
    if not highest:
        raise Failure(
            f"the broker at {servers} does not know {RAFTLOG_METADATA_VERSION}: first, run the new release on all nodes"
        )
    finalized = {each.name: each.max_version_level for each in told.finalized_features}
    return MetadataLevels(finalized.get(RAFTLOG_METADATA_VERSION, 0), highest[0])


def upgrade_metadata(wire: Wire, level: int, *, timeout_s: float, dry_run: bool) -> None:
    """Raise the level, or only ask whether it could be. Raises Failure."""
    make = request_builders(ApiKey.UPDATE_FEATURES, RESULTS_UNTIL)
    update = make.FeatureUpdateKey(
        feature=RAFTLOG_METADATA_VERSION, max_version_level=level, upgrade_type=UPGRADE
    )
    asked = make.UpdateFeaturesRequest(
        timeout=int(timeout_s * 1000), feature_updates=(update,), validate_only=dry_run
    )
    told = _ask(wire, ApiKey.UPDATE_FEATURES, RESULTS_UNTIL, asked)
    for each in told.results:
        if each.error_code:
            raise Failure(each.error_message or f"error {each.error_code}")


def _ask(wire: Wire, api_key: int, version: int, message: Any) -> Any:
    try:
        return wire.ask(api_key, version, message)
    except ClusterAuthorizationFailed as error:
        raise Failure(str(not_authorized(type(error).__name__, "ALTER")), exits.DENIED) from None
    except KafkaError as error:
        raise Failure(error.message or type(error).__name__) from None
