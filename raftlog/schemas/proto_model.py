"""A Protobuf file, as far as compatibility needs it: messages with their fields, and enums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
