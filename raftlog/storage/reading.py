"""Reading batches out of one segment, and what is believed of them: lengths, CRCs, offsets, and holes."""

from __future__ import annotations

import struct
from typing import Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage
from raftlog.storage import holes
from raftlog.storage.segment import Segment

_BASE_OFFSET: Final = struct.Struct(">q")


def read_batches(
    segment: Segment, offset: int, bounds: tuple[int, int, int], *, cached: bool, checked: bool
) -> Buffer | None:
    """Return the whole batches within what `segment.bounds` said of an offset; `cached` and `checked` as in `Log.read`.

    None if `cached` and it would wait for the disk. CorruptMessage where the segment, or its index, is not sound.
    """
    start, stop, following = bounds
    if stop <= start:
        return b""
    read = segment.file.pread_cached if cached else segment.file.pread
    chunk = read(stop - start, start)
    if chunk is None or len(chunk) < stop - start:
        if cached:
            return None
        raise CorruptMessage(f"{segment.path}.log is shorter than it was")
    if not cached or checked or start < segment.trusted_from:
        segment.verify(chunk, start, offset, cached=cached and not checked)
    if _BASE_OFFSET.unpack_from(chunk)[0] > offset and not holes.look(segment, offset, cached=cached):
        return None
    if cached:
        segment.remember(following, stop)
    return chunk
