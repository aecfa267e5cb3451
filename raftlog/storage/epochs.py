"""The first offset of each leader epoch in a log (KIP-101, KIP-279), and Kafka's `leader-epoch-checkpoint` file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from raftlog.base.types import MAX_OFFSET, NO_EPOCH, UNKNOWN_EPOCH_END, EpochEnd

_VERSION = "0"


class LeaderEpochs:
    """(epoch, start offset) pairs; both grow strictly. Epochs without records may be absent."""

    __slots__ = ("_epochs", "_starts", "changed", "latest", "saved_until")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False
        self.saved_until = MAX_OFFSET
        """The checkpoint file names the epoch of every batch before this offset."""
        self.latest = NO_EPOCH
        """The newest epoch, -1 if none. An attribute: every append looks at it."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def first_start(self) -> int:
        """The offset at which the oldest epoch begins, 0 if none is known."""
        return self._starts[0] if self._starts else 0

    def note(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`; ignore an epoch that is not newer than the latest.

        Entries that begin at or after `start_offset` hold no records and go away.
        """
        if epoch <= self.latest:
            return
        self.truncate(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._set_latest()
        self._change_from(start_offset)

    def note_batch(self, epoch: int, base_offset: int, *, due: int) -> None:
        """Record the epoch of a batch that was found where offset `due` comes next: compaction may have left a hole
        before it.

        The first epoch of all begins at the hole: too early is safe, too late would hide that a log parted there.
        """
        self.note(epoch, base_offset if self._epochs else due)

    def _change_from(self, offset: int) -> None:
        self.changed = True
        self.saved_until = min(self.saved_until, offset)

    def note_saved(self) -> None:
        """Note that the checkpoint file holds these entries durably."""
        self.changed, self.saved_until = False, MAX_OFFSET

    def _set_latest(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def truncate(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._change_from(self._starts.pop())
            self._epochs.pop()
        self._set_latest()

    def advance_start(self, start_offset: int) -> None:
        """Forget epochs that end before `start_offset`; the epoch in force there begins at it."""
        keep = max(bisect_right(self._starts, start_offset) - 1, 0)
        if keep:
            del self._starts[:keep], self._epochs[:keep]
            self.changed = True
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset
            self.changed = True

    def copy(self) -> LeaderEpochs:
        """Return an independent copy."""
        twin = LeaderEpochs()
        twin._epochs, twin._starts, twin.latest = list(self._epochs), list(self._starts), self.latest
        return twin

    def clear(self) -> None:
        if self._starts:
            self._change_from(self._starts[0])
        self._epochs.clear()
        self._starts.clear()
        self._set_latest()

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, -1 if unknown."""
        found = bisect_right(self._starts, offset) - 1
        try:
            return self._epochs[found] if found >= 0 else NO_EPOCH
        except IndexError:  # a cold read asks from another thread, and they were cut meanwhile
            return NO_EPOCH

    def begins_at(self, offset: int) -> bool:
        """Return whether an epoch begins at `offset`."""
        found = bisect_left(self._starts, offset)
        return found < len(self._starts) and self._starts[found] == offset

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch ≤ `epoch` and where it ends.

        An epoch older than all known returns itself and the first known start. An epoch newer than the latest returns
        UNKNOWN_EPOCH_END, as in Kafka's LeaderEpochFileCache.endOffsetFor.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNKNOWN_EPOCH_END
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        found = self._epochs[following - 1] if following else epoch
        return EpochEnd(found, self._starts[following])

    def encode(self) -> bytes:
        """Return the bytes of Kafka's checkpoint file."""
        lines = [_VERSION, str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True)]
        return ("\n".join(lines) + "\n").encode()

    def decode(self, file_bytes: bytes) -> None:
        """Load the entries of a checkpoint file. ValueError if it is malformed."""
        version, count, *lines = file_bytes.decode("ascii").split("\n")
        if version != _VERSION or lines[-1:] != [""] or len(lines) - 1 != int(count):
            raise ValueError("not a leader epoch checkpoint of version 0")
        pairs = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines[:-1])]
        if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairwise(pairs)):
            raise ValueError("leader epochs do not increase")
        self._epochs = [epoch for epoch, _ in pairs]
        self._starts = [start for _, start in pairs]
        self._set_latest()
        self.note_saved()
