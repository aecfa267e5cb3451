"""Disk images: sparse files with a file system in them, made on the host and mounted in guests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from raftlog_chaos.runs.rig import Unavailable

IMAGE_BYTES: Final = 1 << 30


class FileSystem(NamedTuple):
    """The commands that make a file system, and repair it after a power cut if its kernel does not do that."""

    make: tuple[str, ...]
    package: str
    options: str = ""
    repair: tuple[str, ...] = ()


FILE_SYSTEMS: Final = {
    "ext4": FileSystem(("mkfs.ext4", "-q", "-F"), "e2fsprogs"),
    "xfs": FileSystem(("mkfs.xfs", "-q", "-f"), "xfsprogs"),
    "btrfs": FileSystem(("mkfs.btrfs", "-q", "-f"), "btrfs-progs"),
    "ext2": FileSystem(("mkfs.ext2", "-q", "-F"), "e2fsprogs", repair=("e2fsck", "-f", "-y")),
}
"""The usual file systems for raftlog, and one file system without a journal: only there a name is not synced along with
its file."""
JOURNALED: Final = ("ext4", "xfs", "btrfs")


def lacks(file_system: str) -> str:
    """Return why an image of this file system cannot be made; empty if it can."""
    known = FILE_SYSTEMS[file_system]
    if shutil.which(known.make[0]) is None:
        return f"there is no {known.make[0]} here: apt-get install {known.package}"
    return ""


def make_image(path: Path, file_system: str) -> None:
    """Make a sparse file with an empty file system in it. Raises Unavailable."""
    with path.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    made = subprocess.run(  # noqa: S603 - see FILE_SYSTEMS
        [*FILE_SYSTEMS[file_system].make, str(path)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise Unavailable(f"{' '.join(FILE_SYSTEMS[file_system].make)}: {made.stderr.strip()}")


def repair_image(path: Path, file_system: str) -> None:
    """Put an image in order that was in use when the power failed, where mounting it does not do that."""
    command = FILE_SYSTEMS[file_system].repair
    if command:
        subprocess.run([*command, str(path)], capture_output=True, check=False)  # noqa: S603 - see FILE_SYSTEMS
