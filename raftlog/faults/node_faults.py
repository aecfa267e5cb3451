"""Faults that a node injects into itself on request, since no other process can: of its disk, wall clock and links.

`raftlog.base.faults` lists them. A node offers them with `raftlog server --enable-faults` only. With it the disk also
writes down what it has not synced (`raftlog.faults.forgetful_disk`), which is what a power cut needs. A node that once
ran so must go on so, or lose its `<log dir>.unsynced`. How requests arrive (lines on standard input, HTTP) is not known
here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from raftlog.base.faults import NAMES, ClockJump, FailingDisk, FullDisk, NodeFault, SlowDisk
from raftlog.faults.forgetful_disk import ForgetfulDisk
from raftlog.faults.link_faults import LinkFaults
from raftlog.faults.troubled_disk import DiskTrouble, TroubledDisk


class Command(msgspec.Struct, forbid_unknown_fields=True):
    """One line that a node is sent: what to inject, or the name of what to heal (or "all"); neither only asks."""

    id: int = 0
    inject: NodeFault | None = None
    heal: str = ""


class Reply(msgspec.Struct):
    """The line that answers a command: the faults in force after it."""

    id: int = 0
    active: list[NodeFault] = []
    error: str = ""


_read_command = msgspec.json.Decoder(Command).decode
_read_fault: Callable[[str], NodeFault] = msgspec.json.Decoder(NodeFault).decode
read_reply = msgspec.json.Decoder(Reply).decode
"""Return the reply in a line. msgspec.MsgspecError if it is none."""
write_line = msgspec.json.Encoder().encode
"""Return a command or reply as a line, without its end."""


class NodeFaults(LinkFaults):
    """The faults of one node, and the disk, clock and links that they act on. Any thread may call it."""

    available = NAMES
    enabled = True

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__()
        self.disk = TroubledDisk(ForgetfulDisk(folders))
        self._offset_ms = 0

    def wall_clock_ms(self) -> int:
        """Return what this node takes for the time."""
        return time.time_ns() // 1_000_000 + self._offset_ms

    def _act(self) -> None:
        super()._act()
        trouble, self._offset_ms = DiskTrouble(), 0
        for fault in self._active.values():
            match fault:
                case SlowDisk():
                    trouble = trouble._replace(slow_s=fault.seconds)
                case FullDisk():
                    trouble = trouble._replace(full=True)
                case FailingDisk():
                    trouble = trouble._replace(failing=fault.operation)
                case ClockJump():
                    self._offset_ms = fault.offset_ms
        self.disk.trouble = trouble

    def obey(self, line: bytes) -> bytes:
        """Do what a line says (JSON of a `Command`) and return the line that answers it (of a `Reply`)."""
        try:
            command = _read_command(line)
        except msgspec.MsgspecError as error:
            return write_line(Reply(error=str(error)))
        if command.inject is not None:
            self.inject(command.inject)
        if command.heal:
            self.heal(command.heal)
        return write_line(Reply(command.id, self.active()))


def read_fault(text: str) -> NodeFault:
    """Return the fault that JSON describes. ValueError if it is none."""
    return _read_fault(text)


def faults_of(trouble: DiskTrouble) -> dict[str, NodeFault | None]:
    """Return what a disk's trouble is made of: each fault of disks by name, or None where it is well."""
    return {
        "slow-disk": SlowDisk(trouble.slow_s) if trouble.slow_s else None,
        "full-disk": FullDisk() if trouble.full else None,
        "failing-disk": FailingDisk(trouble.failing) if trouble.failing else None,  # type: ignore[arg-type]
    }
