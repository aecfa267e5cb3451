"""Words and laws of every room: types, wire errors, the config table, ports to disk and environment, the log."""

from __future__ import annotations

import sys


def _import_msgspec_alone() -> None:
    """Import msgspec without typing_extensions, which it takes where that is installed: 330 KB of a node's memory."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment] # an import of it raises ImportError
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


_import_msgspec_alone()
