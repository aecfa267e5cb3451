"""The first metadata of a cluster, which `raftlog format` left beside the metadata log.

Kafka calls it bootstrap metadata (`bootstrap.checkpoint`). The first controller commits its own file's records in the
batch that names the cluster, so they count once. Each node removes its file once that batch is committed. Must not
know: how changes are decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from raftlog.base.checked_files import read_checked, remove_checked, write_checked
from raftlog.base.disk import Disk
from raftlog.metadata.features import KRAFT_VERSION
from raftlog.metadata.metadata_records import FeatureChanged, ScramCredentialChanged

BOOTSTRAP: Final = "raftlog-bootstrap.json"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 20
"""The most bytes of the file: some thousand credentials, which fit in one batch of the metadata log."""


BootstrapRecords = tuple[FeatureChanged | ScramCredentialChanged, ...]


class BootstrapUnusable(Exception):
    """The file is damaged, or is of another version; the message names it and never shows a credential."""


class _File(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file's content. Byte strings are base64 in it."""

    version: int
    scram: tuple[ScramCredentialChanged, ...]
    kraft_version: int = 0


def write_bootstrap(
    disk: Disk, folder: str, scram: Iterable[ScramCredentialChanged], *, kraft_version: int = 0
) -> None:
    """Write the first credentials of a new cluster durably. Readers of the file could guess passwords offline."""
    disk.mkdir(folder)
    content = msgspec.json.encode(_File(VERSION, tuple(scram), kraft_version))
    assert len(content) <= MAX_BYTES, "the caller limits how many users there are"
    write_checked(disk, f"{folder}/{BOOTSTRAP}", content)


def read_bootstrap(disk: Disk, folder: str) -> BootstrapRecords:
    """Return the first credentials and features of a new cluster; empty without a file. Raise BootstrapUnusable."""
    path = f"{folder}/{BOOTSTRAP}"
    if not disk.exists(path):
        return ()
    content = read_checked(disk, path, unchecked_ok=True)
    if content is None:
        raise BootstrapUnusable(f"{path} is corrupt: format the node again")
    try:
        found = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError:  # its message could quote the file
        raise BootstrapUnusable(f"{path} is not what raftlog format wrote") from None
    if found.version != VERSION:
        raise BootstrapUnusable(f"{path} is of version {found.version}, but this raftlog reads {VERSION}")
    features = (FeatureChanged(KRAFT_VERSION, found.kraft_version),) if found.kraft_version else ()
    return (*features, *found.scram)


def remove_bootstrap(disk: Disk, folder: str) -> bool:
    """Remove the file durably, and return whether it existed. Raise OSError."""
    return remove_checked(disk, f"{folder}/{BOOTSTRAP}")
