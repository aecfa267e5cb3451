"""The messages between a guest and its host: the plan of a boot, and reports over the serial line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from raftlog_chaos.history import Op

PLAN: Final = "boot.json"
"""The file of a run's folder with the plan of the next boot."""


GAVE_UP: Final = "gave up"
"""The phase after which a guest stops, since it met a fatal error."""


class LoadState(msgspec.Struct, kw_only=True):
    """The progress of a load when the power failed."""

    written: dict[str, int] = {}
    """The highest value that was ever sent, by key."""
    acked: dict[str, int] = {}
    """The highest offset that was acknowledged, by key."""
    processes: int = 0
    """So many process numbers are taken."""
    lines: int = 0
    """So many lines has its history."""


class BootPlan(msgspec.Struct, kw_only=True):
    """The plan of one boot."""

    boot: int
    seed: int
    file_system: str
    options: str
    """The mount options."""
    base: str
    """A folder of the host that the guest covers with mounts of its own."""
    folder: str
    """The run's folder, on the host."""
    first_ns: int
    """The history's clock goes on from here."""
    settings: dict[str, str] = {}
    loads: dict[str, LoadState] = {}
    committed: dict[str, dict[str, int]] = {}
    """The offset of the last acknowledged commit, by group and key."""
    changed: int = 0
    """The number of the last change of a topic's setting that was acknowledged."""
    stall_s: float = 60.0


class Said(msgspec.Struct, tag=True):
    """An operation of a load: a line of its history."""

    load: str
    op: Op


class Committed(msgspec.Struct, tag=True):
    """A group's commit was acknowledged."""

    group: str
    offsets: dict[str, int]


class Changed(msgspec.Struct, tag=True):
    """The change of a topic's setting was acknowledged, by its number."""

    number: int


class Reached(msgspec.Struct, tag=True):
    """A phase of the boot has been reached: booted, started, ready, whole, read, loading, gave up."""

    phase: str
    seconds: float
    """Since the kernel ran the program."""


class Mark(msgspec.Struct, tag=True):
    """A file of the cluster was created or renamed, which shows the node's present operation."""

    name: str


class Found(msgspec.Struct, tag=True):
    """An immediate finding."""

    text: str


class Logged(msgspec.Struct, tag=True):
    """A line of a node's log above info level."""

    node_id: int
    line: str


Word = Changed | Logged | Said | Committed | Reached | Mark | Found

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Word)


def encode(word: Word) -> bytes:
    """Return a word's line."""
    return _encoder.encode(word) + b"\n"


class Listener:
    """Puts lines together from what arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, received: bytes) -> Iterator[Word]:
        """Yield the words that are whole now. Raises MsgspecError for what is none."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            yield _decoder.decode(line)
