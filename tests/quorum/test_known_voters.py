"""The file with the voters that a node without a vote last knew."""

from __future__ import annotations

from raftlog.quorum.known_voters import FILE, KnownVoters
from raftlog_chaos.simulator.disk import SimDisk

THREE = {1: ("one.example", 9093), 2: ("127.0.0.1", 9093), 3: ("::1", 9093)}


def disk() -> SimDisk:
    found = SimDisk()
    found.mkdir("/data")
    return found


def test_the_file_survives_a_power_loss() -> None:
    """Names and addresses of both kinds come back; the newest write counts."""
    kept = disk()
    known = KnownVoters(kept, "/data")
    assert known.read() == {}
    known.write({4: ("four.example", 9093)})
    known.write(THREE)
    kept.crash()
    assert KnownVoters(kept, "/data").read() == THREE


def test_a_damaged_file_counts_as_absent() -> None:
    """The node then has the list of its config."""
    kept = disk()
    KnownVoters(kept, "/data").write(THREE)
    kept.write_file(f"/data/{FILE}", b"1@elsewhere:9093")
    assert KnownVoters(kept, "/data").read() == {}


def test_an_address_that_no_config_may_have_ends_no_node() -> None:
    """A client of AddRaftVoter named it."""
    kept = disk()
    KnownVoters(kept, "/data").write({1: ("0.0.0.0", 9093)})
    assert KnownVoters(kept, "/data").read() == {}


def test_the_same_voters_are_written_once() -> None:
    """They are looked at several times a second."""
    kept = disk()
    KnownVoters(kept, "/data").write(THREE)
    known = KnownVoters(kept, "/data")
    assert known.read() == THREE
    kept.remove(f"/data/{FILE}")
    known.write(THREE)
    assert not kept.exists(f"/data/{FILE}")
