"""Errors of a schema registry, with the codes of Confluent's REST API."""

from __future__ import annotations

from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
CONFIG_NOT_FOUND: Final = 40408
MODE_NOT_FOUND: Final = 40409
INCOMPATIBLE: Final = 409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_COMPATIBILITY_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
OPERATION_NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_MISMATCH: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
STORE_FAILED: Final = 50001
STORE_TIMED_OUT: Final = 50002
FORWARDING_FAILED: Final = 50003
NO_LEADER: Final = 50004
MISSING_PACKAGE: Final = 50101


class SchemaError(Exception):
    """A request that the registry refuses. The first three digits of `code` are its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


def invalid_schema(reason: str) -> SchemaError:
    """Return the error for a schema that cannot be parsed."""
    return SchemaError(INVALID_SCHEMA, f"the schema is invalid: {reason}")


def too_large(reason: str) -> SchemaError:
    """Return the error for a schema beyond a limit."""
    return SchemaError(SCHEMA_TOO_LARGE, f"the schema is too large: {reason}")


def subject_not_found(subject: str) -> SchemaError:
    return SchemaError(SUBJECT_NOT_FOUND, f"subject '{subject[:249]}' not found")


def version_not_found(version: object) -> SchemaError:
    return SchemaError(VERSION_NOT_FOUND, f"version {version} not found")


def schema_not_found() -> SchemaError:
    return SchemaError(SCHEMA_NOT_FOUND, "schema not found")
