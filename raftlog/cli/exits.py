"""Exit codes of the command line, a superset of what kcat, rpk and kafkactl use."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
EXISTS = 4
NOT_RUN = 5
"""Something that was asked for can't be done on this machine; what could be was done."""
UNREACHABLE = 6
UNHEALTHY = 7
VERIFICATION_FAILED = 8
INTERRUPTED = 130
