"""One kind of checkpoint file, with an offset per log: the contents of the next file, and whether they changed.

Only logs that were touched are noted. A file names all logs of its directory (Kafka's format), so writing one costs
their number, in a thread, and only if an offset moved. The loop only copies dicts, and looks at logs that moved. An
offset belongs to a log, not to a name. A log that was deleted and recreated starts without an offset, and a file never
contains its predecessor's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.env import Env
from raftlog.base.turns import in_slices
from raftlog.storage.log_directory import LogDirectory, Offsets

if TYPE_CHECKING:
    from raftlog.base.types import TopicPartition
    from raftlog.broker.replicas.log_directories import LogVolume
    from raftlog.replication.partition import Partition
    from raftlog.storage.log import Log


LOGS_AT_ONCE: Final = 1_000
"""Logs between two turns of the loop, some 2 µs each."""


class NotedOffset(NamedTuple):
    """The offset of a log for the next file."""

    log: Log
    offset: int
    truncation_count: int
    """The log's, as long as it was not cut again."""


class OffsetCheckpoint:
    """The checkpoint files of one kind, one file per volume. `write` is the directory's method for it.

    `written` is called for each log whose offset moved or that was cut, once the file is durable. A log that was cut
    meanwhile waits for the next file.
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
        self._offsets: dict[LogVolume, dict[TopicPartition, NotedOffset]] = {}
        self._moved: dict[LogVolume, dict[TopicPartition, NotedOffset]] = {}
        """The offsets that no file has."""

    def note(self, volume: LogVolume, partition: Partition, offset: int) -> None:
        """Note this log's offset for the next file.

        The first offset of a log counts as a change, since the file may hold an older offset.
        """
        offsets = self._offsets.setdefault(volume, {})
        noted = NotedOffset(partition.log, offset, partition.log.truncation_count)
        if noted != offsets.get(partition.name):
            offsets[partition.name] = noted
            self._moved.setdefault(volume, {})[partition.name] = noted

    def forget(self, partition: Partition) -> None:
        """Drop the offset of a replica that left this broker. The file has it until it is written again."""
        name, log = partition.name, partition.log
        for each in (*self._offsets.values(), *self._moved.values()):
            noted = each.get(name)
            if noted is not None and noted.log is log:
                del each[name]

    def write_if_changed(self, volume: LogVolume) -> Awaitable[None] | None:
        """Return a coroutine that writes the changed files, or None.

        It raises OSError if a write fails; the file is due again then.
        """
        return self._write_now(volume) if volume in self._moved else None

    async def _write_now(self, volume: LogVolume) -> None:
        offsets, moved = self._offsets[volume], self._moved.pop(volume)
        gone: list[TopicPartition] = []
        logs, write = volume.logs.copy(), partial(self._write, volume.directory)
        draw_up = partial(_write_kept, write, offsets.copy(), logs=logs, gone=gone)
        written = False
        try:
            # False if a log of an old name is being created, since the prepared file may contain its predecessor's
            # offset
            written = await self._env.offload(partial(volume.checkpoint, draw_up, volume.generation))
        finally:
            if not written:
                kept = {name: noted for name, noted in moved.items() if offsets.get(name) is noted}
                self._moved[volume] = kept | self._moved.get(volume, {})
        async for name in in_slices(self._env, gone, LOGS_AT_ONCE):
            noted = offsets.get(name)
            if noted is not None and volume.logs.get(name) is not noted.log:
                del offsets[name]
        if written and self._written is not None:
            async for noted in in_slices(self._env, moved.values(), LOGS_AT_ONCE):
                if noted.truncation_count == noted.log.truncation_count:
                    self._written(noted.log, noted.offset)


def _write_kept(
    write: Callable[[Offsets], None],
    offsets: Mapping[TopicPartition, NotedOffset],
    *,
    logs: Mapping[TopicPartition, Log],
    gone: list[TopicPartition],
) -> None:
    """Write the offsets of the logs that are there, and add the names of all others to `gone`. Away from the loop."""
    drawn = {}
    for name, noted in offsets.items():
        if logs.get(name) is not noted.log:
            gone.append(name)
        elif noted.offset:
            drawn[name] = noted.offset
    write(drawn)
