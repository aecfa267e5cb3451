"""Checks that bytes are Avro data of a schema, without building objects of them.

The bytes are a client's, so steps are counted, and the work can stop after each slice of them. Either no
value of a type takes bytes, as with null, or each value takes at least one. So a block of a billion nulls is one step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

MAX_DEPTH: Final = 200
VARINT_MAX_BYTES: Final = 10
STEPS_PER_SLICE: Final = 1_000
"""About a millisecond. While a slice runs, the loop waits up to five for the interpreter after each of its calls."""


class NotOfSchema(Exception):
    """The bytes are no data of the schema; the message says where and why."""

    steps = 0
    """The steps to find that out."""


class TooManySteps(Exception):
    """The check takes more steps than it may."""


class _Walk:
    __slots__ = ("content", "max_steps", "position", "steps")

    def __init__(self, content: bytes, max_steps: int) -> None:
        self.content = content
        self.max_steps = max_steps
        self.position = self.steps = 0

    def long(self) -> int:
        found = 0
        for shift in range(VARINT_MAX_BYTES):
            if self.position >= len(self.content):
                raise NotOfSchema("the data is cut off")
            byte = self.content[self.position]
            self.position += 1
            found |= (byte & 0x7F) << (7 * shift)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise NotOfSchema("a number is too long")

    def skip(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if size < 0 or self.position > len(self.content):
            raise NotOfSchema("the data is cut off")
        return self.content[start : self.position]

    def step(self) -> bool:
        """Count a step; return whether a slice ends. Raises TooManySteps."""
        self.steps += 1
        if self.steps > self.max_steps:
            raise TooManySteps
        return self.steps % STEPS_PER_SLICE == 0


def check_payload(schema: Any, content: bytes, *, max_steps: int) -> Generator[None, None, int]:
    """Return the number of steps to check that the bytes are one datum of a parsed schema; yield between slices.

    Raise NotOfSchema if they are not, TooManySteps if that takes more than `max_steps`.
    """
    walk = _Walk(content, max_steps)
    try:
        yield from _check(walk, schema, 0)
        if walk.position != len(content):
            raise NotOfSchema(f"{len(content) - walk.position} bytes follow the data")
    except NotOfSchema as error:
        error.steps = walk.steps
        raise
    return walk.steps


def _check(walk: _Walk, schema: Any, depth: int) -> Generator[None, None, None]:
    if walk.step():
        yield
    kind = schema.type
    if depth > MAX_DEPTH:
        raise NotOfSchema(f"it is nested deeper than {MAX_DEPTH}")
    if kind in ("record", "error"):
        for field in schema.fields:
            yield from _check(walk, field.type, depth + 1)
    elif kind in ("array", "map"):
        yield from _check_blocks(walk, schema, depth)
    elif kind in ("union", "error_union"):
        index = walk.long()
        if not 0 <= index < len(schema.schemas):
            raise NotOfSchema("a union has no such branch")
        yield from _check(walk, schema.schemas[index], depth + 1)
    elif kind == "fixed":
        walk.skip(schema.size)
    elif kind == "enum":
        if not 0 <= walk.long() < len(schema.symbols):
            raise NotOfSchema(f"the enum {schema.name} has no such symbol")
    else:
        _check_primitive(walk, kind)


def _check_primitive(walk: _Walk, kind: str) -> None:
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        if not -(1 << bits) <= walk.long() < 1 << bits:
            raise NotOfSchema(f"a number is too large for {kind}")
    elif kind == "string":
        _check_text(walk.skip(walk.long()))
    elif kind == "bytes":
        walk.skip(walk.long())
    elif kind in ("float", "double"):
        walk.skip(4 if kind == "float" else 8)
    elif kind == "boolean" and walk.skip(1) > b"\x01":
        raise NotOfSchema("a boolean is neither 0 nor 1")


def _check_text(content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError:
        raise NotOfSchema("a string is not UTF-8") from None


def _check_blocks(walk: _Walk, schema: Any, depth: int) -> Generator[None, None, None]:
    """Check an array or a map: blocks of items, each with its count, up to an empty block."""
    is_map = schema.type == "map"
    inner = schema.values if is_map else schema.items
    while count := walk.long():
        if count < 0:
            count = -count
            walk.long()  # the size of the block
        for _ in range(count):
            start = walk.position
            if is_map:
                _check_text(walk.skip(walk.long()))
            yield from _check(walk, inner, depth + 1)
            if walk.position == start:
                break  # no item takes a byte
