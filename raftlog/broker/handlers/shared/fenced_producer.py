"""The error for a fenced producer: older versions of an API know only INVALID_PRODUCER_EPOCH (KIP-588)."""

from __future__ import annotations

from typing import Any

from raftlog.base.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID
from raftlog.broker.context import RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response


def error_for_version(error: KafkaError, version: int, *, first_fenced_version: int) -> KafkaError:
    """Return the error for a client: before `first_fenced_version` the API does not know ProducerFenced."""
    if isinstance(error, ProducerFenced) and version < first_fenced_version:
        return InvalidProducerEpoch(error.message)
    return error


def producer_error_response(
    api_key: ApiKey, request: RequestContext, error: KafkaError, *, first_fenced_version: int
) -> Any:
    """Return the error response of an API with a producer's id and epoch in its response."""
    shown = error_for_version(error, request.api_version, first_fenced_version=first_fenced_version)
    return build_response(
        api_key,
        request.api_version,
        error_code=shown.code,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
    )
