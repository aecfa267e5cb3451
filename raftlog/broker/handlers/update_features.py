"""UpdateFeatures 0-2: change the finalized levels of features, all or none (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, truncate_message, wait_for_image
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureResult,
    FeatureResults,
    FeatureUpdate,
    UpdateFeatures,
)
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.UPDATE_FEATURES

MAX_UPDATES: Final = 100
"""Limit for features in one request. Apache Kafka has fewer than ten features."""

_UPGRADE_TYPE_FROM: Final = 1
_RESULTS_UNTIL: Final = 1
"""The last version with a result for each feature."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller change the levels, and wait until this broker reports them."""
    version = request.api_version
    if len(message.feature_updates) > MAX_UPDATES:
        raise InvalidRequest(f"feature_updates has at most {MAX_UPDATES} features")
    updates = tuple(_update(version, each) for each in message.feature_updates)
    asked = UpdateFeatures(updates, getattr(message, "validate_only", False))
    reply = await ask(broker, asked, FeatureResults, timeout_ms=message.timeout)
    await wait_for_image(broker, lambda image: image.features_epoch >= reply.features_epoch)
    return _response(version, reply.results)


def _update(version: int, wanted: Any) -> FeatureUpdate:
    if version >= _UPGRADE_TYPE_FROM:
        kind = wanted.upgrade_type
    else:
        kind = SAFE_DOWNGRADE if wanted.allow_downgrade else UPGRADE
    return FeatureUpdate(wanted.feature, wanted.max_version_level, kind)


def _response(version: int, results: tuple[FeatureResult, ...]) -> Any:
    """Return the response. In every version an error applies to the whole request, as in Apache Kafka.

    Results for each feature are sent only if all updates succeeded.
    """
    make = response_builders(API_KEY, version)
    failed = next((each for each in results if each.error_code), None)
    because = failed and truncate_message(
        f"The update failed for all features since the following feature had an error: {failed.error_message}"
    )
    fields: dict[str, Any] = {"error_code": failed.error_code if failed else 0, "error_message": because}
    if version <= _RESULTS_UNTIL:
        done = () if failed else results
        fields["results"] = tuple(
            make.UpdatableFeatureResult(feature=each.name, error_code=0, error_message=None) for each in done
        )
    return make.UpdateFeaturesResponse(throttle_time=0, **fields)


def _outcomes(message: Any, response: Any) -> Iterator[Outcome]:
    for each in message.feature_updates:
        yield each.feature, response.error_code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=Change(_outcomes, audits_message=True),
    controllers=True,
)
