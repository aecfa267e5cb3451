"""The files of a node's backup: copied or linked, listed in a manifest with their checksums, and checked again.

Ordering law: the manifest is written last, so a folder without one is an unfinished backup. Only files that never
change are linked: closed segments below the high watermark, which no follower truncates.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

import msgspec

from raftlog.base.config.files import parse_properties
from raftlog.base.disk import FILE_MODE, FOLDER_MODE, RealDisk
from raftlog.base.types import TopicPartition
from raftlog.cli.exits import NOT_FOUND, VERIFICATION_FAILED, Failure
from raftlog.storage.log_directory import HIGH_WATERMARKS, META_PROPERTIES, decode_offsets
from raftlog.storage.partition_files import offsets_in_names

MANIFEST: Final = "raftlog-backup.json"
FORMAT: Final = 1
LEFT_OUT: Final = frozenset({".lock", "lost+found"})
CHUNK_BYTES: Final = 1 << 20
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
LOG: Final = ".log"


class StoredFile(msgspec.Struct, frozen=True):
    """One file. `path` is below the backup's folder, and begins with the number of the data folder."""

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of a node's backup, and its time.

    `broker_epoch`: that of the node's last registration, None if it is no broker. `broker_epochs`: of all brokers, as
    this node's metadata knows them at `metadata_offset`; None if it is no voter.
    """

    format: int
    raftlog: str
    cluster_id: str
    node_id: int
    taken_at: str
    log_folders: int
    metadata_folder: int
    broker_epoch: int | None
    metadata_offset: int | None
    broker_epochs: dict[int, int] | None
    files: list[StoredFile]

    @property
    def folders(self) -> int:
        """How many data folders there are."""
        return max(self.log_folders, self.metadata_folder + 1)

    @property
    def total_bytes(self) -> int:
        """Return the size of all files."""
        return sum(each.size for each in self.files)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a node's backup. Raises Failure."""
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise Failure(f"{folder}: no finished backup of a node ({MANIFEST} is missing)", NOT_FOUND) from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise Failure(f"{path}: damaged: {error}", VERIFICATION_FAILED) from None
    if found.format != FORMAT:
        raise Failure(f"{path}: format {found.format} is not supported by this release, only {FORMAT}")
    _judge_paths(path, found)
    return found


def _judge_paths(path: Path, manifest: Manifest) -> None:
    """Raise Failure unless every file lies in a data folder, and each folder has its identity.

    A path must be in its shortest form: joined to a folder, `0//etc/x` would lead to `/etc/x`.
    """
    names = {each.path for each in manifest.files}
    if len(names) < len(manifest.files):
        raise Failure(f"{path}: damaged: it names a file twice", VERIFICATION_FAILED)
    if not 1 <= manifest.folders <= len(names):
        raise Failure(
            f"{path}: damaged: {manifest.folders} folders, and {len(names)} files", VERIFICATION_FAILED
        )
    numbers = {str(number) for number in range(manifest.folders)}
    for name in names:
        place = PurePosixPath(name)
        is_below = len(place.parts) > 1 and place.parts[0] in numbers and str(place) == name
        if not is_below or not {"..", *LEFT_OUT}.isdisjoint(place.parts):
            raise Failure(f"{path}: damaged: {name!r} is not a path inside a backup", VERIFICATION_FAILED)
    for number in sorted(numbers):
        if f"{number}/{META_PROPERTIES}" not in names:
            raise Failure(f"{path}: damaged: {number}/{META_PROPERTIES} is missing", VERIFICATION_FAILED)


def judge_presence(folder: Path, manifest: Manifest) -> None:
    """Raise Failure unless all files are there, none of them reached by a link that leads out of the backup."""
    inside = os.path.realpath(folder)
    for each in manifest.files:
        path = folder / each.path
        if not path.is_file():
            raise Failure(f"{path}: the backup is damaged: the file is missing", VERIFICATION_FAILED)
        if not Path(os.path.realpath(path)).is_relative_to(inside):
            raise Failure(f"{path}: the backup is damaged: the path is outside {folder}", VERIFICATION_FAILED)


