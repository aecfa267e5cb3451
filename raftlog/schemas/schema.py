"""A schema as registries keep it: its type, its text, and the schemas that it refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: Final[tuple[Kind, ...]] = ("JSON", "PROTOBUF", "AVRO")
"""In the order in which Confluent's registry lists them."""

TEXT_MAX_CHARS: Final = 256 * 1024
MAX_DEPTH: Final = 64
"""Types within types."""
MAX_PARTS: Final = 20_000
"""Values of a schema's JSON, or declarations of a Protobuf file."""
MAX_REFERENCES: Final = 100
MAX_REFERENCED_CHARS: Final = 1024 * 1024
"""Characters of a schema with all schemas that it refers to, directly or through others."""


class Reference(NamedTuple):
    """A version of a subject, under the name by which the schema's text refers to it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema with its references: an id stands for it."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    """Kept for clients, which carry the rules out."""


class Named(NamedTuple):
    """A schema that another schema refers to by a name."""

    name: str
    text: str
