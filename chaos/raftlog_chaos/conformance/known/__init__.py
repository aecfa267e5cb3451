"""The known differences between Apache Kafka 4.3 and raftlog, a module for each subject that has some."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from raftlog_chaos.conformance.differences import Known


@cache
def load() -> tuple[Known, ...]:
    """Return all known differences; what no history shows comes first."""
    names = sorted(
        (each.name for each in pkgutil.iter_modules(__path__)), key=lambda name: (name != "general", name)
    )
    return tuple(known for name in names for known in importlib.import_module(f"{__name__}.{name}").KNOWN)
