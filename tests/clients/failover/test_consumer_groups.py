"""Groups of KIP-848 with stock consumers on a real cluster: they share, keep theirs, and change from type to type."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from raftlog.protocol.apis import ApiKey
from raftlog.testing.cluster import Cluster
from tests.clients.coordinator_client import CoordinatorClient
from tests.clients.failover.test_groups import first_error, insist
from tests.kit.marks import nightly
from tests.kit.waits import PATIENCE_S, until, waiting

pytestmark = [pytest.mark.clients, pytest.mark.slow]

RECORDS = 200


@pytest.fixture(scope="module", autouse=True)
def records(cluster: Cluster) -> None:
    """A topic of four partitions with records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("shared", 4, 3)])["shared"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("shared", b"%d" % number, partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


class Members:
    """Consumers of one group that are polled in turn; `read` counts what each record was read."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        self.consumers: list[Consumer] = []
        self.read: dict[tuple[int, int], int] = {}
        self._servers = cluster.bootstrap_servers

    def add(self, topics: list[str] | None = None, **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **({"group.protocol": "consumer"} | settings),
            }
        )
        consumer.subscribe(topics or ["shared"])
        self.consumers.append(consumer)
        return consumer

    def until(self, holds: Callable[[], bool], what: str = "the group is as it should be") -> None:
        """Poll all until something holds."""
        wait = waiting(what, seen=lambda: (self.shares(), len(self.read)))
        while not holds():
            wait.pause()
            for each in self.consumers:
                record = each.poll(0.05)
                if record is not None and record.error() is None:
                    record_metadata = record.partition(), record.offset()
                    self.read[record_metadata] = self.read.get(record_metadata, 0) + 1

    def shares(self) -> list[int]:
        return sorted(len(each.assignment()) for each in self.consumers)

    def described(self) -> Any:
        return self.admin.describe_consumer_groups([self.group])[self.group].result(PATIENCE_S)

    def is_stable(self) -> bool:
        """Return whether a coordinator reports so; while it moves, none does. An admin client keeps asking the
        coordinator that it knows.
        """
        self.admin = AdminClient({"bootstrap.servers": self._servers})
        try:
            return bool(self.described().state == ConsumerGroupState.STABLE)
        except KafkaException:
            return False

    def close(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.consumers:
            each.close()


def test_members_share_and_each_record_is_read(cluster: Cluster) -> None:
    """One reads all, four have one partition each, a fifth idles; a leaving member's share goes to the others."""
    with Members(cluster, "sharing") as group:
        group.add()
        group.until(lambda: group.shares() == [4])
        for _ in range(4):
            group.add()
        group.until(lambda: group.shares() == [0, 1, 1, 1, 1])
        group.until(lambda: len(group.read) == RECORDS)
        group.until(group.is_stable, "stable only once the last has said what it has")
        assert group.described().type == ConsumerGroupType.CONSUMER
        while len(group.consumers) > 2:
            group.close(group.consumers[-1])
        group.until(lambda: group.shares() == [2, 2])


class KilledConsumer:
    """A member in a process of its own, so that a kill is a kill; `partitions` is its last report."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        program = str(Path(__file__).with_name("killed_consumer.py"))
        self.partitions = 0
        self._process = subprocess.Popen(
            [sys.executable, program, cluster.bootstrap_servers, "shared", group],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.partitions = len(line.split())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


def test_the_healthy_keep_theirs_when_one_is_killed(cluster: Cluster) -> None:
    """A silent member is out after its session; its partitions go to the others, which keep their own."""
    victim = KilledConsumer(cluster, "dying")
    try:
        with Members(cluster, "dying") as group:
            group.add()
            group.add()
            group.until(lambda: 4 - sum(group.shares()) == victim.partitions > 0 < group.shares()[0])
            before = [{each.partition for each in one.assignment()} for one in group.consumers]
            victim.kill()
            group.until(lambda: group.shares() == [2, 2])
            after = [{each.partition for each in one.assignment()} for one in group.consumers]
            assert all(kept <= now for kept, now in zip(before, after, strict=True))
    finally:
        victim.kill()


def test_commits_and_members_outlive_their_coordinator(cluster: Cluster) -> None:
    """Killed and started again: members keep their partitions, and no commit is lost."""
    with Members(cluster, "failing-over") as group:
        member, _ = group.add(), group.add()
        group.until(lambda: group.shares() == [2, 2] and len(group.read) == RECORDS)
        for each in group.consumers:
            each.commit(asynchronous=False)
        has = [each.assignment() for each in group.consumers]
        node_id = group.described().coordinator.id
        cluster.kill(node_id)
        cluster.restart(node_id)
        group.until(group.is_stable)
        assert [each.assignment() for each in group.consumers] == has
        committed = insist(lambda: member.committed(member.assignment(), PATIENCE_S))
        assert sum(each.offset for each in committed) == RECORDS // 2


def test_regular_expressions_find_topics_to_come(cluster: Cluster) -> None:
    """`^…` is matched by the coordinator (RE2), also against topics that are created later."""
    with Members(cluster, "by-expression") as group:
        group.admin.create_topics([NewTopic("found-1", 1, 1)])["found-1"].result(PATIENCE_S)
        group.add(["^found-.*"])
        group.until(lambda: group.shares() == [1])
        group.admin.create_topics([NewTopic("found-2", 2, 1)])["found-2"].result(PATIENCE_S)
        group.until(lambda: group.shares() == [3])


@pytest.mark.parametrize("strategy", [nightly("range"), "cooperative-sticky"])
def test_a_group_changes_its_type_while_it_is_read(cluster: Cluster, strategy: str) -> None:
    """Classic, both, consumer, both, classic again (KIP-848's online migration)."""
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
    }
    with Members(cluster, f"changing-{strategy}") as group:
        old = group.add(**classic)
        group.until(lambda: group.shares() == [4])
        assert group.described().type == ConsumerGroupType.CLASSIC
        new = group.add()
        group.until(lambda: group.shares() == [2, 2])
        assert group.described().type == ConsumerGroupType.CONSUMER
        group.close(old)
        group.until(lambda: group.shares() == [4])
        group.add(**classic)
        group.until(lambda: group.shares() == [2, 2])
        group.close(new)
        group.until(lambda: group.shares() == [4])
        assert group.described().type == ConsumerGroupType.CLASSIC
        group.until(lambda: len(group.read) == RECORDS)


def test_a_static_member_comes_back_to_its_partitions(cluster: Cluster) -> None:
    """group.instance.id: closed and started again within its session, no partition moves."""
    with Members(cluster, "static") as group:
        one, _ = group.add(**{"group.instance.id": "one"}), group.add()
        group.until(lambda: group.shares() == [2, 2])
        before, other = one.assignment(), group.consumers[1].assignment()
        group.close(one)
        back = group.add(**{"group.instance.id": "one"})
        group.until(lambda: len(back.assignment()) == 2)
        assert (back.assignment(), group.consumers[0].assignment()) == (before, other)


def test_the_program_gets_the_coordinators_refusals(cluster: Cluster) -> None:
    """UNSUPPORTED_ASSIGNOR and UNRELEASED_INSTANCE_ID end a consumer with the protocol's own error."""
    with Members(cluster, "refused") as group:
        group.add(**{"group.instance.id": "one"})
        group.until(lambda: group.shares() == [4])
        for settings, code in (
            ({"group.remote.assignor": "mine"}, KafkaError.UNSUPPORTED_ASSIGNOR),
            ({"group.instance.id": "one"}, KafkaError.UNRELEASED_INSTANCE_ID),
        ):
            assert KafkaError(code).str() in _first_error(group, settings)
            group.consumers.pop().close()


def _first_error(group: Members, settings: dict[str, Any]) -> str:
    consumer = group.add(**settings)
    return first_error(consumer).str()


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Configs:
    """The configs of one group, by the stock admin client."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        self._group = group

    def alter(self, changes: dict[str, str | None], **options: Any) -> None:
        """Set, or unset (None)."""
        operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
        entries = [
            ConfigEntry(name, value, incremental_operation=operations[value is None])
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self._group, incremental_configs=entries)
        (altered,) = self._admin.incremental_alter_configs([resource], **options).values()
        altered.result(PATIENCE_S)

    def described(self) -> dict[str, tuple[str, ConfigSource]]:
        """Return what the group has of its own."""
        resource = ConfigResource(ResourceType.GROUP, self._group)
        (found,) = self._admin.describe_configs([resource]).values()
        every = {
            name: (each.value, ConfigSource(each.source)) for name, each in found.result(PATIENCE_S).items()
        }
        return {name: each for name, each in every.items() if each[1] == ConfigSource.GROUP_CONFIG}


def test_a_group_has_a_heartbeat_interval_and_a_session_timeout_of_its_own(cluster: Cluster) -> None:
    """Set before there is the group and changed while it runs: its coordinator goes by it at the next heartbeat."""
    configs, coordinators = Configs(cluster, "tuned"), CoordinatorClient(cluster)

    def beat(epoch: int, **fields: Any) -> int:
        who = {"group_id": "tuned", "member_id": "silent", "member_epoch": epoch, "topic_partitions": None}
        heard = coordinators.ask("tuned", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **{**who, **fields})
        return int(heard.heartbeat_interval)

    def members() -> int:
        found = coordinators.ask("tuned", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("tuned",))
        return len(found.groups[0].members)

    configs.alter({HEARTBEAT: "400", SESSION: "60000"})
    configs.alter({HEARTBEAT: "500"}, validate_only=True)
    set_by_hand = {
        name: (value, ConfigSource.GROUP_CONFIG) for name, value in ((HEARTBEAT, "400"), (SESSION, "60000"))
    }
    until(lambda: configs.described() == set_by_hand, "they are shown")
    joining = {"rebalance_timeout": 60_000, "subscribed_topic_names": ("shared",), "topic_partitions": ()}
    until(lambda: beat(0, **joining) == 400, "the coordinator knows")
    configs.alter({HEARTBEAT: None})
    until(lambda: beat(1) == 1000, "the group beats as all do")
    assert members() == 1
    configs.alter({HEARTBEAT: "350", SESSION: "1000"})
    until(
        lambda: beat(1) == 350 or not members(), "the coordinator knows, and by then the session may be over"
    )
    until(lambda: members() == 0, "a short session ends")
    coordinators.ask("tuned", ApiKey.DELETE_GROUPS, 2, groups_names=("tuned",))
    kept = {HEARTBEAT: ("350", ConfigSource.GROUP_CONFIG), SESSION: ("1000", ConfigSource.GROUP_CONFIG)}
    until(lambda: configs.described() == kept, "its configs outlive it")


def test_impossible_requests_to_a_group_are_refused_without_effect(cluster: Cluster) -> None:
    """Beyond the brokers' bounds, and configs of streams groups, which are not built: INVALID_CONFIG."""
    configs = Configs(cluster, "refused-configs")
    for changes in ({SESSION: "999"}, {HEARTBEAT: "5000"}, {"streams.session.timeout.ms": "45000"}):
        with pytest.raises(KafkaException) as refused:
            configs.alter({HEARTBEAT: "400"} | changes)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert configs.described() == {}
