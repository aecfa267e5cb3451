"""One kind of checkpoint file, with an offset per log: the contents of the next file, and whether they changed.

Only logs that were touched are noted. A file names all logs of its directory (Kafka's format), so writing one costs
their number, in a thread, and only if an offset moved. An offset belongs to a log, not to a name. A log that was
deleted and recreated starts without an offset, and a file never contains its predecessor's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.base.env import Env
from raftlog.storage.log_directory import LogDirectory, Offsets

if TYPE_CHECKING:
    from raftlog.base.types import TopicPartition
    from raftlog.broker.replicas.log_directories import LogVolume
    from raftlog.replication.partition import Partition
    from raftlog.storage.log import Log


class OffsetCheckpoint:
    """The checkpoint files of one kind, one file per volume. `write` is the directory's method for it.

    `written` is called for each log of a file once that is durable.
    """

    def __init__(
        self,
        env: Env,
        write: Callable[[LogDirectory, Offsets], None],
        *,
        written: Callable[[Log, int], None] | None = None,
    ) -> None:
        self._env = env
        self._write = write
        self._written = written
        self._offsets: dict[LogVolume, dict[TopicPartition, tuple[Log, int]]] = {}
        self._changed: set[LogVolume] = set()

    def note(self, volume: LogVolume, partition: Partition, offset: int) -> None:
        """Note this log's offset for the next file.

        The first offset of a log counts as a change, since the file may hold an older offset.
        """
        offsets = self._offsets.setdefault(volume, {})
        noted = partition.log, offset
        if noted != offsets.get(partition.name):
            offsets[partition.name] = noted
            self._changed.add(volume)

    def write_if_changed(self, volume: LogVolume) -> Awaitable[None] | None:
        """Return a coroutine that writes the changed files, or None.

        It raises OSError if a write fails; the file is due again then.
        """
        return self._write_now(volume) if volume in self._changed else None

    async def _write_now(self, volume: LogVolume) -> None:
        kept = {
            name: each for name, each in self._offsets[volume].items() if volume.logs.get(name) is each[0]
        }
        self._offsets[volume] = kept
        drawn = {name: offset for name, (_, offset) in kept.items() if offset}
        self._changed.discard(volume)
        write = partial(self._write, volume.directory)
        written = False
        try:
            # False if a log of an old name is being created, since the prepared file may contain its predecessor's
            # offset
            written = await self._env.offload(partial(volume.checkpoint, write, drawn, volume.generation))
        finally:
            if not written:
                self._changed.add(volume)
        if written and self._written is not None:
            for log, offset in kept.values():
                self._written(log, offset)
