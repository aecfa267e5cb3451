"""A Protobuf file, as far as compatibility needs it: messages with their fields, and enums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.schemas.errors import too_large

NAME_MAX_CHARS: Final = 1_000
"""Of a type's name with the messages around it, which the names of all types within it repeat."""


class Field(NamedTuple):
    """A field. `label`: repeated, required, optional or ""; `oneof`: the name of its oneof or ""."""

    number: int
    name: str
    label: str
    type: str
    """A scalar, `map<K,V>`, or the name of a message or an enum, relative to the file's package."""
    oneof: str


class Message(NamedTuple):
    """A message. Its name is relative to the package, with the messages around it."""

    name: str
    fields: tuple[Field, ...]


class ProtoFile(NamedTuple):
    """A file with its messages and enums by name."""

    package: str
    imports: tuple[str, ...]
    messages: Mapping[str, Message]
    enums: Mapping[str, Mapping[int, str]]
    declared: tuple[str, ...] = ()
    """The names of all messages in the order of the file; of a descriptor also the entries of maps, which it has as
    messages.
    """


def name_within(scope: str, name: str) -> str:
    """Return the name of a type within a message, or within "". Raises SchemaError."""
    found = f"{scope}.{name}" if scope else name
    if len(found) > NAME_MAX_CHARS:
        raise too_large(f"the name of a type has more than {NAME_MAX_CHARS} characters")
    return found
