"""Share groups with stock clients: Apache Kafka's own scripts and console consumer, and librdkafka's (KIP-932)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ShareConsumer

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.interop.member_kinds import java_command
from tests.interop.scripts import KafkaScripts, Tool
from tests.kit.waits import PATIENCE_S, until

pytestmark = pytest.mark.java

PARTITIONS = 3
RECORDS = 10
EVERYWHERE = {str(index): (str(RECORDS), "0") for index in range(PARTITIONS)}


class ShareGroups(Tool):
    """kafka-share-groups.sh."""

    def __init__(self, scripts: KafkaScripts, cluster: Cluster) -> None:
        super().__init__(scripts, cluster, "org.apache.kafka.tools.consumer.group.ShareGroupCommand")

    def offsets(self, group: str) -> dict[str, tuple[str, str]]:
        """Return the start offset and the lag of each partition."""
        rows = self.table("--describe", "--group", group)
        return {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in rows}

    def reset(self, group: str, topic: str, *how: str) -> dict[str, str]:
        """Reset a group's offsets; returns what the tool says they are now."""
        rows = self.table("--reset-offsets", "--group", group, "--topic", topic, *how)
        return {row["PARTITION"]: row["NEW-OFFSET"] for row in rows}


@pytest.fixture
def filled(client: Confluent, topic: str) -> str:
    """A topic with records in each partition."""
    client.create_topic(topic, PARTITIONS, 3)
    for index in range(PARTITIONS):
        client.produce(topic, [b"%d-%d" % (index, number) for number in range(RECORDS)], partition=index)
    return topic


@contextmanager
def member(cluster: Cluster, group: str, topic: str) -> Iterator[ShareConsumer]:
    """A member of a share group, by librdkafka. Each poll accepts what the poll before has returned."""
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_the_stock_tool_describes_resets_and_deletes_a_share_group(
    scripts: KafkaScripts, cluster: Cluster, filled: str
) -> None:
    """It is made by its first reset, read by a stock member, and gone in the end."""
    tool, group = ShareGroups(scripts, cluster), f"of-{filled}"
    every = Tool(scripts, cluster, "org.apache.kafka.tools.GroupsCommand")
    beginning = {str(index): "0" for index in range(PARTITIONS)}
    assert tool.reset(group, filled, "--to-earliest", "--execute") == beginning
    assert [each[0] for each in tool.offsets(group).values()] == ["0"] * PARTITIONS
    found: list[bytes | None] = []
    with member(cluster, group, filled) as consumer:

        def read() -> bool:
            found.extend(each.value() for each in consumer.poll(1.0) or ())
            return tool.offsets(group) == EVERYWHERE

        until(read, "all records are accepted")
        (state,) = tool.table("--describe", "--group", group, "--state")
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        (row,) = tool.table("--describe", "--group", group, "--members")
        assert row["ASSIGNMENT"] == f"{filled}:0,1,2"
        assert "is not empty" in tool.say(
            "--reset-offsets", "--group", group, "--topic", filled, "--to-earliest", "--execute"
        )
        assert "not EMPTY" in tool.say("--delete", "--group", group)
        assert group in every.say("--list", "--share").split()
    assert sorted(each or b"" for each in found) == [
        b"%d-%d" % (index, number) for index in range(PARTITIONS) for number in range(RECORDS)
    ]
    assert group in tool.say("--list", "--state", "Empty").split()
    assert tool.reset(group, f"{filled}:0,2", "--to-datetime", "2020-01-01T00:00:00.000", "--execute") == {
        "0": "0",
        "2": "0",
    }
    assert tool.reset(group, filled, "--to-latest", "--dry-run") == dict.fromkeys(beginning, str(RECORDS))
    assert [each[0] for each in tool.offsets(group).values()] == ["0", str(RECORDS), "0"]
    assert "Successful" in tool.say("--delete-offsets", "--group", group, "--topic", filled)
    assert "Error" in tool.say("--delete-offsets", "--group", group, "--topic", filled)
    assert "no offset information" in tool.say("--describe", "--group", group)
    assert "was successful" in tool.say("--delete", "--group", group)
    assert group not in tool.say("--list").split()


def test_the_console_consumer_reads_as_a_member_of_a_share_group(
    scripts: KafkaScripts, cluster: Cluster, filled: str
) -> None:
    """kafka-console-share-consumer.sh prints each record, and accepts it."""
    tool, group = ShareGroups(scripts, cluster), f"of-{filled}"
    tool.reset(group, filled, "--to-earliest", "--execute")
    count = str(PARTITIONS * RECORDS)
    words = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", filled, "--group", group)
    command = java_command("org.apache.kafka.tools.consumer.ConsoleShareConsumer")
    printed = subprocess.run(
        [*command, *words, "--max-messages", count], capture_output=True, check=True, timeout=PATIENCE_S
    ).stdout
    assert sorted(printed.split()) == sorted(
        b"%d-%d" % (index, number) for index in range(PARTITIONS) for number in range(RECORDS)
    )
    until(lambda: tool.offsets(group) == EVERYWHERE, "all records are accepted")


def test_the_verifiable_consumer_counts_what_it_accepts(
    scripts: KafkaScripts, cluster: Cluster, filled: str
) -> None:
    """kafka-verifiable-share-consumer.sh sets `share.auto.offset.reset` itself, and reports each acknowledgement."""
    tool, group = ShareGroups(scripts, cluster), f"of-{filled}"
    words = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", filled, "--group-id", group)
    command = java_command("org.apache.kafka.tools.VerifiableShareConsumer")
    printed = subprocess.run(
        [
            *command,
            *words,
            "--max-messages",
            str(PARTITIONS * RECORDS),
            "--offset-reset-strategy",
            "earliest",
        ],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout
    events = [json.loads(line) for line in printed.splitlines() if line.startswith(b"{")]
    acknowledged = sum(each["count"] for each in events if each["name"] == "offsets_acknowledged")
    assert acknowledged == PARTITIONS * RECORDS
    until(lambda: tool.offsets(group) == EVERYWHERE, "all records are accepted")


def test_the_feature_tool_turns_share_groups_off_and_on(scripts: KafkaScripts, tmp_path: Path) -> None:
    """kafka-features.sh. A client that looks for the APIs finds none of them while they are off."""
    with Cluster(1, directory=tmp_path) as cluster:
        features = Tool(scripts, cluster, "org.apache.kafka.tools.FeatureCommand")
        tool = ShareGroups(scripts, cluster)
        assert "downgraded to 0" in features.say("downgrade", "--feature", "share.version=0")
        refused = tool.say("--describe", "--group", "g")
        assert "UnsupportedVersionException" in refused
        assert "upgraded to 1" in features.say("upgrade", "--feature", "share.version=1")
        assert "GroupIdNotFoundException" in tool.say("--describe", "--group", "g")
