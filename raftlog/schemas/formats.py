"""The formats of schemas, as the registry uses them. The package of a format is imported at its first use."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from raftlog.schemas.errors import MISSING_PACKAGE, SchemaError, too_large
from raftlog.schemas.schema import TEXT_MAX_CHARS, Kind, Named, Schema


class Format(Protocol):
    """A type of schemas. All but the first two are work for a thread."""

    def stored_text(self, text: str) -> str:
        """Return the text as it is stored and returned. Raises SchemaError."""

    def canonical(self, text: str) -> str:
        """Return a text that is the same for the same schema in another layout. Raises SchemaError."""

    def parse(self, text: str, named: Sequence[Named]) -> Any:
        """Return the parsed schema. Raises SchemaError."""

    def incompatibilities(self, reader: Any, writer: Any) -> list[str]:
        """Return why `reader` cannot read all records of `writer`; empty if it can. Raises SchemaError."""


MODULES: Final[dict[Kind, str]] = {
    "AVRO": "raftlog.schemas.avro_schemas",
    "JSON": "raftlog.schemas.json_schemas",
    "PROTOBUF": "raftlog.schemas.protobuf_schemas",
}
PACKAGES: Final[dict[Kind, str]] = {"AVRO": "avro", "JSON": "jsonschema", "PROTOBUF": "proto_schema_parser"}


@lru_cache(maxsize=len(MODULES))
def format_of(kind: Kind) -> Format:
    """Return the format of a type of schemas."""
    found: Any = import_module(MODULES[kind])
    return found  # type: ignore[no-any-return]


def demand_package(kind: Kind) -> None:
    """Raise SchemaError if the package that parses schemas of this type is not installed."""
    if find_spec(PACKAGES[kind]) is None:
        raise _missing(kind, PACKAGES[kind].replace("_", "-"))


def _missing(kind: Kind, package: str) -> SchemaError:
    return SchemaError(
        MISSING_PACKAGE,
        f"schemas of type {kind} need the package {package}: pip install '.[schema]' in a checkout",
    )


def serialized_text(text: str, references: tuple[Named, ...]) -> str:
    """Return a .proto text as a descriptor in base64. Raise SchemaError. Work for a thread."""
    try:
        from raftlog.schemas.proto_files import serialized
    except ImportError:
        raise _missing("PROTOBUF", "protobuf") from None
    return serialized(text, references)


def identity(schema: Schema) -> bytes:
    """Return 16 bytes that are the same for the same schema with the same references, in whatever layout."""
    rest = (schema.references, schema.metadata or None, schema.rule_set or None)
    try:
        if len(schema.text) > TEXT_MAX_CHARS:
            raise too_large("another registry wrote it")
        whole = msgspec.json.encode(
            (schema.kind, format_of(schema.kind).canonical(schema.text), *rest), order="sorted"
        )
    except Exception:  # another registry wrote it, with other rules: a record of the log ends no reader
        text = schema.text.encode("utf-8", "surrogatepass").hex()
        whole = msgspec.json.encode((schema.kind, text, *rest), order="sorted")
    return hashlib.md5(whole, usedforsecurity=False).digest()


def guid_of(schema_identity: bytes) -> str:
    """Return the id of a schema that does not depend on the registry."""
    return str(UUID(bytes=schema_identity))
