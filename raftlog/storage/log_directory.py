"""One folder of `log.dirs`: its owner, partitions, checkpoints and clean-shutdown marker.

All in Apache Kafka's formats, with checksums beside them (`base.checked_files`). A wrong line of a checkpoint counts as
absent: its log is then checked, cleaned or followed from its start. A wrong clean-shutdown marker counts as absent too;
meta.properties has a copy.

Ordering law: the marker is written last, after every log closed cleanly, and is gone (synced) before the first log is
opened again. A recovery point is written after the log's own `checkpoint`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from raftlog.base.checked_files import (
    CHECKSUMS,
    has_checksums,
    read_checked,
    read_checked_lines,
    read_copy,
    remove_checked,
    write_checked,
    write_checksums,
)
from raftlog.base.disk import Disk, make_durable_folder
from raftlog.base.log import get_logger
from raftlog.base.types import METADATA_FOLDER, NO_EPOCH, TopicPartition, decode_uuid, encode_uuid

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
DELETED_SUFFIX: Final = "-delete"
INCARNATIONS: Final = "broker.incarnations"
"""The property of meta.properties that names the processes which had the folder open."""
MAX_INCARNATIONS: Final = 100
"""Most ids in it. If more processes in a row could not register, the ids between the first and the last are dropped."""
_RENAMED: Final = re.compile(rf"\.[0-9a-f]{{32}}{DELETED_SUFFIX}\Z")
"""A folder of another name may be an operator's."""
_DATA: Final = frozenset(
    {RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS, CLEAN_SHUTDOWN, METADATA_FOLDER}
)
_FOLDER_OF_DATA: Final = re.compile(r".-(\d+|delete|stray)\Z", re.ASCII)
MAX_FILE_NAME_BYTES: Final = 255
"""Bytes of a file's name on the usual file systems; topics' names are ASCII."""

Offsets = Mapping[TopicPartition, int]

_log = get_logger("storage")


class ForeignLogDirectory(Exception):
    """The folder belongs to another node or cluster, or its identity cannot be read."""


