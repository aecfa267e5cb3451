"""Faults that a node can inject into itself for tests, as values: their names and details. Not: their implementation.

| fault | details | what happens |
|---|---|---|
| `slow-disk` | `seconds` | every sync takes that much longer |
| `full-disk` | | writes that need room fail with ENOSPC, and no byte is free |
| `failing-disk` | `operation`: read, write or sync | such operations fail with EIO; a failed sync loses data |
| `clock-jump` | `offset_ms` | the wall clock is that far from the true time; what is measured in seconds is not |
| `cut-off` | `seconds`; 0: until healed | connections with other nodes are closed and refused; clients are served on |
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

LONGEST_S: Final = 3_600
FARTHEST_MS: Final = 10 * 365 * 86_400_000
"""Ten years."""


class SlowDisk(msgspec.Struct, tag_field="fault", tag="slow-disk", forbid_unknown_fields=True):
    """Every sync takes `seconds` longer."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class FullDisk(msgspec.Struct, tag_field="fault", tag="full-disk", forbid_unknown_fields=True):
    """Writes that need room fail with ENOSPC."""


class FailingDisk(msgspec.Struct, tag_field="fault", tag="failing-disk", forbid_unknown_fields=True):
    """Operations of one kind fail with EIO. A failed log directory stays offline until the node restarts."""

    operation: Literal["read", "write", "sync"]


class ClockJump(msgspec.Struct, tag_field="fault", tag="clock-jump", forbid_unknown_fields=True):
    """The wall clock is `offset_ms` from the true time."""

    offset_ms: Annotated[int, msgspec.Meta(ge=-FARTHEST_MS, le=FARTHEST_MS)]


class CutOff(
    msgspec.Struct, tag_field="fault", tag="cut-off", forbid_unknown_fields=True, omit_defaults=True
):
    """Connections with other nodes are closed and refused, for `seconds`; 0: until it is healed."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)] = 0


NodeFault = SlowDisk | FullDisk | FailingDisk | ClockJump | CutOff

CUT_OFF: Final = "cut-off"
NAMES: Final = ("slow-disk", "full-disk", "failing-disk", "clock-jump", CUT_OFF)


def name_of(fault: NodeFault) -> str:
    """Return a fault's name, the same in Python, on the command line, over HTTP and in suites."""
    name = fault.__struct_config__.tag
    assert isinstance(name, str)
    return name
