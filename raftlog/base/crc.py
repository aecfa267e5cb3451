"""CRC-32C, from the library `crc32c`, without what else it loads.

Its `__init__` looks up its own version, and imports some forty modules of the standard library for that. They take a
twelfth of a node's start and two megabytes of its memory. The compiled module is all that is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, cast

Crc = Callable[..., int]


def _load() -> Crc:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    compiled = folders and PathFinder.find_spec("crc32c._crc32c", folders)
    if not compiled or compiled.loader is None:
        from crc32c import crc32c as whole

        return cast(Crc, whole)
    module: Any = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return cast(Crc, module.crc32c)


crc32c: Crc = _load()
"""Return the checksum of bytes (any buffer), going on from that of the bytes before if it is given."""
