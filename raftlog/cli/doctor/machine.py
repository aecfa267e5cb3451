"""The part of `raftlog doctor` that looks at this machine: limits, packages, clock, and the disks of data folders.

It makes no changes: a file that measures a disk's syncs is removed at once, and missing folders are not made.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.disk import sync_data
from raftlog.cli.doctor.findings import Finding, mend, note, ok
from raftlog.cli.rows import in_bytes

FEW_FILES: Final = 4_096
"""Open files below which a node has little room for clients."""
FULL_BYTES: Final = 1 << 30
FULL_SHARE: Final = 0.1
SYNCS: Final = 20
SYNC_BYTES: Final = bytes(4096)
SLOW_SYNC_S: Final = 0.02
CLOCK_S: Final = 60.0
"""Seconds by which a clock may be behind the last write of a file here."""
OLDEST_PYTHON: Final = (3, 11)
NEWEST_PYTHON: Final = (3, 13)
TIME_ERROR: Final = 5
"""The result of adjtimex(2) when the kernel's clock is not synchronized."""
TIMEX_BYTES: Final = 256

_KINDS: Final = {
    "tmpfs": "it is memory, and empty after a restart of the machine",
    "ramfs": "it is memory, and empty after a restart of the machine",
    "overlay": "it is a container's own layer, which is removed with the container",
    "nfs": "a network's file system may call data durable that is not",
    "nfs4": "a network's file system may call data durable that is not",
    "cifs": "a network's file system may call data durable that is not",
    "9p": "a file system of the host of this virtual machine may call data durable that is not",
}
"""The file systems on which acknowledged records may get lost, and why."""


def check_limits(_node: NodeConfig) -> Iterator[Finding]:
    """See how many files this user's processes may open; a node raises its soft limit to the hard limit by itself."""
    from raftlog.process import files_for_clients

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        yield ok("limits", "any number of files may be open")
        return
    sentence = f"{hard} files may be open, which leaves {files_for_clients(hard)} for clients"
    if hard < FEW_FILES:
        yield mend("limits", sentence, "raise it: LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn")
    else:
        yield ok("limits", sentence)


def check_versions(_node: NodeConfig) -> Iterator[Finding]:
    """Check that Python and the packages are the versions that raftlog requires."""
    version = platform.python_version()
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        yield note(
            "versions", f"Python {version} is newer than those tried", f"use Python {newest}, or try it first"
        )
    else:
        yield ok("versions", f"Python {version}, Linux {platform.release()}")
    wrong = [text for each in metadata.requires("raftlog") or [] if (text := _wrong(each))]
    if wrong:
        yield mend(
            "versions", f"packages do not fit: {'; '.join(wrong)}", "reinstall: pip install --upgrade raftlog"
        )
    else:
        yield ok("versions", "all packages that raftlog needs are installed")


def _wrong(requirement: str) -> str:
    """Return what is wrong about one requirement: the package is missing, or not the one version that fits."""
    text, _, marker = requirement.partition(";")
    if "extra ==" in marker or ("win32" in marker and sys.platform == "win32"):
        return ""
    name = text
    for sign in "<>=!~ ":
        name = name.split(sign)[0]
    pinned = text.partition("==")[2].strip()
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is missing"
    return f"{name} is {found}, not {pinned}" if pinned and found != pinned else ""


def check_clock(node: NodeConfig, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Check that the clock is synchronized, and not behind the times written here."""
    if _is_kept_right() is False:
        yield note(
            "clock",
            "the kernel reports an unsynchronized clock (no NTP)",
            "run chrony or systemd-timesyncd; retention and transactions go by the clock",
        )
    written = max((each for folder in node.log_dirs for each in _times(Path(folder))), default=0.0)
    if written > now() + CLOCK_S:
        yield mend(
            "clock",
            f"the clock is {written - now():.0f} s behind the last write in the data folders",
            "set it; records would be written with times that have been",
        )
    else:
        yield ok("clock", f"it is {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now()))} UTC")


def _is_kept_right() -> bool | None:
    """Return what the kernel reports, or None if unknown."""
    try:
        timex = ctypes.create_string_buffer(TIMEX_BYTES)  # struct timex; zeros only query
        state: int = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != TIME_ERROR


def _times(folder: Path) -> Iterator[float]:
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_file():
                yield entry.stat().st_mtime


def check_disks(node: NodeConfig) -> Iterator[Finding]:
    """See whether each data folder can be written, and lies on a disk with room that keeps its word."""
    for folder in dict.fromkeys([*node.log_dirs, node.metadata_log_dir]):
        yield from _check_folder(Path(folder))


def _check_folder(folder: Path) -> Iterator[Finding]:
    about, existing = f"disk {folder}", folder
    try:
        existing = _nearest(folder)
        if not existing.is_dir():
            yield mend(about, f"{existing} is no folder", "remove it, or name another folder in log.dirs")
            return
        sync_s = _sync_time(existing)
    except OSError as error:
        user = os.geteuid()
        yield mend(
            about,
            f"{existing} cannot be written by user {user}: {error.strerror}",
            f"chown it to the user who runs the node ({user}), or mount it for writing",
        )
        return
    if sync_s > SLOW_SYNC_S:
        yield note(
            about,
            f"a sync takes {sync_s * 1000:.1f} ms, so acks=all takes longer than that",
            "use a disk that syncs faster, such as an SSD with power-loss protection",
        )
    else:
        yield ok(about, f"it can be written, and a sync takes {sync_s * 1000:.2f} ms")
    yield _judge_room(about, existing)
    yield _judge_kind(about, existing)


def _nearest(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that is there. Raises OSError where this user may not look."""
    for each in (folder, *folder.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            each.stat()
            return each
    return folder


def is_running(node: NodeConfig) -> bool:
    """Return whether a process has this node's data folders in use."""
    for folder in (*node.log_dirs, node.metadata_log_dir):
        with suppress(OSError), open(f"{folder}/.lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _sync_time(folder: Path) -> float:
    """Return the median of some syncs of a file that is removed again, seconds. Raises OSError."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(SYNC_BYTES)
            file.flush()
            began = time.perf_counter()
            sync_data(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took)


def _judge_room(about: str, folder: Path) -> Finding:
    stat = os.statvfs(folder)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    sentence = f"{in_bytes(free)} of {in_bytes(total)} are free"
    advice = "free some space, or reduce retention.ms or retention.bytes"
    if free < FULL_BYTES:
        return mend(about, sentence, advice)
    return note(about, sentence, advice) if free < FULL_SHARE * total else ok(about, sentence)


def _judge_kind(about: str, folder: Path) -> Finding:
    kind = file_system_of(folder)
    if kind in _KINDS:
        return note(about, f"the file system is {kind}: {_KINDS[kind]}", "use a local disk with ext4 or xfs")
    return ok(about, f"the file system is {kind}")


def file_system_of(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the kind of the file system that a folder is on, or "unknown"."""
    best, kind = -1, "unknown"
    resolved = folder.resolve()
    with suppress(OSError):
        for line in mounts.read_text().splitlines():
            _, place, found, *_ = line.split(" ")
            place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)  # a blank is \040
            if resolved.is_relative_to(place) and len(place) >= best:
                best, kind = len(place), found
    return kind
