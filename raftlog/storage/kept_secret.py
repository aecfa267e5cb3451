"""The cluster secret of a voter without `raftlog.cluster.secret`: it derives from the config's voters.

It must stay the same when that list is edited, as it may be once the voters change. So a voter writes it down when
kraft.version is 1. A configured secret goes first. Without the file the secret would derive from the edited list, and
all other nodes would refuse it without a hint at the disk. So a damaged file is an error, and never written anew.
"""

from __future__ import annotations

from dataclasses import replace
from hmac import compare_digest

from raftlog.base.checked_files import CHECKSUMS, read_checked, read_copy, write_checked
from raftlog.base.config import NodeConfig
from raftlog.base.config.resolve import derived_secret
from raftlog.base.disk import Disk
from raftlog.base.types import KEPT_SECRET, METADATA_FOLDER


def _path(config: NodeConfig) -> str:
    return f"{config.metadata_log_dir}/{METADATA_FOLDER}/{KEPT_SECRET}"


def _is_derived(config: NodeConfig) -> bool:
    return compare_digest(config.cluster_secret, derived_secret(config.voters))


class SecretDamaged(Exception):
    """The secret was written down, and cannot be read any more; the message names the file."""


def is_kept(config: NodeConfig, disk: Disk) -> bool:
    """Return whether a secret was written down: the file is there, or what is left of it."""
    return disk.exists(_path(config)) or disk.exists(_path(config) + CHECKSUMS)


def with_kept_secret(config: NodeConfig, disk: Disk) -> NodeConfig:
    """Return the config with the secret that was written down, if it has none of its own.

    Raises SecretDamaged, OSError.
    """
    if "controller" not in config.roles or not _is_derived(config) or not is_kept(config, disk):
        return config
    path = _path(config)
    found = (
        read_checked(disk, path) if disk.exists(path) else read_copy(disk, path)
    )  # a crash between the two
    try:
        secret = bytes.fromhex((found or b"").decode())
    except ValueError:
        secret = b""
    if not secret:
        raise SecretDamaged(
            f"{path} is damaged or missing, and so is its copy: take it and {path}{CHECKSUMS} from another "
            "controller, or set raftlog.cluster.secret on all nodes"
        )
    return replace(config, cluster_secret=secret)


def keep_secret(config: NodeConfig, disk: Disk) -> None:
    """Write a derived secret down, durably, if that was not done before. Raises OSError."""
    if _is_derived(config) and not is_kept(config, disk):
        write_checked(disk, _path(config), config.cluster_secret.hex().encode(), copy=True)
