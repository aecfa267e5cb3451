"""Share groups with stock clients: Apache Kafka's own scripts and consumers, and librdkafka's (KIP-932)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


class JavaMember:
    """A `KafkaShareConsumer` that acknowledges each record when asked, and acquires no more than a poll returns."""

    def __init__(self, cluster: Cluster, group: str, topic: str, limit: int) -> None:
        words = (cluster.bootstrap_servers, topic, group, str(limit))
        self._process = subprocess.Popen(
            [*java_command("raftlog.ShareMember"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> str:
        """Return the line with which it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the member ended at {line}"
        return answer.strip()

    def polled(self) -> list[str]:
        """Return the values and delivery counts of its next records."""
        found: list[str] = []

        def poll() -> bool:
            found.extend(self.ask("poll").split())
            return bool(found)

        until(poll, "there are records")
        return found

    def close(self) -> None:
        """Leave the group: what is not acknowledged is released."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(PATIENCE_S) == 0
        finally:
            self._process.kill()


@contextmanager
def java_member(cluster: Cluster, group: str, topic: str, limit: int) -> Iterator[JavaMember]:
    found = JavaMember(cluster, group, topic, limit)
    try:
        yield found
    finally:
        found.close()


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


def test_the_java_consumer_acknowledges_each_record(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Accept, release, reject and renew, one record each; a strict limit leaves the rest of a batch to others."""
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"%d" % number for number in range(RECORDS)], partition=0)
    tool, group = ShareGroups(scripts, cluster), f"of-{topic}"
    tool.reset(group, topic, "--to-earliest", "--execute")
    with java_member(cluster, group, topic, 4) as first:
        assert first.polled() == ["0:1", "1:1", "2:1", "3:1"]
        with java_member(cluster, group, topic, 4) as second:
            assert second.polled() == ["4:1", "5:1", "6:1", "7:1"]
            asked = [first.ask(line) for line in ("accept 0", "release 1", "reject 2", "renew 3", "commit")]
            assert asked == ["noted"] * 4 + ["1"]
            assert first.polled() == ["3:1"]  # the client returns a renewed record again, and fetches none
            assert [first.ask("accept 3"), first.ask("commit")] == ["noted", "1"]
            assert first.polled() == ["1:2", "8:1", "9:1"]
            for value in (1, 8, 9):
                first.ask(f"accept {value}")
            assert first.ask("commit") == "1"
            assert tool.offsets(group) == {"0": ("4", "4")}
        assert first.polled() == [f"{value}:2" for value in range(4, 8)]
        for value in range(4, 8):
            first.ask(f"accept {value}")
        assert first.ask("commit") == "1"
        assert tool.offsets(group) == {"0": (str(RECORDS), "0")}


def test_the_perf_tool_reads_all_records(scripts: KafkaScripts, cluster: Cluster, filled: str) -> None:
    """kafka-share-consumer-perf-test.sh, with two members; it accepts what it reads."""
    tool, group = ShareGroups(scripts, cluster), f"of-{filled}"
    tool.reset(group, filled, "--to-earliest", "--execute")
    perf = Tool(scripts, cluster, "org.apache.kafka.tools.ShareConsumerPerformance")
    count = PARTITIONS * RECORDS
    words = ("--topic", filled, "--group", group, "--num-records", str(count), "--threads", "2")
    header, *rows = (line for line in perf.say(*words, "--timeout", "60000").splitlines() if ", " in line)
    row = dict(zip(header.split(", "), rows[-1].split(", "), strict=True))
    assert row["data.consumed.in.nMsg"] == str(count)
    until(lambda: tool.offsets(group) == EVERYWHERE, "all records are accepted")


def test_the_dump_tool_decodes_the_state_of_a_share_group(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str
) -> None:
    """kafka-dump-log.sh --share-group-state-decoder finds snapshots and updates in each replica of the topic."""
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"%d" % number for number in range(RECORDS)], partition=0)
    tool, group = ShareGroups(scripts, cluster), f"of-{topic}"
    tool.reset(group, topic, "--to-earliest", "--execute")
    with java_member(cluster, group, topic, 4) as only:
        only.polled()
        assert [only.ask(line) for line in ("accept 0", "reject 2", "release 1")] == ["noted"] * 3
        assert only.ask("commit") == "1"
    until(lambda: tool.offsets(group) == {"0": ("1", "8")}, "the acknowledgements are there")
    for node in cluster.nodes.values():

        def has_all(directory: Path = node.directory) -> bool:
            states = dumped(scripts, directory, group)
            batches = [each for _, state in states for each in state["stateBatches"]]
            marks = {(each["firstOffset"], each["deliveryState"]) for each in batches}
            return {kind for kind, _ in states} == {"0", "1"} and {(1, 0), (2, 4)} <= marks

        until(has_all, "the replica has the states")


def dumped(scripts: KafkaScripts, directory: Path, group: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the records of a group's state in the files of a node: the type of each key, and the value."""
    found = []
    for log in sorted(directory.glob("data/__share_group_state-*/*.log")):
        words = ("--share-group-state-decoder", "--files", str(log))
        printed = scripts.run("org.apache.kafka.tools.DumpLogSegments", *words)
        for key, value in re.findall(r" key: (\{.*\}) payload: (\{.*\})$", printed, re.MULTILINE):
            if json.loads(key)["data"]["groupId"] == group:
                found.append((json.loads(key)["type"], json.loads(value)["data"]))
    return found


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
