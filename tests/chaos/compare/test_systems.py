"""Claims about the systems of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog_chaos.compare.systems import kafka
from raftlog_chaos.compare.systems.kafka import Kafka, KafkaFlush
from raftlog_chaos.compare.systems.raftlog import Raftlog
from raftlog_chaos.compare.systems.system import Missing


def test_raftlogs_nodes_start_as_those_of_others_do(tmp_path):
    """A fork of a process that has imported everything would start without its share of the work."""
    system = Raftlog(tmp_path)
    try:
        assert not any(node.forked for node in system.cluster.nodes.values())
    finally:
        system.close()


@pytest.fixture
def maven(tmp_path, monkeypatch) -> Iterator[Path]:
    """A Maven that fails, and writes down that it was asked."""
    asked = tmp_path / "asked"
    for name, text in (("java", ""), ("mvn", f"echo asked >> {asked}; echo '[ERROR] no network'; exit 1")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    kafka.resolve.cache_clear()
    yield asked
    kafka.resolve.cache_clear()


def test_a_maven_that_fails_is_asked_once(maven):
    """It may take minutes to fail."""
    for system in (Kafka, KafkaFlush, Kafka):
        with pytest.raises(Missing, match=r"Maven did not fetch the jars: \[ERROR\] no network"):
            system.version()
    assert maven.read_text() == "asked\n"
