"""A cluster secret that derives from the config's voters outlives an edit of them, once the voters can change."""

from __future__ import annotations

import pytest

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.config import NodeConfig, load_config
from raftlog.storage.kept_secret import SecretDamaged, keep_secret, with_kept_secret
from raftlog_chaos.simulator.disk import SimDisk

THREE, FOUR = "1@a:1,2@b:1,3@c:1", "1@a:1,2@b:1,3@c:1,4@d:1"


PATH = "/data/raftlog-metadata/cluster-secret"


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


def test_a_damaged_secret_comes_back_from_its_copy() -> None:
    """A bit flips, or a crash leaves only the file of checksums, which is written first."""
    kept = disk()
    keep_secret(node(THREE), kept)
    kept.flip_bit(PATH, 2)
    assert with_kept_secret(node(FOUR), kept).cluster_secret == node(THREE).cluster_secret
    kept.remove(PATH)
    keep_secret(node(FOUR), kept)
    assert with_kept_secret(node(FOUR), kept).cluster_secret == node(THREE).cluster_secret


@pytest.mark.parametrize("gone", [True, False])
def test_a_secret_that_cannot_be_read_is_named(*, gone: bool) -> None:
    """The secret of the edited list would be refused by all others, without a hint at the disk."""
    kept = disk()
    keep_secret(node(THREE), kept)
    kept.flip_bit(PATH + CHECKSUMS, len(kept.read_file(PATH + CHECKSUMS)) - 2)
    if gone:
        kept.remove(PATH)
    else:
        kept.flip_bit(PATH, 2)
    with pytest.raises(SecretDamaged, match=f"{PATH} is damaged"):
        with_kept_secret(node(FOUR), kept)
    keep_secret(node(FOUR), kept)  # writes nothing
    configured = node(FOUR, raftlog_cluster_secret="a secret of the tests")
    assert with_kept_secret(configured, kept) is configured


def test_a_secret_without_checksums_is_named() -> None:
    """An edit by hand is no secret of this node."""
    kept = disk()
    kept.write_file(PATH, b"00ff")
    with pytest.raises(SecretDamaged):
        with_kept_secret(node(FOUR), kept)
