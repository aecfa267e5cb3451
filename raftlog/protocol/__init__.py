"""Kafka frames and messages ⇄ objects, every version, on kio schemas. Must not know what a request is for."""

from __future__ import annotations

import sys


def _import_kio_alone() -> None:
    """Import what all of kio rests on without Hypothesis, which it loads wherever that is installed.

    It would be two fifths of a node's start on the machines of those who develop.
    """
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment] # an import of it raises ImportError
    try:
        import kio.static._phantom  # noqa: F401
    finally:
        del sys.modules["hypothesis"]


_import_kio_alone()
