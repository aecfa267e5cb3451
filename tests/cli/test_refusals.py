"""Commands refused before any cluster is asked: one line that says why, and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.cli import exits
from tests.cli.live import invoke

NOWHERE = ("-b", "127.0.0.1:1", "--timeout", "0.1")


def test_an_empty_group_is_wrong_usage_and_not_no_group() -> None:
    """An unset variable in a script would otherwise read without a group, and commit no offset."""
    ran = invoke("consume", "-G", "", "-t", "orders", *NOWHERE)
    assert ran == (exits.USAGE, "", "raftlog: -G: the group's id is empty\n")


@pytest.mark.parametrize(
    ("topic", "lost"),
    [
        ("__consumer_offsets", "every group's committed offsets"),
        ("__transaction_state", "every transactional id"),
    ],
)
def test_what_the_cluster_keeps_itself_is_deleted_by_force_only(topic: str, lost: str) -> None:
    """Other topics named with it are not deleted either; with --force the request is sent."""
    code, out, said = invoke("topic", "delete", "orders", topic, *NOWHERE)
    assert (code, out) == (exits.FAILED, "") and lost in said and "--force" in said
    assert invoke("topic", "delete", topic, "--force", *NOWHERE)[0] == exits.UNREACHABLE


@pytest.mark.parametrize(
    "words", [("topic", "list"), ("quota", "list"), ("token", "list"), ("cluster", "health")]
)
def test_a_missing_certificate_is_named_with_its_setting(words: tuple[str, ...], tmp_path: Path) -> None:
    """Whichever client asks: OpenSSL says neither which setting nor which file."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=ssl\nssl.ca.location=/nowhere/ca.pem\n")
    ran = invoke(*words, *NOWHERE, "-F", str(file))
    said = "raftlog: ssl.ca.location: /nowhere/ca.pem: No such file or directory\n"
    assert ran == (exits.USAGE, "", said)
