"""A power cut as a plain model: files and folders with what is durable and what is not."""

from __future__ import annotations

import os
from pathlib import Path


class ModelFile:
    """A file's bytes, the durable bytes, and the changes since: (position, bytes) or (size, None) for a cut."""

    def __init__(self) -> None:
        self.content = b""
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, position: int, data: bytes) -> None:
        padded = self.content.ljust(position, b"\0")
        self.content = padded[:position] + data + padded[position + len(data) :]
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        self.content = self.content[:size].ljust(size, b"\0")
        self.pending.append((size, None))

    def sync(self) -> None:
        self.durable, self.pending = self.content, []

    def crash(self) -> None:
        """Lose all that is not durable."""
        self.content, self.pending = self.durable, []

    def complaint(self, found: bytes) -> str:
        """Return why a power cut must not leave this; "" if it may."""
        ends = [position + len(data or b"") for position, data in self.pending]
        if len(found) > max([len(self.durable), *ends]):
            return f"{len(found)} bytes, longer than it ever was"
        if len(found) < min([len(self.durable), *(size for size, data in self.pending if data is None)]):
            return f"{len(found)} bytes, shorter than it ever was"
        for position, byte in enumerate(found):
            if position < len(self.durable) and byte not in self._allowed(position):
                return f"byte {position} is {byte}, not of {self._allowed(position)}"
        return ""

    def _allowed(self, position: int) -> set[int]:
        """Return the values of a byte within the durable size: beyond it, a torn file may hold anything."""
        allowed = {self.durable[position]}
        for start, data in self.pending:
            if data is None:
                if start <= position:
                    allowed.add(0)
            elif start <= position < start + len(data):
                allowed.add(data[position - start])
        return allowed


class ModelFolder:
    """Names as programs see them, as the platter has them, and the changes between."""

    def __init__(self) -> None:
        self.names: dict[str, ModelFile | ModelFolder] = {}
        self.durable: dict[str, ModelFile | ModelFolder] = {}
        self.pending: list[dict[str, ModelFile | ModelFolder | None]] = []

    def change(self, change: dict[str, ModelFile | ModelFolder | None]) -> None:
        self.names = _changed(self.names, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable, self.pending = self.names, []

    def crash(self) -> None:
        self.names, self.pending = self.durable, []
        for node in self.names.values():
            node.crash()

    def complaint(self, path: Path) -> str:
        """Return why a power cut must not leave this folder; "" if it may."""
        names, said = self.durable, []
        for change in [{}, *self.pending]:
            names = _changed(names, change)
            said.append(_complaint(names, path))
            if not said[-1]:
                return ""
        return f"{path}: {said}"


def _changed(
    names: dict[str, ModelFile | ModelFolder], change: dict[str, ModelFile | ModelFolder | None]
) -> dict[str, ModelFile | ModelFolder]:
    merged = {**names, **change}
    return {name: node for name, node in merged.items() if node is not None}


def _complaint(names: dict[str, ModelFile | ModelFolder], path: Path) -> str:
    found = sorted(os.listdir(path))
    if found != sorted(names):
        return f"has {found}, not {sorted(names)}"
    for name, node in names.items():
        if (path / name).is_dir() is not isinstance(node, ModelFolder):
            return f"{name} is of another kind"
        said = node.complaint(path / name if isinstance(node, ModelFolder) else (path / name).read_bytes())
        if said:
            return f"{name}: {said}"
    return ""
