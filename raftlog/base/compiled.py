"""Compiled modules of libraries, without the Python around them.

Some packages look up their own version as they are imported, or import unused variants. For that they load forty to
sixty modules of the standard library: a twelfth of a node's start, and two megabytes of its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


def load_compiled(package: str, name: str) -> Any:
    """Import one compiled module of a package, but not the package itself. Raises ImportError."""
    found = find_spec(package)
    folders = None if found is None else found.submodule_search_locations
    compiled = folders and PathFinder.find_spec(f"{package}.{name}", folders)
    if not compiled or compiled.loader is None:
        raise ModuleNotFoundError(f"{package} has no compiled module {name} here", name=f"{package}.{name}")
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = load_compiled("crc32c", "_crc32c").crc32c
"""Return the CRC-32C of bytes (any buffer), continued from the checksum of the preceding bytes, if given."""
