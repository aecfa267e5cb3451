"""Findings of the fuzzer: a frame, or a few in their order, and the wrong reaction to them."""

from __future__ import annotations

import heapq
import traceback
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

from raftlog.base.disk import make_folders, write_file

SHOWN_BYTES: Final = 200
WORST: Final = 5
COMMENT: Final = "#"


Port = Literal["kafka", "controller"]


class Finding(NamedTuple):
    """`where`: the stage; `what`: one line; `frames`: the frames sent on one connection, of which the last is to
    blame.
    """

    where: str
    what: str
    kind: str
    frames: tuple[bytes, ...]
    detail: str = ""
    port: Port = "kafka"

    @classmethod
    def of(cls, error: BaseException, where: str, kind: str, frames: tuple[bytes, ...]) -> Self:
        """Return a finding of an exception: its name, its message and the place that raised it."""
        raised = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(raised.filename).name}:{raised.lineno} {raised.name}"
        what = f"{type(error).__name__}: {str(error)[:120]} ({at})"
        return cls(where, what, kind, frames, "".join(traceback.format_exception(error))[-3_000:])

    @property
    def key(self) -> str:
        """Equal for findings of the same place, whatever their values."""
        return f"{self.where}: {self.what.partition(':')[0]} {self.what.rpartition('(')[2]}"

    def text(self) -> str:
        """Return some lines for a person; long frames are cut short, their file has them whole."""
        lines = [f"{self.where}: {self.what}", f"  {self.kind}"]
        for frame in self.frames[-3:]:
            rest = f"… ({len(frame)} bytes)" if len(frame) > SHOWN_BYTES else ""
            lines.append(f"  {frame[:SHOWN_BYTES].hex()}{rest}")
        return "\n".join(lines)


class Slow(NamedTuple):
    """A frame that took long, processor seconds."""

    seconds: float
    kind: str
    size: int
    start: bytes


class Slowest:
    """Keeps the few frames that took the longest."""

    def __init__(self) -> None:
        self._heap: list[Slow] = []
        self._least = 0.0

    def note(self, seconds: float, kind: str, data: bytes) -> None:
        if seconds <= self._least:
            return
        heapq.heappush(self._heap, Slow(seconds, kind, len(data), data[:SHOWN_BYTES]))
        if len(self._heap) > WORST:
            heapq.heappop(self._heap)
            self._least = self._heap[0].seconds

    def add(self, other: list[Slow]) -> None:
        """Take what another process kept."""
        self._heap = sorted([*self._heap, *other])[-WORST:]

    def worst(self) -> list[Slow]:
        """Return them, the slowest first."""
        return sorted(self._heap, reverse=True)


# --- files


def write_regression(folder: Path, name: str, finding: Finding, seed: str) -> Path:
    """Keep a finding's frames as a file of hex lines that `read_regression` reads; return its path."""
    make_folders(folder)
    path = folder / f"{name}.{finding.port}.hex"
    lines = [f"{COMMENT} {finding.what}", f"{COMMENT} {finding.kind}; seed {seed}; {finding.where}"]
    lines += [frame.hex() for frame in finding.frames]
    write_file(path, "\n".join(lines) + "\n")
    return path


def read_regression(path: Path) -> tuple[Port, tuple[bytes, ...]]:
    """Return a file's port and its frames, in their order; each is sent as it is, its length included."""
    lines = (line.strip() for line in path.read_text().splitlines())
    frames = tuple(bytes.fromhex(line) for line in lines if line and not line.startswith(COMMENT))
    return ("controller" if path.name.endswith(".controller.hex") else "kafka"), frames
