"""ApiVersions 0-5: the APIs of this listener (KIP-511), and the feature levels (KIP-584).

Since version 5 a client may name the cluster and the broker that it takes this broker for (KIP-1242). If it is another,
the client begins again at its bootstrap servers. Controllers do not compare them, as in Apache Kafka.

The APIs of client telemetry (KIP-714) are listed once there is a subscription to client metrics, for connections from
then on. Apache Kafka lists them where a reporter is configured. A client that finds them requests subscriptions, and
librdkafka logs a line about that.

The APIs of share groups (KIP-932) are listed while `share.version` is 1. Apache Kafka lists them at every level.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, RebootstrapRequired, UnsupportedVersion
from raftlog.base.types import NO_BROKER
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers import served
from raftlog.metadata.features import FEATURES, SHARE_VERSION, finalized_level
from raftlog.protocol.apis import ApiKey, advertised_versions
from raftlog.protocol.codec import encode_entity, encode_response
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.protocol.writer import PreEncoded
from raftlog.security.acls import ANONYMOUS, BeforeLogin

API_KEY: Final = 18
FIRST_NAMED_VERSION: Final = 3
FIRST_MEANT_VERSION: Final = 5
"""The first version in which a client names the cluster and the broker that it means."""
LOWEST_VERSION: Final = 0
SOFTWARE_CHARACTERS: Final = 200
"""The maximum length of a client's software name or version that its connection keeps."""
FIRST_ZERO_VERSION: Final = 4
"""Clients of earlier versions cannot parse a feature with minimum level 0."""

TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

SHARE_GROUPS: Final = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)

Levels = tuple[int, ...]
"""The finalized levels of FEATURES."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return the supported APIs. From version 3 on, a client must send a valid software name and version."""
    version, image = request.api_version, broker.image()
    levels = tuple(finalized_level(image, each.name) for each in FEATURES)
    served_here = _listed(
        of_controllers=request.to_controller,
        telemetry=image.usage.subscriptions > 0,
        share_groups=finalized_level(image, SHARE_VERSION) > 0,
    )
    if version >= FIRST_NAMED_VERSION and not (
        _is_name(message.client_software_name) and _is_name(message.client_software_version)
    ):
        return _refusal(version, InvalidRequest.code)
    if version >= FIRST_MEANT_VERSION:
        if (message.cluster_id is None) != (message.node_id == NO_BROKER):
            return _refusal(version, InvalidRequest.code)
        if _is_misrouted(broker, request, message):
            return _refusal(version, RebootstrapRequired.code)
    if version >= FIRST_NAMED_VERSION and request.connection is not None:
        name, number = message.client_software_name, message.client_software_version
        request.connection.software = (name[:SOFTWARE_CHARACTERS], number[:SOFTWARE_CHARACTERS])
    return _body(version, 0, served_here, levels, image.features_epoch)


def _is_misrouted(broker: BrokerContext, request: RequestContext, message: Any) -> bool:
    """Return whether a client that has logged in means another broker. Before the login it gets to know nothing."""
    connection, known = request.connection, broker.image().cluster_id
    may_log_in = connection is not None and connection.login is not None and request.principal == ANONYMOUS
    if message.cluster_id is None or request.to_controller or may_log_in or not known:
        return False
    return bool((message.cluster_id, message.node_id) != (known, broker.config.node_id))


def _refusal(version: int, error_code: int) -> PreEncoded:
    return encode_entity(build_response(API_KEY, version, error_code=error_code))


def refuse_version(correlation_id: int) -> bytes:
    """Respond to an unsupported ApiVersions version: version 0 with error 35 and the supported versions (KIP-511)."""
    body = _body(LOWEST_VERSION, UnsupportedVersion.code, frozenset({API_KEY}))
    return encode_response(API_KEY, LOWEST_VERSION, correlation_id, body)


@cache
def _listed(*, of_controllers: bool, telemetry: bool, share_groups: bool) -> frozenset[int]:
    keys = served(of_controllers=of_controllers)
    keys = keys if telemetry else keys - TELEMETRY
    return keys if share_groups else keys - SHARE_GROUPS


def _is_name(text: str) -> bool:
    """Kafka's rule: letters, digits, dots and dashes, the latter not at the ends."""
    return (
        text.isascii()
        and text.replace(".", "").replace("-", "").isalnum()
        and not {text[0], text[-1]} & set(".-")
    )


@lru_cache(maxsize=64)
def _body(
    version: int, error_code: int, keys: frozenset[int], levels: Levels = (), epoch: int = 0
) -> PreEncoded:
    make = response_builders(API_KEY, version)
    api_keys = tuple(
        make.ApiVersion(api_key=each.api_key, min_version=each.min_version, max_version=each.max_version)
        for each in advertised_versions(keys)
    )
    features: dict[str, Any] = {}
    if version >= FIRST_NAMED_VERSION:
        features = _features(make, version, levels, epoch)
    return encode_entity(
        build_response(API_KEY, version, error_code=error_code, api_keys=api_keys, **features)
    )


def _features(make: Any, version: int, levels: Levels, epoch: int) -> dict[str, Any]:
    """Return the features for a response. A level of 0 is left out, as in Apache Kafka."""
    return {
        "supported_features": tuple(
            make.SupportedFeatureKey(name=each.name, min_version=each.lowest, max_version=each.highest)
            for each in FEATURES
            if each.lowest > 0 or version >= FIRST_ZERO_VERSION
        ),
        "finalized_features_epoch": epoch,
        "finalized_features": tuple(
            make.FinalizedFeatureKey(name=each.name, min_version_level=level, max_version_level=level)
            for each, level in zip(FEATURES, levels, strict=True)
            if level > 0
        ),
    }


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=BeforeLogin(),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=True,
    prepared=(4, 3),
)
