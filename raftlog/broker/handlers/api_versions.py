"""ApiVersions 0-4: what this listener serves (KIP-511), and the features that rest on it (KIP-584)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, UnsupportedVersion
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers import served
from raftlog.protocol.apis import advertised
from raftlog.protocol.codec import encode_entity, encode_response
from raftlog.protocol.features import Feature, features
from raftlog.protocol.shapes import build, response_shapes
from raftlog.protocol.writer import Encoded

API_KEY: Final = 18
FIRST_NAMED_VERSION: Final = 3
LOWEST_VERSION: Final = 0
SOFTWARE_CHARACTERS: Final = 200
"""Of a client's software name or version that its connection keeps."""
FIRST_ZERO_VERSION: Final = 4
"""Before it, a client cannot read of a feature whose lowest level is 0."""

FEATURES_EPOCH: Final = 0
"""The levels are fixed with raftlog's version."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer the list. A client must name itself properly from version 3 on."""
    version = request.api_version
    if version >= FIRST_NAMED_VERSION and not (
        _is_name(message.client_software_name) and _is_name(message.client_software_version)
    ):
        return _body(version, InvalidRequest.code, request.to_controller)
    if version >= FIRST_NAMED_VERSION and request.connection is not None:
        name, number = message.client_software_name, message.client_software_version
        request.connection.software = (name[:SOFTWARE_CHARACTERS], number[:SOFTWARE_CHARACTERS])
    return _body(version, 0, request.to_controller)


def refuse_version(correlation_id: int, *, of_controllers: bool) -> bytes:
    """Answer an ApiVersions version that is not known: version 0 with error 35 and the list (KIP-511)."""
    body = _body(LOWEST_VERSION, UnsupportedVersion.code, of_controllers)
    return encode_response(API_KEY, LOWEST_VERSION, correlation_id, body)


def _is_name(text: str) -> bool:
    """Kafka's rule: letters, digits, dots and dashes, the latter not at the ends."""
    return (
        text.isascii()
        and text.replace(".", "").replace("-", "").isalnum()
        and not {text[0], text[-1]} & set(".-")
    )


@cache
def _body(version: int, error_code: int, of_controllers: bool) -> Encoded:
    make = response_shapes(API_KEY, version)
    api_keys = tuple(
        make.ApiVersion(api_key=each.api_key, min_version=each.min_version, max_version=each.max_version)
        for each in advertised(served(of_controllers=of_controllers))
    )
    levels: dict[str, Any] = {}
    if version >= FIRST_NAMED_VERSION:
        levels = _levels(make, version, features(served()))
    return encode_entity(build(API_KEY, version, error_code=error_code, api_keys=api_keys, **levels))


def _levels(make: Any, version: int, found: tuple[Feature, ...]) -> dict[str, Any]:
    return {
        "supported_features": tuple(
            make.SupportedFeatureKey(name=each.name, min_version=each.lowest, max_version=each.highest)
            for each in found
            if each.lowest > 0 or version >= FIRST_ZERO_VERSION
        ),
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": tuple(
            make.FinalizedFeatureKey(
                name=each.name, min_version_level=each.finalized, max_version_level=each.finalized
            )
            for each in found
        ),
    }
