"""Exit codes of the command line, a superset of what kcat, rpk and kafkactl use, and the failures that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
EXISTS = 4
DENIED = 5
NOT_RUN = 5
"""Something that was asked for can't be done on this machine; what could be was done."""
UNREACHABLE = 6
UNHEALTHY = 7
VERIFICATION_FAILED = 8
INTERRUPTED = 130

TABLE: Final = (
    (OK, "done"),
    (FAILED, "the operation failed, or was refused"),
    (USAGE, "wrong usage, or a config that cannot be used"),
    (NOT_FOUND, "not found"),
    (EXISTS, "exists already"),
    (DENIED, "not authorized; chaos --strict: this machine can't inject a fault"),
    (UNREACHABLE, "no answer within --timeout"),
    (UNHEALTHY, "not healthy; a restart is not safe"),
    (VERIFICATION_FAILED, "demo, pipeline, log verify: records are lost or damaged"),
    (INTERRUPTED, "interrupted by Ctrl-C"),
)
"""The text of `raftlog --help`."""


class Failure(Exception):
    """The end of a command: a line on standard error, with `details` below it, and an exit code."""

    def __init__(self, message: str, code: int = FAILED, *, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.details = tuple(details)
