"""Definitions shared by every room: types, wire errors, the config table, ports to disk and environment, the log."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def import_without(hidden: str, name: str) -> ModuleType:
    """Import a module as if `hidden` were not installed, unless that is loaded already.

    The module has no `hidden` from then on. So in another program, hide only what no other code needs of the module.
    """
    if hidden in sys.modules:
        return import_module(name)
    sys.modules[hidden] = None  # type: ignore[assignment]  # an import of it raises ImportError
    try:
        return import_module(name)
    finally:
        del sys.modules[hidden]
