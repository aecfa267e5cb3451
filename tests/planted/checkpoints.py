"""Bugs of small files: what a start believes though no checksum covers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftlog.base.checked_files import write_checked
from raftlog.base.config import TopicConfig
from raftlog.base.disk import Disk
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.log_directories import LogDirectories, LogVolume
from raftlog.quorum import wal
from raftlog.storage import log_directory, partition_files, recovery
from raftlog.storage.log import Log
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.rotten_files import rotten_files
from tests.planted.plant import Plant

Patch = Callable[[pytest.MonkeyPatch], None]

ROT = "rot in a small file"


def _read(disk: Disk, path: str) -> bytes | None:
    return disk.read_file(path) if disk.exists(path) else None


def unchecked_lines(name: str) -> Patch:
    """The lines of a checkpoint are trusted as they are; unreadable lines are skipped."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        read = log_directory.read_checked_lines

        def read_all(disk: Disk, path: str) -> list[bytes]:
            if not path.endswith(f"/{name}"):
                return read(disk, path)
            return [line for line in (_read(disk, path) or b"").split(b"\n") if _is_readable(line)]

        patch.setattr(log_directory, "read_checked_lines", read_all)

    return plant


def _is_readable(line: bytes) -> bool:
    topic, *numbers = line.split(b" ")
    return bool(topic) and len(numbers) == 2 and all(each.isdigit() for each in numbers)


def unchecked_file(name: str, module: Any) -> Patch:
    """A file is believed whole, as it is."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        read = module.read_checked

        def read_it(disk: Disk, path: str, **options: Any) -> bytes | None:
            return _read(disk, path) if path.endswith(f"/{name}") else read(disk, path, **options)

        patch.setattr(module, "read_checked", read_it)

    return plant


def start_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    """A log begins where its checkpoint says, also if it ends before."""
    opened_without = LogDirectories._open

    def open_and_cut(
        self: LogDirectories, volume: LogVolume, name: TopicPartition, topic_id: Any, config: TopicConfig
    ) -> Log:
        opened = opened_without(self, volume, name, topic_id, config)
        start = volume.directory.log_starts.get(name, 0)
        if start > opened.log_end_offset:
            opened.log_start_offset = start
        return opened

    patch.setattr(LogDirectories, "_open", open_and_cut)


def end_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """The last write of a journal passes for torn if it rots, however long ago it was synced."""
    patch.setattr(wal, "_marked", lambda image: image)
    patch.setattr(wal.Wal, "close", lambda journal: None)


def durable_files_rewritten(patch: pytest.MonkeyPatch) -> None:
    """A folder that was new at a power cut is taken for an older release's, and its files are rewritten unsynced."""

    def rewrite(disk: Disk, path: str, content: bytes, **options: Any) -> None:
        write_checked(disk, path, content, **{**options, "sync": False})

    patch.setattr(recovery, "write_checksums", rewrite)


PLANTS = [
    Plant("log-starts-unchecked", ROT, rotten_files, unchecked_lines(log_directory.LOG_STARTS)),
    Plant("high-watermarks-unchecked", ROT, rotten_files, unchecked_lines(log_directory.HIGH_WATERMARKS)),
    Plant("recovery-points-unchecked", ROT, rotten_files, unchecked_lines(log_directory.RECOVERY_POINTS)),
    Plant(
        "clean-marker-unchecked",
        ROT,
        rotten_files,
        unchecked_file(log_directory.CLEAN_SHUTDOWN, log_directory),
    ),
    Plant(
        "identity-unchecked", ROT, rotten_files, unchecked_file(log_directory.META_PROPERTIES, log_directory)
    ),
    Plant(
        "topic-id-unchecked", ROT, rotten_files, unchecked_file(partition_files.PARTITION_METADATA, recovery)
    ),
    Plant("epochs-unchecked", ROT, rotten_files, unchecked_file(partition_files.EPOCH_CHECKPOINT, recovery)),
    Plant(
        "journal-end-unmarked",
        ROT,
        rotten_files,
        end_without_a_mark,
        4.0,
        test=(
            "tests/quorum/test_journal.py"
            "::test_rot_in_the_last_records_of_a_voter_that_stopped_by_itself_stops_the_boot"
        ),
    ),
    Plant("durable-files-rewritten", "a power cut after another", blackouts, durable_files_rewritten),
    Plant("start-beyond-the-end", ROT, rotten_files, start_beyond_the_end),
]
