"""Assembly of a snapshot from the chunks that a leader sends."""

from __future__ import annotations

from raftlog.quorum.messages import SnapshotChunk
from raftlog.quorum.snapshot import MAX_SNAPSHOT_BYTES


class IncomingSnapshot:
    """At most one pending snapshot, with chunks in order, from one leader of one term."""

    def __init__(self) -> None:
        self._source: tuple[int, int, int, int] | None = None
        self._chunks: list[bytes] = []
        self._received = 0

    def take(self, peer: int, chunk: SnapshotChunk) -> bytes | None:
        """Return the whole snapshot when this chunk completes it. A chunk out of order discards the others."""
        source = (peer, chunk.term, chunk.index, chunk.total)
        if chunk.start == 0:
            self._source, self._chunks, self._received = source, [], 0
        if (
            source != self._source
            or chunk.start != self._received
            or not 0 < chunk.total <= MAX_SNAPSHOT_BYTES
        ):
            self._source, self._chunks = None, []
            return None
        self._chunks.append(chunk.data)
        self._received += len(chunk.data)
        if self._received < chunk.total:
            return None
        data = b"".join(self._chunks)
        self._source, self._chunks = None, []
        return data if len(data) == chunk.total else None
