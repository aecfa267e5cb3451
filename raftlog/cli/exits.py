"""Exit codes of the command line, a superset of what kcat, rpk and kafkactl use."""

from __future__ import annotations

FAILED = 1
USAGE = 2
NOT_FOUND = 3
EXISTS = 4
UNREACHABLE = 6
VERIFICATION_FAILED = 8
INTERRUPTED = 130
