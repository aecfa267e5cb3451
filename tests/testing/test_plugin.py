"""Claims about the pytest plugin, tried as users would: tests in a folder of their own, run by pytest as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raftlog.testing import Cluster, KafkaContainer
from raftlog.testing.cluster import ClusterError
from raftlog.testing.evidence import readable
from raftlog.testing.probe import NewTopic, create_topic, view_cluster, view_topic
from tests.kit.waits import PATIENCE_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PRODUCE = """
    from confluent_kafka import Consumer, Producer

    def send(servers, topic, count=3):
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "request.timeout.ms": 2000})
        for number in range(count):
            producer.produce(topic, str(number))
        assert producer.flush(60) == 0
"""


OTHER_PLUGINS = ("schemathesis", "hypothesispytest", "anyio")
"""Of libraries that are installed here: loading them takes a process longer than all else."""


def run_pytest(folder: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with no part of this repository in reach but the installed package."""
    (folder / "test_it.py").write_text(textwrap.dedent(PRODUCE) + textwrap.dedent(test))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_ADDOPTS"] = " ".join(f"-p no:{each}" for each in OTHER_PLUGINS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def pids_of_nodes(folder: Path) -> list[str]:
    """Return the processes that belong to a run in that folder."""
    marks = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (each / "cmdline").read_text():
                marks.append(each.name)
        except OSError:
            continue
    return marks


def test_tests_get_the_sessions_cluster_with_names_of_their_own(tmp_path):
    """`raftlog` and `bootstrap_servers` are the same cluster; topics and groups differ, in async tests too."""
    ended = run_pytest(
        tmp_path,
        """
        seen = []

        def test_one(raftlog, bootstrap_servers):
            assert raftlog.bootstrap_servers == bootstrap_servers
            assert raftlog.servers == bootstrap_servers.split(",") and len(raftlog.servers) == 3
            send(bootstrap_servers, raftlog.create_topic(partitions=2))
            assert sorted(each.value for each in raftlog.read(count=3)) == [b"0", b"1", b"2"]
            seen.append((bootstrap_servers, raftlog.topic, raftlog.group_id))

        def test_another(raftlog):
            send(raftlog.bootstrap_servers, raftlog.topic)
            (servers, topic, group_id) = seen[0]
            assert raftlog.bootstrap_servers == servers
            assert raftlog.topic != topic and raftlog.group_id != group_id
            consumer = Consumer({"bootstrap.servers": servers, "group.id": raftlog.group_id,
                                 "auto.offset.reset": "earliest"})
            consumer.subscribe([raftlog.topic])
            values = []
            while len(values) < 3:
                message = consumer.poll(60)
                assert message is not None
                if message.error() is None:
                    values.append(message.value())
            consumer.close()
            assert values == [b"0", b"1", b"2"]

        async def test_async(raftlog):
            send(raftlog.bootstrap_servers, raftlog.topic)
        """,
        "-o",
        "asyncio_mode=auto",
    )
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


