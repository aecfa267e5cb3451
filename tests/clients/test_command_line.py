"""raftlog's own command line at a cluster that runs. Its output is an interface: scripts read it."""

from __future__ import annotations

import json

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine


@pytest.fixture(scope="module")
def raftlog(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def orders(raftlog: CommandLine) -> str:
    """A topic of six partitions, two records with the same key in one partition, as in the tutorial. No test changes
    it.
    """
    topic = "command-line"
    created = raftlog.process("topic", "create", topic, "--partitions", "6", "--replicas", "3")
    assert (created.returncode, created.stdout) == (0, f"{topic} created\n"), created.stderr
    sent = raftlog.process("produce", "-t", topic, "-K", ":", stdin=b"a:first\na:second\n")
    assert (sent.returncode, sent.stderr) == (0, "")
    return topic


def test_what_the_tutorial_shows_works_and_says_nothing_besides(raftlog, orders):
    """The tutorial: create, produce, consume. Standard error is for what went wrong, librdkafka's chatter is not."""
    read = raftlog.process("consume", "-t", orders, "-e", "--json")
    assert (read.returncode, read.stderr) == (0, "")
    rows = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(row["key"], row["payload"], row["offset"]) for row in rows] == [
        ("a", "first", 0),
        ("a", "second", 1),
    ]
    listed = raftlog.process("topic", "list", "--json")
    assert {"topic": orders, "partitions": 6, "replication_factor": 3} in json.loads(listed.stdout)


@pytest.mark.parametrize(
    ("offset", "values"), [("1", ["second"]), ("-1", ["second"]), ("99", []), ("-99", ["first", "second"])]
)
def test_an_offset_that_a_partition_does_not_hold_is_moved_to_its_nearest_end(
    raftlog, orders, offset, values
):
    """Of six partitions five are empty: none of them may send the consumer elsewhere, or complain alone."""
    read = raftlog("consume", "-t", orders, "-e", "--offset", offset)
    assert (read.returncode, read.stdout.splitlines()) == (0, values)
    assert ("5 more: reading from there" in read.stderr) == (offset == "99")


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_partition_that_is_not_there_is_named_at_once(raftlog, orders, command):
    """librdkafka waits for it to appear, in vain."""
    result = raftlog(command, "-t", orders, "-p", "6", stdin=b"x\n")
    assert result.returncode == exits.NOT_FOUND
    assert result.stderr == f"raftlog: topic {orders} has no partition 6; its partitions are 0 to 5\n"


def test_every_refusal_is_one_line_and_has_its_exit_code(raftlog, orders):
    """Scripts distinguish them: 1 failed, 3 not found, 4 exists."""
    for code, *arguments in (
        (exits.EXISTS, "topic", "create", orders),
        (exits.FAILED, "topic", "create", "two", "--replicas", "9"),
        (exits.FAILED, "topic", "create", "two", "--config", "retention.mss=1"),
        (exits.NOT_FOUND, "topic", "describe", "nowhere"),
        (exits.NOT_FOUND, "topic", "delete", "nowhere"),
        (exits.NOT_FOUND, "consume", "-t", "nowhere", "-e"),
    ):
        ask = raftlog.process if code == exits.EXISTS else raftlog
        result = ask(*arguments)
        assert result.returncode == code, (arguments, result.stderr)
        assert result.stdout == "" and result.stderr.startswith("raftlog: ")
        assert result.stderr.count("\n") == 1 and "KafkaError" not in result.stderr
