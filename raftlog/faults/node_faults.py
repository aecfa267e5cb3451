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

from raftlog.base.faults import ClockJump, CutOff, FailingDisk, FullDisk, NodeFault, SlowDisk, name_of
from raftlog.base.log import get_logger
from raftlog.faults.forgetful_disk import ForgetfulDisk
from raftlog.faults.node_links import NodeLinks
from raftlog.faults.troubled_disk import DiskTrouble, TroubledDisk

log = get_logger("faults")


ALL = "all"


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


class NodeFaults:
    """The faults of one node, and the disk, clock and links that they act on. Any thread may call it."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.disk = TroubledDisk(ForgetfulDisk(folders))
        self.links = NodeLinks()
        self._offset_ms = 0
        self._active: dict[str, NodeFault] = {}

    def wall_clock_ms(self) -> int:
        """Return what this node takes for the time."""
        return time.time_ns() // 1_000_000 + self._offset_ms

    def active(self) -> list[NodeFault]:
        """Return the faults in force."""
        return list(self._active.values())

    def inject(self, fault: NodeFault) -> None:
        """Begin a fault; replace a fault of the same name."""
        name = name_of(fault)
        self._active = {**self._active, name: fault}
        self._act()
        details = msgspec.structs.asdict(fault)
        log.warning("fault_injected", fault=name, **details)

    def heal(self, name: str = ALL) -> None:
        """End a fault, or all; ignore an unknown name."""
        healed = [each for each in self._active if name in (each, ALL)]
        self._active = {each: fault for each, fault in self._active.items() if each not in healed}
        self._act()
        for each in healed:
            log.warning("fault_healed", fault=each)

    def _act(self) -> None:
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
        self.links.cut(any(isinstance(each, CutOff) for each in self._active.values()))

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
