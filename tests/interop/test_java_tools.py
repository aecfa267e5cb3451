"""Apache Kafka's own scripts for groups, their configs, transactions and features, by the classes that they start."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import group_members, python_kind
from tests.clients.with_confluent import Confluent
from tests.interop.groups import stored_offsets
from tests.interop.member_kinds import java_kind, java_maker
from tests.interop.scripts import KafkaScripts, Tool
from tests.interop.transactions import transactors, values
from tests.kit.waits import until

pytestmark = pytest.mark.java

PARTITIONS = 3
RECORDS = 10


class Groups(Tool):
    """kafka-consumer-groups.sh."""

    def __init__(self, scripts: KafkaScripts, cluster: Cluster) -> None:
        super().__init__(scripts, cluster, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")

    def reset(self, group: str, topic: str, *how: str) -> dict[int, int]:
        """Reset a group's offsets; returns what the tool says they are now."""
        rows = self.table("--reset-offsets", "--group", group, "--topic", topic, *how, "--execute")
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows}


def everywhere(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


def test_the_stock_tool_describes_resets_and_deletes_a_group(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str, tmp_path: Path
) -> None:
    """With members: described, and not to be reset or deleted. Without: reset in every way, and gone in the end."""
    client.create_topic(topic, PARTITIONS, 3)
    for index in range(PARTITIONS):
        client.produce(topic, [b"%d-%d" % (index, number) for number in range(RECORDS)], partition=index)
    tool, name = Groups(scripts, cluster), f"of-{topic}"
    kind = python_kind("confluent")
    with group_members(cluster.bootstrap_servers, topic, name, kind, kind, partitions=PARTITIONS) as group:
        group.wait_shares([1, 2])
        group.wait_read(
            b"%d-%d" % (index, number) for index in range(PARTITIONS) for number in range(RECORDS)
        )
        members = tool.table("--describe", "--group", name, "--members")
        assert sorted(int(row["#PARTITIONS"]) for row in members) == [1, 2]
        (state,) = tool.table("--describe", "--group", name, "--state")
        assert (state["ASSIGNMENT-STRATEGY"], state["STATE"]) == ("roundrobin", "Stable")
        refused = tool.say("--reset-offsets", "--group", name, "--topic", topic, "--to-earliest", "--execute")
        assert "inactive" in refused, refused
        assert "not empty" in tool.say("--delete", "--group", name)
        group.leave(0)
        group.leave(0)
    rows = tool.table("--describe", "--group", name, "--offsets")
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [(str(RECORDS), "0")] * PARTITIONS
    assert name in tool.say("--list").split()
    assert tool.reset(name, topic, "--to-earliest") == everywhere(0)
    assert stored_offsets(cluster, name) == everywhere(0)
    assert tool.reset(name, topic, "--shift-by", "4") == everywhere(4)
    plan = tmp_path / "plan.csv"
    plan.write_text("".join(f"{topic},{index},{index}\n" for index in range(PARTITIONS)))
    tool.say("--reset-offsets", "--group", name, "--from-file", str(plan), "--execute")
    assert stored_offsets(cluster, name) == {index: index for index in range(PARTITIONS)}
    assert tool.reset(name, topic, "--to-datetime", "2020-01-01T00:00:00.000") == everywhere(0)
    assert tool.reset(name, topic, "--to-latest") == everywhere(RECORDS)
    assert "Request succeed" in tool.say("--delete-offsets", "--group", name, "--topic", f"{topic}:0")
    assert stored_offsets(cluster, name) == {1: RECORDS, 2: RECORDS}
    assert "successful" in tool.say("--delete", "--group", name)
    assert name not in tool.say("--list").split()


def test_the_stock_tools_find_groups_by_state_and_type(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str
) -> None:
    """KIP-518, 848 and 1043: a classic group, a consumer group and an empty group, each listed in its place."""
    client.create_topic(topic, PARTITIONS, 3)
    client.produce(topic, [b"x"], partition=0)
    tool = Groups(scripts, cluster)
    every = Tool(scripts, cluster, "org.apache.kafka.tools.GroupsCommand")
    classic, modern, empty = (f"{each}-{topic}" for each in ("classic", "modern", "empty"))
    where = (cluster.bootstrap_servers, topic)
    with (
        group_members(*where, classic, java_kind("cooperative-sticky"), partitions=PARTITIONS) as one,
        group_members(*where, modern, java_kind("consumer"), partitions=PARTITIONS) as other,
        group_members(*where, empty, python_kind("confluent"), partitions=PARTITIONS) as gone,
    ):
        for group in (one, other, gone):
            group.wait_shares([PARTITIONS])
            group.wait_read([b"x"])
        gone.leave(0)

        def found(*filters: str) -> set[str]:
            return {classic, modern, empty} & set(tool.say("--list", *filters).split())

        assert found() == {classic, modern, empty}
        assert found("--state", "Stable") == {classic, modern}
        assert found("--state", "Empty") == {empty}
        assert found("--type", "classic") == {classic, empty}
        assert found("--type", "consumer") == {modern}
        assert found("--state", "Stable", "--type", "classic") == {classic}
        rows = [line.split() for line in every.say("--list").splitlines()]
        types = {row[0]: row[1:] for row in rows if row and row[0] in (classic, modern)}
        assert types == {classic: ["Classic", "consumer"], modern: ["Consumer", "consumer"]}
        assert modern in every.say("--list", "--group-type", "consumer").split()
        (state,) = tool.table("--describe", "--group", modern, "--state")
        assert (state["ASSIGNMENT-STRATEGY"], state["STATE"]) == ("uniform", "Stable")
        (member,) = tool.table("--describe", "--group", modern, "--members", "--verbose")
        assert member["#PARTITIONS"] == str(PARTITIONS)
        assert member["CURRENT-EPOCH"] == member["TARGET-EPOCH"]
        assert "inactive" in tool.say(
            "--reset-offsets", "--group", modern, "--topic", topic, "--to-earliest", "--execute"
        )
        assert "not empty" in tool.say("--delete", "--group", modern)
        other.leave(0)
    assert tool.reset(modern, topic, "--to-earliest") == everywhere(0)
    assert stored_offsets(cluster, modern) == everywhere(0)
    assert "successful" in tool.say("--delete", "--group", modern)
    assert modern not in every.say("--list").split()


def test_the_stock_tool_alters_and_describes_a_groups_configs(
    scripts: KafkaScripts, cluster: Cluster, topic: str
) -> None:
    """kafka-configs.sh --entity-type groups: set, shown with its synonyms, unset, and what is refused is said."""
    tool, group = Tool(scripts, cluster, "kafka.admin.ConfigCommand"), f"of-{topic}"
    session = "consumer.session.timeout.ms"

    def say(*words: str) -> str:
        return tool.say(*words, "--entity-type", "groups", "--entity-name", group)

    assert "Completed updating" in say("--alter", "--add-config", f"{session}=7000")
    synonyms = f"DYNAMIC_GROUP_CONFIG:{session}=7000, STATIC_BROKER_CONFIG:group.{session}=8000"
    until(lambda: synonyms in say("--describe", "--all"), "it is shown")
    assert "consumer.heartbeat.interval.ms=500" in say("--describe", "--all")
    until(lambda: group in tool.say("--describe", "--entity-type", "groups"), "the group is listed")
    for wrong in (f"{session}=5999", "share.session.timeout.ms=44999"):
        assert "InvalidConfigurationException" in say("--alter", "--add-config", wrong)
    assert "Completed updating" in say("--alter", "--delete-config", session)
    until(lambda: session not in say("--describe"), "it is the default again")


def test_the_stock_tool_shows_transactions_and_their_producers(
    scripts: KafkaScripts, cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Listed, described, found in the partition while it is open; finished, it hangs nowhere; one ends by force."""
    client.create_topic(topic, 1, 3)
    tool, name = Tool(scripts, cluster, "org.apache.kafka.tools.TransactionsCommand"), f"tx-{topic}"

    def open_since() -> str:
        (row,) = tool.table("describe-producers", "--topic", topic, "--partition", "0")
        return row["CurrentTransactionStartOffset"]

    with transactors(java_maker(), cluster, name) as (producer,):
        producer.take("init", "begin", f"send {topic} 0 x", "flush")
        (listed,) = [row for row in tool.table("list") if row["TransactionalId"] == name]
        assert listed["TransactionState"] == "Ongoing"
        (described,) = tool.table("describe", "--transactional-id", name)
        assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
        (writing,) = tool.table("describe-producers", "--topic", topic, "--partition", "0")
        assert writing["ProducerId"] == listed["ProducerId"]
        assert open_since() == "0"
        producer.take("commit")
        until(lambda: open_since() == "None", "the marker is written")
        assert "Exception" not in tool.say("find-hanging", "--broker-id", "1")
        producer.take("begin", f"send {topic} 0 given-up", "flush")
        assert "Exception" not in tool.say("forceTerminateTransaction", "--transactionalId", name)
        assert "ProducerFenced" in producer.attempt("commit")
    assert values(cluster, topic, committed=True) == ["x"]


def test_the_stock_tool_shows_and_changes_the_levels_of_features(
    scripts: KafkaScripts, cluster: Cluster
) -> None:
    """group.version 1 is KIP-848, transaction.version 2 is KIP-890, metadata.version 30 is Apache Kafka 4.3.

    They go down and up again, and all stay as they are if a single change is invalid.
    """
    tool = Tool(scripts, cluster, "org.apache.kafka.tools.FeatureCommand")
    initial = {"group.version": "1", "transaction.version": "2", "metadata.version": "4.3-IV0"}

    def finalized() -> dict[str, str]:
        found = {}
        for line in tool.say("describe").splitlines():
            words = line.split()
            if "Feature:" in words and "FinalizedVersionLevel:" in words:
                found[words[words.index("Feature:") + 1]] = words[words.index("FinalizedVersionLevel:") + 1]
        return {name: found.get(name, "?") for name in initial}

    def change(how: str, *levels: str) -> str:
        return tool.say(how, *(word for level in levels for word in ("--feature", level)))

    assert finalized() == initial
    assert "was downgraded to 1" in change("downgrade", "transaction.version=1")
    until(lambda: finalized() == {**initial, "transaction.version": "1"}, "all nodes tell the new level")
    refused = change("upgrade", "transaction.version=2", "share.version=1")
    assert "Could not upgrade transaction.version to 2" in refused
    assert "Could not upgrade share.version to 1" in refused and "level in force is 2" in refused
    assert "can be upgraded to 2" in tool.say("upgrade", "--feature", "transaction.version=2", "--dry-run")
    assert finalized() == {**initial, "transaction.version": "1"}
    assert "was downgraded to 29" in change("downgrade", "metadata.version=29")
    assert "was upgraded to" in change("upgrade", "transaction.version=2", "metadata.version=30")
    until(lambda: finalized() == initial, "all nodes tell the old levels")
    assert "neither a safe nor an unsafe downgrade" in change("upgrade", "transaction.version=1")
    assert "was disabled" in tool.say("disable", "--feature", "group.version")
    until(lambda: finalized() == {**initial, "group.version": "0"}, "there are no consumer groups any more")
    assert "was upgraded to 1" in change("upgrade", "group.version=1")
    assert "share.version was upgraded to 1" in tool.say("upgrade", "--release-version", "4.3")
    until(lambda: finalized() == initial, "the features that are there have the release's levels")
    until(lambda: finalized() == initial, "all nodes tell the old levels again")