def test_workers_share_one_cluster(tmp_path):
    """With pytest-xdist one cluster is started, and it lives until the last worker is done; then all is gone."""
    ended = run_pytest(
        tmp_path,
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_each(raftlog, number, worker_id):
            send(raftlog.bootstrap_servers, raftlog.topic)
            (pathlib.Path(__file__).parent / f"seen-{number}").write_text(f"{worker_id} {raftlog.bootstrap_servers}")
        """,
        "--raftlog-nodes=1",
        "-n",
        "2",
        f"--raftlog-keep={tmp_path / 'kept'}",
    )
    assert "6 passed" in ended.stdout, ended.stdout + ended.stderr
    seen = [each.read_text().split() for each in tmp_path.glob("seen-*")]
    assert {worker for worker, _ in seen} == {"gw0", "gw1"}
    assert len({servers for _, servers in seen}) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert pids_of_nodes(tmp_path) == []


def test_a_cluster_of_a_test_alone_is_hurt_and_healed(tmp_path):
    """Leaders are killed, disks are slow, data goes back to a snapshot."""
    ended = run_pytest(
        tmp_path,
        """
        import pytest
        from raftlog.testing.probe import NewTopic, create_topic, view_cluster, view_topics

        @pytest.mark.raftlog(faults=True, settings={"num.partitions": "2"})
        def test_it(raftlog_cluster):
            raftlog_cluster.create_topic("orders", partitions=2)
            before, first = raftlog_cluster.snapshot(), raftlog_cluster.nodes[1]
            killed = raftlog_cluster.kill_leader("orders")
            assert killed not in raftlog_cluster.running_ids()
            send(raftlog_cluster.bootstrap_servers, "orders")
            send(raftlog_cluster.bootstrap_servers, "others")
            raftlog_cluster.slow_disk(raftlog_cluster.leader("orders"), 0.01)
            raftlog_cluster.heal()
            raftlog_cluster.wait_until_healthy()
            assert set(raftlog_cluster.partitions("others")) == {0, 1}
            raftlog_cluster.restore(before)
            raftlog_cluster.wait_until_healthy()
            assert {topic for topic, _ in view_topics(first.host, first.port).partitions} == {"orders"}
            consumer = Consumer({"bootstrap.servers": raftlog_cluster.bootstrap_servers, "group.id": "g"})
            from confluent_kafka import TopicPartition
            for partition in range(2):
                assert consumer.get_watermark_offsets(TopicPartition("orders", partition), timeout=60) == (0, 0)
            consumer.close()
        """,
    )
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.nightly
def test_a_node_is_cut_off_and_comes_back(tmp_path):
    """A network of the cluster's own, where that is possible; elsewhere the test is skipped with the reason.

    The next test cuts a node off, too, and `test_namespaces` does without pytest.
    """
    ended = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.raftlog(network=True)
        def test_it(raftlog_cluster):
            raftlog_cluster.create_topic("orders")
            cut_off = raftlog_cluster.leader("orders")
            raftlog_cluster.cut(cut_off)
            assert raftlog_cluster.leader("orders") != cut_off
            send(raftlog_cluster.bootstrap_servers, "orders")
            raftlog_cluster.wait_ready()
            raftlog_cluster.heal()
            raftlog_cluster.wait_until_healthy()
        """,
        "-rs",
    )
    if "can't be cut off here" in ended.stdout:
        pytest.skip(ended.stdout)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_clients_leave_a_leader_that_is_cut_off_from_the_others_only(tmp_path):
    """librdkafka stays with a broker that answers; this one says that it may lead no more, and sends it away."""
    ended = run_pytest(
        tmp_path,
        """
        import pytest
        from confluent_kafka import TopicPartition

        @pytest.mark.raftlog(network=True)
        def test_it(raftlog_cluster):
            raftlog_cluster.create_topic("orders")
            leader = raftlog_cluster.leader("orders")
            node = raftlog_cluster.nodes[leader]
            common = {"bootstrap.servers": f"{node.host}:{node.port}"}
            producer = Producer({**common, "acks": "all", "request.timeout.ms": 2000})
            consumer = Consumer({**common, "group.id": "g"})
            consumer.assign([TopicPartition("orders", 0, 0)])

            def read():
                message = consumer.poll(60)
                while message is None or message.error() is not None:
                    message = consumer.poll(60)
                return message.value()

            producer.produce("orders", "before")
            assert producer.flush(60) == 0
            assert read() == b"before"
            raftlog_cluster.cut(leader, from_clients=False)
            producer.produce("orders", "during")
            assert producer.flush(40) == 0, "the producer stays with the leader that is cut off"
            assert raftlog_cluster.leader("orders") != leader
            assert read() == b"during"
            consumer.close()
            raftlog_cluster.heal()
            raftlog_cluster.wait_until_healthy()
        """,
        "-rs",
    )
    if "can't be cut off here" in ended.stdout:
        pytest.skip(ended.stdout)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_failed_test_shows_what_the_nodes_did(tmp_path):
    """The report has each node's log of that test only, and why its partitions have their leaders."""
    ended = run_pytest(
        tmp_path,
        """
        def test_first(raftlog):
            send(raftlog.bootstrap_servers, raftlog.create_topic(raftlog.name("before")))

        def test_second(raftlog):
            raftlog.create_topic(raftlog.name("during"))
            assert not raftlog.topic
        """,
        "--raftlog-nodes=1",
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    report = ended.stdout.partition("FAILURES")[2]
    assert "raftlog node 1" in report
    assert "topic_created" in report
    assert "-before" not in report
    assert report.index("-during-0: Broker 1 leads") < report.index("raftlog node 1"), "the story comes first"
    assert "--raftlog-keep=FOLDER keeps the whole log" in report and "node.log" not in report


def test_a_failed_tests_report_names_the_faults_of_the_test_itself(tmp_path):
    """First of all, and the path of a log that is kept."""
    ended = run_pytest(
        tmp_path,
        """
        def test_it(raftlog_cluster):
            raftlog_cluster.create_topic("orders")
            raftlog_cluster.kill(2)
            for refused in (raftlog_cluster.kill, lambda node_id: raftlog_cluster.slow_disk(node_id, 0.1)):
                try:
                    refused(9 if refused == raftlog_cluster.kill else 1)
                except ValueError:
                    continue
                raise AssertionError("it was not refused")
            raftlog_cluster.read("missing")
        """,
        f"--raftlog-keep={tmp_path}",
    )
    report = ended.stdout.partition("FAILURES")[2]
    assert report.index("node 2 killed") < report.index("orders-0: Broker") < report.index("raftlog node 1")
    (path,) = re.findall(r"raftlog node 1 \((.*)\)", report)
    assert Path(path).exists()
    assert "node 9" not in report and "syncs its disk" not in report, "what was refused did not happen"
    assert "there is no topic missing" in report and "UnknownTopicOrPartition" not in report
    assert "--- node 1:" not in report, "logs are in sections, and only there"


def test_lines_of_a_log_are_readable_and_leave_internal_topics_out():
    """Fifty partitions of __consumer_offsets would be all that a report has room for."""
    line = {
        "room": "x",
        "node_id": 1,
        "event": "isr_shrunk",
        "level": "info",
        "timestamp": "2026-11-29T18:35:25.349477Z",
    }
    assert (
        readable(json.dumps(line | {"topic": "t", "isr": [1]}))
        == "18:35:25.349 info isr_shrunk topic=t isr=[1]"
    )
    assert readable(json.dumps(line | {"topic": "__consumer_offsets"})) == ""
    for other in ("Traceback (most recent call last):", "[1]", "{}", "7"):
        assert readable(other) == other


def test_a_node_in_the_tests_own_process_is_the_sessions_cluster(tmp_path):
    """By the ini setting: no process is started, stock clients reach it all the same, and a failure has its log."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nraftlog_nodes = in-process\n")
    ended = run_pytest(
        tmp_path,
        """
        import subprocess, threading

        def test_one(raftlog):
            send(raftlog.bootstrap_servers, raftlog.create_topic())
            assert "raftlog-node-1" in {each.name for each in threading.enumerate()}
            children = subprocess.run(["ps", "--ppid", str(__import__("os").getpid()), "-o", "args="],
                                      capture_output=True, text=True).stdout
            assert "raftlog" not in children

        def test_two(raftlog):
            raftlog.create_topic(raftlog.name("during"))
            assert not raftlog.topic
        """,
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    report = ended.stdout.partition("FAILURES")[2]
    assert "raftlog node 1" in report
    assert "topic_created" in report
    assert report.index("-during-0: Broker 1 leads") < report.index("raftlog node 1"), "the story comes first"
    assert "--raftlog-keep=FOLDER keeps the whole log" in report and "node.log" not in report


def test_the_modules_of_a_node_are_imported_as_they_are(tmp_path):
    """pytest rewrites the assertions of plugins, with which a node in the tests' process starts twice as slowly."""
    ended = run_pytest(
        tmp_path,
        """
        from importlib.machinery import SourceFileLoader

        def test_it():
            from raftlog.storage import log
            assert type(log.__loader__) is SourceFileLoader
            assert type(__loader__) is not SourceFileLoader
        """,
    )
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--raftlog-nodes=none", "raftlog: the number of nodes is 1 to 9, or in-process, not 'none'"),
        ("--raftlog-nodes=10", "raftlog: the number of nodes is 1 to 9, or in-process, not '10'"),
        ("--raftlog-bootstrap=nowhere", "raftlog: an address is host:port, not 'nowhere'"),
    ],
)
def test_a_wrong_option_ends_the_session_before_any_test(tmp_path, argument, message):
    """In one line, instead of once for each test."""
    ended = run_pytest(tmp_path, "\ndef test_it(): pass\n", argument)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stderr.splitlines()[0] == f"ERROR: {message}"


