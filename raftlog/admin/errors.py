"""Failures of the admin API: an HTTP status, an error code as REST v3 has them, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.base.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition, from_code

INVALID: Final = 40002
UNAUTHENTICATED: Final = 40101
FORBIDDEN: Final = 40301
UNKNOWN_PARTITION: Final = 40403
"""An unknown topic or partition."""


class Error(msgspec.Struct):
    """The body of every failure. `error_code` is the HTTP status, or that times 100 plus a detail."""

    error_code: int
    message: str


class ApiError(Exception):
    """Raised by handlers; becomes an Error."""

    def __init__(
        self, status: int, message: str, *, code: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = Error(code or status, message)


def not_found(what: str) -> ApiError:
    return ApiError(404, f"{what} does not exist")


def of_kafka(error: KafkaError, about: str = "") -> ApiError:
    """Return what a broker's error is in HTTP: retriable ones are 503, what does not exist is 404."""
    message = ": ".join(part for part in (about, str(error)) if part)
    if isinstance(error, UnknownTopicOrPartition | UnknownTopicId):
        return ApiError(404, message, code=UNKNOWN_PARTITION)
    if error.retriable:
        return ApiError(503, message)
    return ApiError(400, message, code=INVALID)


def check(error_code: int, message: str | None = None, *, about: str = "") -> None:
    """Raise ApiError unless a broker's error code is 0."""
    if error_code:
        raise of_kafka(from_code(error_code, message), about)
