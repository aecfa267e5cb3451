"""CRC-32C: the function of the library `crc32c`, without its other modules."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.base.compiled import load_compiled

crc32c: Callable[..., int] = load_compiled("crc32c", "_crc32c").crc32c
"""Return the checksum of bytes (any buffer), continued from the checksum of the preceding bytes, if given."""