@pytest.mark.parametrize(
    ("test", "arguments", "message"),
    [
        (
            "import pytest\n@pytest.mark.raftlog(brokers=3)\ndef test_it(raftlog_cluster): pass",
            [],
            "unexpected keyword argument 'brokers'",
        ),
        (
            "def test_it(raftlog): raftlog.create_topic('white space')",
            ["--raftlog-nodes=1"],
            "topic white space was not created",
        ),
    ],
)
def test_what_cannot_be_is_said_in_words(tmp_path, test, arguments, message):
    """Wrong options and marks name what is wrong and what is allowed."""
    ended = run_pytest(tmp_path, f"\n{test}\n", *arguments)
    assert ended.returncode != 0
    assert message in ended.stdout + ended.stderr


def test_a_cluster_that_is_not_there_ends_the_session_with_its_address(tmp_path):
    """In one line that says what to do, instead of an error of the first connection of each test."""
    ended = run_pytest(
        tmp_path,
        "def test_it(raftlog): raftlog.create_topic()",
        "--raftlog-bootstrap=127.0.0.1:1,localhost:1",
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert "no node answers at 127.0.0.1:1, localhost:1 (Connection refused): start the cluster" in said
    assert "Traceback" not in said


def test_a_cluster_that_is_there_is_used(tmp_path):
    """--raftlog-bootstrap starts no cluster."""
    with Cluster(1) as cluster:
        ended = run_pytest(
            tmp_path,
            f"""
            def test_it(raftlog):
                assert raftlog.bootstrap_servers == "{cluster.bootstrap_servers}"
                send(raftlog.bootstrap_servers, raftlog.create_topic())
            """,
            f"--raftlog-bootstrap={cluster.bootstrap_servers}",
        )
        assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.taste
@pytest.mark.nightly
def test_the_example_passes_as_users_run_it(tmp_path):
    """`deploy/examples/app_test`: a program, and tests of it that kill a leader."""
    example = Path(__file__).parents[2] / "deploy" / "examples" / "app_test"
    shutil.copytree(example, tmp_path / "app_test")
    ended = run_pytest(tmp_path / "app_test", "")
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_testcontainer_is_replaced_by_its_import():
    """`KafkaContainer` takes what testcontainers' class takes, and Kafka's settings as its images do."""
    with (
        KafkaContainer("confluentinc/cp-kafka:7.6.0")
        .with_kraft()
        .with_env("KAFKA_HEAP_OPTS", "-Xmx512m")
        .with_env("KAFKA_NUM_PARTITIONS", "4") as kafka
    ):
        host, _, port = kafka.get_bootstrap_server().rpartition(":")
        assert create_topic(host, int(port), NewTopic("made", partitions=-1)) == ""
        assert len(view_topic(host, int(port), "made")) == 4
    with pytest.raises(ConnectionRefusedError):
        view_cluster(host, int(port))


def test_a_testcontainer_is_where_it_is_whatever_variables_say(tmp_path: Path):
    """Examples for KRaft set the folder and the listeners: a second container must not find the first's data."""
    for _ in range(2):
        kafka = KafkaContainer().with_kraft().with_name("kafka").with_network_aliases("kafka")
        kafka.with_envs(
            KAFKA_LOG_DIRS=str(tmp_path / "data"),
            KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:29092,CONTROLLER://0.0.0.0:9094",
            KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:29092",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@kafka:9094",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_NODE_ID="7",
            KAFKA_CREATE_TOPICS="a:1:1",
            KAFKA_REST_HOST_NAME="rest",
            KAFKA_SCHEMA_REGISTRY_URL="http://registry",
        )
        with kafka:
            host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9093)
            assert kafka.get_bootstrap_server() == f"{host}:{port}"
            assert not view_topic(host, port, "made")
            assert create_topic(host, port, NewTopic("made", partitions=1)) == ""
            assert b"node_ready" in kafka.get_logs()[0]
            producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
            producer.produce("made", b"x")
            assert producer.flush(PATIENCE_S) == 0
    assert not (tmp_path / "data").exists()