def judge_identities(folder: Path, manifest: Manifest) -> None:
    """Raise Failure unless each data folder in a backup is of the node and the cluster that the manifest names."""
    for number in range(manifest.folders):
        path = folder / str(number) / META_PROPERTIES
        found = read_identity(path)
        if (found.get("node.id"), found.get("cluster.id")) != (str(manifest.node_id), manifest.cluster_id):
            raise Failure(
                f"{path}: the backup is damaged: it names node {found.get('node.id')} of cluster"
                f" {found.get('cluster.id')}, and {MANIFEST} node {manifest.node_id} of cluster {manifest.cluster_id}",
                VERIFICATION_FAILED,
            )


def read_identity(path: Path) -> dict[str, str]:
    """Read a meta.properties. Raises Failure if it is damaged."""
    try:
        return parse_properties(path.read_text())
    except ValueError:
        raise Failure(f"{path}: damaged: it is not text", VERIFICATION_FAILED) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Finish a backup: the manifest is durable after everything that it lists."""
    for each in sorted({folder, *(each for each in folder.rglob("*") if each.is_dir())}, reverse=True):
        RealDisk().sync_dir(str(each))
    written = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    RealDisk().write_file(str(folder / MANIFEST), written)


def files_below(folder: Path) -> list[Path]:
    """Return a data folder's files, without locks. Raises OSError for a folder that cannot be read.

    Raises Failure for what would be missing in the backup: links, which a node follows, and names that are no text.
    """
    found = []
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name in LEFT_OUT:
            continue
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise Failure(
                f"{path}: not a regular file or a directory: links and special files cannot be backed up"
            )
        if any("\ud800" <= each <= "\udfff" for each in name):  # how Python has bytes that are not UTF-8
            raise Failure(f"{path}: the name is not UTF-8, so a backup cannot list it")
        found += files_below(path) if path.is_dir() else [path]
    return found


def unchanging_segments(folder: Path) -> frozenset[Path]:
    """Return the segments of a stopped node's data folder that will not change until they are deleted."""
    try:
        high_watermarks = decode_offsets((folder / HIGH_WATERMARKS).read_bytes())
    except (FileNotFoundError, ValueError):
        return frozenset()
    return frozenset(
        path for name, offset in high_watermarks.items() for path in _below(folder, name, offset)
    )


def _below(folder: Path, name: TopicPartition, high_watermark: int) -> Iterator[Path]:
    partition = folder / f"{name.topic}-{name.partition}"
    names = os.listdir(partition) if partition.is_dir() else []
    bases = offsets_in_names(names, LOG)
    for base, following in pairwise(bases):
        if following <= high_watermark:
            yield partition / f"{base:020d}{LOG}"


def link(source: Path, target: Path) -> bool:
    """Make a hard link, if the two folders' file system has such; returns whether."""
    target.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def copy(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file durably; returns its size and its checksum."""
    target.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    checksum, size = hashlib.sha256(), 0
    try:
        with open(os.open(target, NEW_FILE, FILE_MODE), "wb") as writer:
            for chunk in _chunks(source):
                writer.write(chunk)
                checksum.update(chunk)
                size += len(chunk)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError as error:
        error.filename = error.filename or str(target)  # a full disk is reported without the file's name
        raise
    return size, checksum.hexdigest()


def measure(path: Path) -> tuple[int, str]:
    """Return a file's size and its checksum."""
    checksum, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        checksum.update(chunk)
        size += len(chunk)
    return size, checksum.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes. The file's name is added to read errors."""
    try:
        with path.open("rb") as reader:
            while chunk := reader.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def judge(folder: Path, expected: StoredFile, found: tuple[int, str]) -> None:
    """Raise Failure, with the file's name, unless a file is as it was when the backup was made."""
    path, (size, checksum) = folder / expected.path, found
    if size != expected.size:
        reason = f"it has {size} bytes, and had {expected.size}"
    elif checksum != expected.sha256:
        reason = "its checksum is wrong"
    else:
        return
    raise Failure(f"{path}: the backup is damaged: {reason}", VERIFICATION_FAILED)
