"""A cluster secret that derives from the config's voters outlives an edit of them, once the voters can change."""

from __future__ import annotations

from raftlog.base.config import NodeConfig, load_config
from raftlog.storage.kept_secret import keep_secret, with_kept_secret
from raftlog_chaos.simulator.disk import SimDisk

THREE, FOUR = "1@a:1,2@b:1,3@c:1", "1@a:1,2@b:1,3@c:1,4@d:1"


def node(voters: str, **more: str) -> NodeConfig:
    given = {"node.id": "1", "controller.quorum.voters": voters, "log.dirs": "/data"}
    return load_config(flags={**given, **{name.replace("_", "."): text for name, text in more.items()}})


def disk() -> SimDisk:
    found = SimDisk()
    found.mkdir("/data/raftlog-metadata")
    return found


def test_a_derived_secret_is_kept() -> None:
    """Without it, each node with an edited list would be refused by the others."""
    kept, before = disk(), node(THREE)
    assert with_kept_secret(before, kept) is before
    keep_secret(before, kept)
    kept.crash()
    assert node(FOUR).cluster_secret != before.cluster_secret
    after = with_kept_secret(node(FOUR), kept)
    assert after.cluster_secret == before.cluster_secret
    assert after.voters.keys() == {1, 2, 3, 4}


def test_the_first_secret_stays() -> None:
    """A later list does not replace it."""
    kept = disk()
    keep_secret(node(THREE), kept)
    keep_secret(node(FOUR), kept)
    assert with_kept_secret(node(FOUR), kept).cluster_secret == node(THREE).cluster_secret


def test_a_configured_secret_goes_first() -> None:
    """And is not written down."""
    kept = disk()
    configured = node(THREE, raftlog_cluster_secret="a secret of the tests")
    keep_secret(configured, kept)
    assert with_kept_secret(node(FOUR), kept).cluster_secret == node(FOUR).cluster_secret
    keep_secret(node(THREE), kept)
    assert with_kept_secret(configured, kept) is configured