def test_variables_of_kafkas_images_have_signs_other_than_dots():
    """Three underscores are a dash. The node names the setting, as it has no such listener."""
    variable = "KAFKA_LISTENER_NAME_PLAINTEXT_SCRAM___SHA___256_SASL_JAAS_CONFIG"
    with pytest.raises(ClusterError, match=r"listener\.name\.plaintext\.scram-sha-256\.sasl\.jaas\.config"):
        KafkaContainer().with_env(variable, "x").start()


def test_a_testcontainer_that_is_started_again_is_one_node():
    """The first node would run until the tests end."""
    with KafkaContainer().start() as kafka:
        host, _, port = kafka.get_bootstrap_server().rpartition(":")
        assert view_cluster(host, int(port)).broker_ids
        first = kafka.get_bootstrap_server()
        host, _, port = kafka.start().get_bootstrap_server().rpartition(":")
        assert view_cluster(host, int(port)).broker_ids
    assert first != f"{host}:{port}"
    for address in (first, f"{host}:{port}"):
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            view_cluster(host, int(port))


async def test_a_cluster_is_an_async_context_manager_too():
    """The event loop goes on while nodes start."""
    async with Cluster(1) as cluster:
        assert cluster.running_ids() == {1}
    assert cluster.running_ids() == set()


def test_nothing_is_imported_before_a_fixture_is_used():
    """Every user of raftlog pays for the plugin at each start of pytest."""
    script = (
        "import pytest, sys; before = set(sys.modules); import raftlog.testing.plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "['raftlog', 'raftlog.testing', 'raftlog.testing.plugin']"
