"""The line of `raftlog produce` at a terminal: how many records it sent, and where to."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from raftlog.base.errors import InvalidRecord
from raftlog.cli import exits
from raftlog.cli.app import app
from raftlog.cli.produce import _lacks_key, sent_line
from raftlog.client.producer import Failed
from raftlog.records.batch import new_record


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({}, "topic t: 0 records sent"),
        ({2: 1}, "topic t: 1 record sent: 1 to partition 2"),
        ({1: 400, 0: 600}, "topic t: 1000 records sent: 600 to partition 0, 400 to partition 1"),
    ],
)
def test_the_line_counts_records_by_partition(counts: dict[int, int], line: str) -> None:
    """In the order of the partitions."""
    assert sent_line("t", counts) == line


def test_many_partitions_are_counted() -> None:
    """Eight are named."""
    assert sent_line("t", dict.fromkeys(range(10), 1)).endswith("1 to partition 7, and to 2 more partitions")


@pytest.mark.parametrize(
    ("arguments", "meant"), [([], "TOPIC"), (["orders"], "orders"), ([__file__], "TOPIC")]
)
def test_a_command_without_a_topic_shows_how_to_name_it(arguments: list[str], meant: str) -> None:
    """`raftlog produce orders` names a file, as with kcat; a newcomer means the topic."""
    ran = CliRunner().invoke(app, ["produce", *arguments], prog_name="raftlog", catch_exceptions=False)
    assert ran.exit_code == exits.USAGE
    assert f"name a topic: -t {meant} (" in ran.stderr


@pytest.mark.parametrize(
    ("key", "message", "lacks_key"),
    [
        (None, "record 0: the record has no key, which a compacted topic needs", True),
        (None, "", True),
        (b"k", "", False),
        (None, "record 0 of the batch: the value has no schema id", False),
    ],
)
def test_keys_are_advised_where_they_are_missing(key: bytes | None, message: str, lacks_key: bool) -> None:
    """Not in a topic with schema validation, which refuses records for other reasons."""
    failed = Failed(InvalidRecord(message), [new_record(key, b"v", timestamp=0)])
    assert _lacks_key(failed) is lacks_key
