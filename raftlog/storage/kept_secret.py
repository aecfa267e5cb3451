"""The cluster secret of a voter without `raftlog.cluster.secret`: it derives from the config's voters.

It must stay the same when that list is edited, as it may be once the voters change. So a voter writes it down when
kraft.version is 1. A configured secret goes first.
"""

from __future__ import annotations

from dataclasses import replace
from hmac import compare_digest

from raftlog.base.checked_files import read_checked, write_checked
from raftlog.base.config import NodeConfig
from raftlog.base.config.resolve import derived_secret
from raftlog.base.disk import Disk
from raftlog.base.types import KEPT_SECRET, METADATA_FOLDER


def _path(config: NodeConfig) -> str:
    return f"{config.metadata_log_dir}/{METADATA_FOLDER}/{KEPT_SECRET}"


def _is_derived(config: NodeConfig) -> bool:
    return compare_digest(config.cluster_secret, derived_secret(config.voters))


def with_kept_secret(config: NodeConfig, disk: Disk) -> NodeConfig:
    """Return the config with the secret that was written down, if it has none of its own. Raises OSError."""
    if "controller" not in config.roles or not _is_derived(config):
        return config
    found = read_checked(disk, _path(config)) if disk.exists(_path(config)) else None
    return config if found is None else replace(config, cluster_secret=bytes.fromhex(found.decode()))


def keep_secret(config: NodeConfig, disk: Disk) -> None:
    """Write a derived secret down, durably, if that was not done before. Raises OSError."""
    if _is_derived(config) and not disk.exists(_path(config)):
        write_checked(disk, _path(config), config.cluster_secret.hex().encode(), copy=True)