class LogDirectory:
    """An open folder of `log.dirs`."""

    def __init__(self, disk: Disk, path: str, properties: dict[str, str]) -> None:
        self._disk = disk
        self.path = path
        self._properties = properties
        self.directory_id = decode_uuid(properties["directory.id"])
        self.incarnations = _read_incarnations(path, properties)
        """The incarnations that opened this folder: the last that is known to have registered, and later incarnations.
        """
        self._is_upgraded = has_checksums(disk, f"{path}/{META_PROPERTIES}")
        """Raftlog 0.4 or newer wrote here, so that files without checksums are rejected."""
        self.clean_broker_epoch = self._take_clean_marker()
        """The broker epoch that the last stop wrote, -1 if unknown; None if the last stop was not clean (KIP-966)."""
        self.recovery_points = self._read_offsets(RECOVERY_POINTS)
        self.log_starts = self._read_offsets(LOG_STARTS)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
        self.cleaner_offsets = self._read_offsets(CLEANER_OFFSETS)
        """The content of the checkpoints at the start; later writes do not change it."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        node_id: int,
        cluster_id: str | None,
        new_directory_id: Callable[[], UUID],
        is_older: bool = False,
    ) -> LogDirectory:
        """Open a log directory, made and marked as this node's if new. Removes the clean-shutdown marker.

        `cluster_id` None means not known yet. `is_older`: a release wrote it that left no meta.properties there. Raise
        ForeignLogDirectory if another node's or cluster's, or if there is data and no identity.
        """
        make_durable_folder(disk, path)
        properties = _read_properties(disk, f"{path}/{META_PROPERTIES}")
        if "node.id" not in properties and not is_older and (data := _data_in(disk, path)):
            raise ForeignLogDirectory(
                f"{path} holds data ({data}), but {META_PROPERTIES} is missing there or says no node.id: "
                f"{_way_back(disk, f'{path}/{META_PROPERTIES}')}, or give node {node_id} an empty folder"
            )
        expected = {"version": "1", "node.id": str(node_id)}
        if cluster_id:
            expected["cluster.id"] = cluster_id
        for key, value in expected.items():
            if properties.setdefault(key, value) != value:
                raise ForeignLogDirectory(
                    f"{path}/{META_PROPERTIES} says {key}={properties[key]}, but this node has {key}={value}"
                )
        properties.setdefault("directory.id", encode_uuid(new_directory_id()))
        _check_directory_id(path, properties["directory.id"])
        directory = cls(disk, path, properties)
        directory._upgrade()
        directory._write_properties()
        return directory

    @property
    def was_clean_shutdown(self) -> bool:
        """Whether the last stop was clean, so that logs need no check."""
        return self.clean_broker_epoch is not None

    @property
    def cluster_id(self) -> str | None:
        return self._properties.get("cluster.id")

    def write_cluster_id(self, cluster_id: str) -> None:
        """Write the cluster id that this folder belongs to. ForeignLogDirectory if it has another."""
        if self._properties.setdefault("cluster.id", cluster_id) != cluster_id:
            raise ForeignLogDirectory(f"{self.path} belongs to cluster {self.cluster_id}, not {cluster_id}")
        self._write_properties()

    def note_incarnation(self, incarnation_id: UUID) -> None:
        """Write durably that a process opens this folder, before it registers. Raises OSError."""
        earlier = self.incarnations
        if len(earlier) >= MAX_INCARNATIONS:
            earlier = (earlier[0], *earlier[2:])
        self._write_incarnations((*earlier, incarnation_id))

    def confirm_incarnation(self, incarnation_id: UUID) -> None:
        """Drop the ids of earlier processes, after this incarnation has registered. Raise OSError."""
        self._write_incarnations((incarnation_id,))

    def _write_incarnations(self, incarnations: tuple[UUID, ...]) -> None:
        before = self._properties
        self._properties = {**before, INCARNATIONS: ",".join(map(encode_uuid, incarnations))}
        try:
            self._write_properties()
        except OSError:
            self._properties = before
            raise
        self.incarnations = incarnations

    def _upgrade(self) -> None:
        """Give the checkpoints of an older raftlog their checksums, before meta.properties has its own."""
        if self._is_upgraded:
            return
        for path in (f"{self.path}/{name}" for name in CHECKPOINTS):
            if self._disk.exists(path):
                write_checksums(self._disk, path, self._disk.read_file(path), by_line=True)

    def _write_properties(self) -> None:
        lines = ["#", *(f"{key}={value}" for key, value in sorted(self._properties.items()))]
        text = ("\n".join(lines) + "\n").encode()
        path = f"{self.path}/{META_PROPERTIES}"
        if not (self._is_upgraded and self._disk.exists(path)) or self._disk.read_file(path) != text:
            write_checked(self._disk, path, text, copy=True)
            self._is_upgraded = True

    # -- partitions ----------------------------------------------------------------------------------------------

    def partition_path(self, partition: TopicPartition) -> str:
        """Return the folder of a partition."""
        return f"{self.path}/{partition.topic}-{partition.partition}"

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have a folder here."""
        found = []
        for name in self._disk.listdir(self.path):
            topic, dash, number = name.rpartition("-")
            if dash and topic and number.isdecimal() and number.isascii():
                found.append(TopicPartition(topic, int(number)))
        return found

    def rename_for_deletion(self, path: str, unique: str) -> str:
        """Rename a closed log's folder to `<name>.<unique>-delete`, as Kafka does; returns the new path.

        The name is cut if it would be too long for a file system: topics' names have up to 249 characters. The caller
        removes the folder away from the loop; a replica may be created and deleted again meanwhile.
        """
        folder, _, name = path.rpartition("/")
        suffix = f".{unique}{DELETED_SUFFIX}"
        target = f"{folder}/{name[: MAX_FILE_NAME_BYTES - len(suffix)]}{suffix}"
        self._disk.rename(path, target)
        return target

    def folders_of_deleted(self) -> list[str]:
        """Return the paths of the folders that `rename_for_deletion` renamed and that are still there."""
        return [f"{self.path}/{name}" for name in self._disk.listdir(self.path) if _RENAMED.search(name)]

    def remove_folder(self, path: str) -> None:
        """Remove a folder that was renamed for deletion; the renaming becomes durable first.

        Else a power loss could bring the partition's folder back without its files, as if they had been lost.
        """
        self._disk.sync_dir(self.path)
        self._disk.rmtree(path)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def write_recovery_points(self, offsets: Offsets, *, sync: bool = True) -> None:
        """Write from which offset on each log must be checked after a crash."""
        self._write_offsets(RECOVERY_POINTS, offsets, sync=sync)

    def write_log_starts(self, offsets: Offsets, *, sync: bool = True) -> None:
        """Write the log starts that lie inside a segment (DeleteRecords)."""
        self._write_offsets(LOG_STARTS, offsets, sync=sync)

    def write_high_watermarks(self, offsets: Offsets, *, sync: bool = True) -> None:
        """Write each replica's high watermark."""
        self._write_offsets(HIGH_WATERMARKS, offsets, sync=sync)

    def write_cleaner_offsets(self, offsets: Offsets, *, sync: bool = True) -> None:
        """Write up to where each compacted log has been cleaned."""
        self._write_offsets(CLEANER_OFFSETS, offsets, sync=sync)

    def remove_checkpoints(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions from every checkpoint file and sync it. Stale entries would apply to a new log of the
        same name.
        """
        gone = set(partitions)
        read = {
            RECOVERY_POINTS: self.recovery_points,
            LOG_STARTS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
        }
        for name, known in read.items():
            written = self._read_offsets(name)
            if not gone.isdisjoint(written):
                left = {each: offset for each, offset in written.items() if each not in gone}
                self._write_offsets(name, left, sync=True)
            for each in gone:
                known.pop(each, None)

    def _write_offsets(self, name: str, offsets: Offsets, *, sync: bool) -> None:
        lines = ["0", str(len(offsets))]
        lines += [f"{each.topic} {each.partition} {offset}" for each, offset in offsets.items()]
        content = ("\n".join(lines) + "\n").encode()
        write_checked(self._disk, f"{self.path}/{name}", content, sync=sync, by_line=True)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        try:
            if self._is_upgraded:
                lines = read_checked_lines(self._disk, path)
                return _decode_lines(line for line in lines if b" " in line)  # neither version nor count
            content = read_checked(self._disk, path, unchecked_ok=True)
            return {} if content is None else decode_offsets(content)
        except ValueError as error:
            _log.warning("checkpoint_unreadable", path=path, reason=str(error))
            return {}

    # -- the clean-shutdown marker -------------------------------------------------------------------------------

    def write_clean_shutdown_file(self, broker_epoch: int = NO_EPOCH) -> None:
        """Write that every log was closed cleanly; the last thing written."""
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_checked(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", marker.encode())

    def _take_clean_marker(self) -> int | None:
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        marker = read_checked(self._disk, path, unchecked_ok=not self._is_upgraded)
        remove_checked(self._disk, path)
        if marker is None:
            return None
        try:
            return int(json.loads(marker)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            return NO_EPOCH


def decode_offsets(file_bytes: bytes) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint file (version 0). ValueError if it is malformed."""
    version, count, *lines = file_bytes.decode("ascii").split("\n")
    if version != "0" or lines[-1:] != [""] or len(lines) - 1 != int(count):
        raise ValueError("not an offset checkpoint of version 0")
    return _decode_lines(file_bytes.split(b"\n")[2:-1])


def _decode_lines(lines: Iterable[bytes]) -> dict[TopicPartition, int]:
    """Return the offsets that lines of a checkpoint hold. ValueError if they are malformed."""
    offsets = {}
    for line in lines:
        topic, partition, offset = line.decode("ascii").split(" ")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def _read_incarnations(path: str, properties: Mapping[str, str]) -> tuple[UUID, ...]:
    """Return the ids in meta.properties; none if they cannot be read, so that the folder counts as an old copy."""
    text = properties.get(INCARNATIONS)
    try:
        return tuple(map(decode_uuid, text.split(","))) if text else ()
    except ValueError as error:
        _log.warning("broker_incarnations_unreadable", path=f"{path}/{META_PROPERTIES}", reason=str(error))
        return ()


def _data_in(disk: Disk, path: str) -> str | None:
    """Return the name of something in a folder that a node writes only after meta.properties, or None."""
    return next((name for name in disk.listdir(path) if name in _DATA or _FOLDER_OF_DATA.search(name)), None)


def _way_back(disk: Disk, path: str) -> str:
    """Return how to restore a missing meta.properties. A start does not write it: it may be missing on purpose."""
    copy = read_copy(disk, path)
    if copy is None or b"node.id=" not in copy:
        return "put that file back from a backup, with its directory.id"
    ids = ", ".join(line for line in copy.decode(errors="replace").splitlines() if ".id=" in line)
    from_, to = shlex.quote(path + CHECKSUMS), shlex.quote(path)
    return (
        f"its copy is in {META_PROPERTIES}{CHECKSUMS} ({ids}): put it back by `sed '1,/^$/d' {from_} > {to}`"
    )


def _check_directory_id(path: str, text: str) -> None:
    """Raise ForeignLogDirectory unless it is the text form of a UUID."""
    try:
        decode_uuid(text)
    except ValueError as error:
        raise ForeignLogDirectory(f"{path}/{META_PROPERTIES} says directory.id={text}: no id") from error


def _read_properties(disk: Disk, path: str) -> dict[str, str]:
    if not disk.exists(path):
        return {}
    content = read_checked(disk, path, unchecked_ok=True)
    if content is None:
        raise ForeignLogDirectory(
            f"{path} is corrupt, and so is its copy in {path}{CHECKSUMS}: restore both from a backup, or remove "
            "the checksums once the file is correct"
        )
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ForeignLogDirectory(f"{path} is not text") from error
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
