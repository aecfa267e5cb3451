"""Rot that was planted on real disks, compared with the nodes' logs. It plants none itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from raftlog.faults.harm import Rot
from raftlog_chaos.runs.landmarks import read_events

NOTICED: Final = ("log_damage_set_aside", "log_damaged")


class _Planted(NamedTuple):
    """`log_from`: how long the node's log was, bytes."""

    node_id: int
    folder: Path
    log_path: Path
    log_from: int


class RotWatch:
    """The rot, its place, and whether the node found it. Only rot that a node's next start reads counts as missed."""

    def __init__(self) -> None:
        self._planted: list[_Planted] = []

    def note(self, node_id: int, rot: Rot, log_path: Path) -> None:
        """Note that a bit was flipped in the files of a node that does not run."""
        if rot.is_due:
            size = log_path.stat().st_size if log_path.exists() else 0
            self._planted.append(_Planted(node_id, Path(rot.path).parent, log_path, size))

    def forget(self, node_id: int) -> None:
        """Forget the flipped bits of a replaced disk."""
        self._planted = [each for each in self._planted if each.node_id != node_id]

    def unnoticed(self) -> Iterator[str]:
        """Yield what no node said a word about, though the partition is still there."""
        for each in self._planted:
            if each.folder.exists() and not _is_noticed(each):
                yield f"node {each.node_id}: a bit flipped in {each.folder.name} was never noticed"


def _is_noticed(planted: _Planted) -> bool:
    if not planted.log_path.exists():
        return False
    with planted.log_path.open("rb") as log:
        log.seek(planted.log_from)
        lines = log.read().decode(errors="replace").splitlines()
    return any(_names(event.fields, planted.folder.name) for event in _found(planted.node_id, lines))


def _found(node_id: int, lines: Iterable[str]) -> Iterator[Any]:
    return (event for event in read_events(node_id, lines) if event.name in NOTICED)


def _names(fields: Any, folder: str) -> bool:
    """One event names the folder's path, the other topic and partition."""
    named = Path(str(fields.get("directory", ""))).name, f"{fields.get('topic')}-{fields.get('partition')}"
    return folder in named
