"""The metadata batches that a voter has proposed, until they are committed, within limits of number and bytes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import InvalidRequest, RequestTimedOut
from raftlog.quorum.wal import MAX_COMMAND_BYTES

if TYPE_CHECKING:
    from raftlog.quorum.core import RaftCore

MAX_UNCOMMITTED_BATCHES: Final = 1_000
MAX_UNCOMMITTED_BYTES: Final = 16 * 1024 * 1024


class Proposals:
    """The proposals of one voter. They are appended only in the term in which they were made."""

    def __init__(self, core: RaftCore) -> None:
        self.size_bytes = 0
        self._core = core
        self.waiting: deque[tuple[int, bytes]] = deque()
        """The term and the batch of each proposal that is not appended yet."""
        self.uncommitted: deque[tuple[int, int]] = deque()
        """The index and the size of each proposal that is appended and not known to be committed."""

    def add(self, data: bytes) -> None:
        """Add a batch. Raise InvalidRequest if it is too large, RequestTimedOut if too much is uncommitted."""
        if len(data) >= MAX_COMMAND_BYTES:
            raise InvalidRequest(
                f"a metadata batch of {len(data)} bytes is over the limit of {MAX_COMMAND_BYTES}"
            )
        count = len(self.uncommitted) + len(self.waiting)
        if count >= MAX_UNCOMMITTED_BATCHES or self.size_bytes + len(data) > MAX_UNCOMMITTED_BYTES:
            raise RequestTimedOut("too many metadata changes wait for a majority")
        self.waiting.append((self._core.term, data))
        self.size_bytes += len(data)

    def append(self) -> None:
        """Append what waits to the log, unless its term is over."""
        core = self._core
        while self.waiting:
            term, data = self.waiting.popleft()
            if core.is_leader and core.term == term:
                core.propose(data)
                self.uncommitted.append((core.journal.last_index, len(data)))
            else:
                self.size_bytes -= len(data)

    def drop_committed(self) -> None:
        """Make room for further proposals. On a voter that no longer leads, drop all that are appended."""
        core = self._core
        committed = core.commit_index if core.is_leader else core.journal.last_index
        while self.uncommitted and self.uncommitted[0][0] <= committed:
            self.size_bytes -= self.uncommitted.popleft()[1]
