"""`raftlog table run` at real nodes: every record is in the table once, whatever ends the process meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.tables import registry
from raftlog.testing.cluster import Cluster
from raftlog_chaos.compare.systems.system import Missing
from raftlog_chaos.conformance.brokers import SETTINGS, ShortLivedKafka, warm_up
from tests.cli.live import CommandLine
from tests.clients.nodes import run_checked
from tests.kit.waits import finished, until
from tests.tables.conftest import BACKENDS, Backend
from tests.tables.topics import assert_same, produce, produce_in_transactions, read_log

pytestmark = pytest.mark.tables

ROOT = Path(__file__).parents[2]


@pytest.fixture
def raftlog(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture
def orders(raftlog: CommandLine, topic: str) -> str:
    """An empty topic with three partitions."""
    assert raftlog("topic", "create", topic, "-p", "3").returncode == 0
    return topic


def _commits(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.taste
def test_a_table_has_every_record_byte_for_byte(
    raftlog: CommandLine, orders: str, backend: Backend, tmp_path: Path
):
    """Null, empty and binary keys, values and headers; aborted transactions are not in it. DuckDB counts the same."""
    servers = raftlog.bootstrap
    produce(servers, orders, 500)
    produce_in_transactions(servers, orders, 6)
    ran = raftlog(
        "table", "run", orders, "--to", str(tmp_path), "--format", backend.name, "--until-end", "-J"
    )
    assert ran.returncode == 0, ran.stderr
    (commit,) = _commits(ran.stdout)
    assert (commit["records"], commit["lag"]) == (515, 0), ran.stderr
    produce(servers, orders, 100)
    again = raftlog("table", "run", orders, "--to", str(tmp_path), "--format", backend.name, "--until-end")
    assert again.returncode == 0 and "100 records" in again.stdout and again.stdout.endswith("lag 0\n")
    where = str(tmp_path / orders)
    log = read_log(servers, orders)
    assert len(log) == 615
    assert_same(backend.read(where), log)
    ends = [max(each.offset for each in log if each.partition == partition) for partition in range(3)]
    assert backend.counts(where) == [
        (partition, counted, counted, 0, end)
        for partition, end in enumerate(ends)
        for counted in [sum(each.partition == partition for each in log)]
    ]


@pytest.mark.nightly
def test_apache_kafka_is_read_like_raftlog(backend: Backend, tmp_path: Path):
    """`raftlog table run` makes a table of a topic of Kafka 4.3, too, by what every broker answers."""
    kafka = ShortLivedKafka(tmp_path / "kafka", 1, SETTINGS | {"default.replication.factor": "1"})
    try:
        kafka.start()
    except Missing as missing:
        pytest.skip(f"{missing}: Kafka's jars come by Maven")
    try:
        servers = ",".join(kafka.servers())
        warm_up(kafka.servers())
        raftlog = CommandLine(servers)
        assert raftlog("topic", "create", "orders", "-p", "3").returncode == 0
        run = (
            "table",
            "run",
            "orders",
            "--to",
            str(tmp_path / "lake"),
            "--format",
            backend.name,
            "--until-end",
            "-J",
        )
        for count in (300, 100):
            produce(servers, "orders", count)
            ran = raftlog(*run)
            assert ran.returncode == 0, ran.stderr
            commits = _commits(ran.stdout)
            assert sum(each["records"] for each in commits) == count and commits[-1]["lag"] == 0
        produce_in_transactions(servers, "orders", 6)
        assert raftlog(*run).returncode == 0
        log = read_log(servers, "orders")
        assert len(log) == 415
        assert_same(backend.read(str(tmp_path / "lake" / "orders")), log)
    finally:
        kafka.close()


def test_nothing_new_is_no_commit(raftlog: CommandLine, orders: str, tmp_path: Path):
    """A restart takes the table over, and that is all. `describe` and the group show the lag."""
    produce(raftlog.bootstrap, orders, 30)
    for expected in (1, 0):
        ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end", "-J")
        assert len(_commits(ran.stdout)) == expected
    produce(raftlog.bootstrap, orders, 3)
    ran = raftlog("table", "describe", orders, "--to", str(tmp_path), "-J")
    assert [(each["topic"], each["lag"]) for each in json.loads(ran.stdout)] == [(orders, 1)] * 3
    ran = raftlog("group", "offsets", "raftlog-table", "-J")
    assert {each["lag"] for each in json.loads(ran.stdout) if each["topic"] == orders} == {1}


def test_new_partitions_are_read_from_their_first_record(raftlog: CommandLine, orders: str, tmp_path: Path):
    """A topic that grew is complete after the next run."""
    produce(raftlog.bootstrap, orders, 30)
    assert raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end").returncode == 0
    assert raftlog("topic", "add-partitions", orders, "-p", "5").returncode == 0
    produce(raftlog.bootstrap, orders, 50, partitions=5)
    ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end", "-J")
    (commit,) = _commits(ran.stdout)
    assert commit["records"] == 50 and len(commit["offsets"]) == 5


def test_new_partitions_are_complete_in_a_table_that_began_at_the_end(
    raftlog: CommandLine, orders: str, tmp_path: Path
):
    """Where the table begins is no place to begin in partitions that came later."""
    run = ["table", "run", orders, "--to", str(tmp_path), "--until-end", "--from", "end", "-J"]
    produce(raftlog.bootstrap, orders, 30)
    assert not _commits(raftlog(*run).stdout)
    assert raftlog("topic", "add-partitions", orders, "-p", "5").returncode == 0
    produce(raftlog.bootstrap, orders, 50, partitions=5)
    (commit,) = _commits(raftlog(*run).stdout)
    assert commit["records"] == 50 and commit["lag"] == 0


def test_a_new_partition_is_read_although_the_others_get_no_records(
    raftlog: CommandLine, orders: str, backend: Backend, tmp_path: Path
):
    """No commit looks at the topic then."""
    to = ["--to", str(tmp_path), "--format", backend.name]
    produce(raftlog.bootstrap, orders, 30)
    following = _start(raftlog, "table", "run", orders, *to, "--every", "0.1", "-J")
    try:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["records"] == 30
        assert raftlog("topic", "add-partitions", orders, "-p", "4").returncode == 0
        assert raftlog("produce", "-t", orders, "-p", "3", stdin=b"a\nb\n").returncode == 0
        table = backend.open(str(tmp_path / orders))
        until(lambda: table.load().offsets.get(3) == 2, "the table has them")
    finally:
        following.send_signal(signal.SIGTERM)
        finished(following)
    assert_same(backend.read(str(tmp_path / orders)), read_log(raftlog.bootstrap, orders))


def test_a_topic_that_was_created_again_is_refused(raftlog: CommandLine, orders: str, tmp_path: Path):
    """Its offsets mean other records."""
    produce(raftlog.bootstrap, orders, 30)
    assert raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end").returncode == 0
    assert raftlog("topic", "delete", orders).returncode == 0
    assert raftlog("topic", "create", orders, "-p", "3").returncode == 0
    ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end")
    assert ran.returncode == exits.FAILED and "the records of topic id" in ran.stderr


def test_records_that_were_deleted_before_they_were_read_are_named(
    raftlog: CommandLine, orders: str, tmp_path: Path
):
    """The command goes on behind them only with an option."""
    produce(raftlog.bootstrap, orders, 30)
    assert raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end").returncode == 0
    produce(raftlog.bootstrap, orders, 30)
    assert raftlog("topic", "trim", orders, "-p", "1", "--offset", "15").returncode == 0
    ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end")
    assert ran.returncode == exits.FAILED
    assert f"{orders} 1: records from offset 10 to 15 were deleted before they were read" in ran.stderr
    ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--until-end", "-J", "--skip-lost")
    (commit,) = _commits(ran.stdout)
    assert commit["records"] == 25


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "{to}", "--from", "never"], exits.USAGE, "--from never: must be"),
        (["--to", "{to}", "--format", "hudi"], exits.USAGE, "hudi"),
        ([], exits.USAGE, "--to"),
    ],
)
def test_wrong_usage_is_one_line(
    raftlog: CommandLine, orders: str, tmp_path: Path, arguments: list[str], code: int, said: str
):
    """It says what is allowed."""
    ran = raftlog("table", "run", orders, *(each.format(to=tmp_path) for each in arguments))
    assert (ran.returncode, ran.stderr.count("\n")) == (code, 1) and said in ran.stderr


def test_a_missing_topic_is_not_made(raftlog: CommandLine, tmp_path: Path):
    """Nor is its table."""
    ran = raftlog("table", "run", "no-such-topic", "--to", str(tmp_path))
    assert (ran.returncode, ran.stderr) == (exits.NOT_FOUND, "raftlog: there is no topic no-such-topic\n")
    assert not list(tmp_path.iterdir())


def test_a_registry_that_is_away_is_no_failure_of_the_table(
    raftlog: CommandLine, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has the exit code and the words that other commands have for it."""
    monkeypatch.setattr(registry, "ATTEMPTS", 1)
    ran = raftlog("table", "run", orders, "--to", str(tmp_path), "--registry", "http://127.0.0.1:1")
    assert (ran.returncode, ran.stderr.count("\n")) == (exits.UNREACHABLE, 1)
    assert ran.stderr.startswith("raftlog: no answer at http://127.0.0.1:1 (Connection refused); give the ")


def _start(
    raftlog: CommandLine, *arguments: str, program: tuple[str, ...] = ("-m", "raftlog")
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *program, *arguments, "-b", raftlog.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_sigterm_commits_what_was_read_and_the_next_run_goes_on(
    raftlog: CommandLine, orders: str, backend: Backend, tmp_path: Path
):
    """Exit code 0, as supervisors expect."""
    produce(raftlog.bootstrap, orders, 300)
    to = ["--to", str(tmp_path), "--format", backend.name]
    following = _start(raftlog, "table", "run", orders, *to, "--every", "3600")
    until(lambda: backend.open(str(tmp_path / orders)).load() is not None, "the table is made")
    following.send_signal(signal.SIGTERM)
    _out, err = finished(following)
    assert (following.returncode, err.count("stopping")) == (0, 1), err
    assert raftlog("table", "run", orders, *to, "--until-end").returncode == 0
    assert_same(backend.read(str(tmp_path / orders)), read_log(raftlog.bootstrap, orders))


def test_the_first_of_two_writers_stops_and_no_record_is_there_twice(
    raftlog: CommandLine, orders: str, backend: Backend, tmp_path: Path
):
    """The second takes the table over while records arrive."""
    to = ["--to", str(tmp_path), "--format", backend.name]
    produce(raftlog.bootstrap, orders, 100)
    first = _start(raftlog, "table", "run", orders, *to, "--every", "0.1", "-J")
    assert first.stdout is not None
    assert json.loads(first.stdout.readline())["records"] == 100
    produce(raftlog.bootstrap, orders, 100)
    second = _start(raftlog, "table", "run", orders, *to, "--every", "0.1", "-J")
    until(lambda: (backend.open(str(tmp_path / orders)).load()).epoch == 2, "the second took over")
    produce(raftlog.bootstrap, orders, 100)
    _out, err = finished(first)
    assert first.returncode == exits.FAILED and "another writer took the table over" in err
    second.send_signal(signal.SIGINT)
    finished(second)
    assert second.returncode == exits.INTERRUPTED
    assert raftlog("table", "run", orders, *to, "--until-end").returncode == 0
    assert_same(backend.read(str(tmp_path / orders)), read_log(raftlog.bootstrap, orders))


def test_a_process_killed_at_any_call_of_its_table_leaves_each_record_there_once(
    raftlog: CommandLine, orders: str, backend: Backend, tmp_path: Path
):
    """kill -9 after every call, and each time the same command again."""
    to = ["--to", str(tmp_path), "--format", backend.name, "--until-end", "--tidy-every", "1"]
    program = ("-m", "tests.tables.killed_writer")
    runs = _start(raftlog, "table", "run", orders, *to, program=program)
    codes = []
    while codes[-1:] != [0]:
        produce(raftlog.bootstrap, orders, 7)
        runs.stdin.write("\n")
        runs.stdin.flush()
        codes.append(int(runs.stdout.readline()))
    finished(runs)
    assert len(codes) > 6 and set(codes[:-1]) == {-signal.SIGKILL}
    assert raftlog("table", "run", orders, *to).returncode == 0
    assert_same(backend.read(str(tmp_path / orders)), read_log(raftlog.bootstrap, orders))


def test_killed_leaders_neither_lose_nor_double_rows(folder: Path, tmp_path: Path):
    """Leaders die in turn while records and transactions arrive and a writer follows them."""
    with run_checked(3, directory=folder) as cluster:
        raftlog = CommandLine(cluster.bootstrap_servers)
        cluster.create_topic("orders", partitions=3)
        following = _start(raftlog, "table", "run", "orders", "--to", str(tmp_path), "--every", "0.1", "-J")
        for partition in range(2):
            produce(cluster.bootstrap_servers, "orders", 50)
            produce_in_transactions(cluster.bootstrap_servers, "orders", 4)
            assert json.loads(following.stdout.readline())["topic"] == "orders"
            killed = cluster.kill_leader("orders", partition)
            produce(cluster.bootstrap_servers, "orders", 50)
            cluster.restart(killed)
            cluster.wait_until_healthy()
        following.send_signal(signal.SIGTERM)
        _out, err = finished(following)
        assert following.returncode == 0, err
        assert raftlog("table", "run", "orders", "--to", str(tmp_path), "--until-end").returncode == 0
        rows = BACKENDS["delta"].read(str(tmp_path / "orders"))
        log = read_log(cluster.bootstrap_servers, "orders")
        assert len(log) == 220
        assert_same(rows, log)


def test_a_log_that_was_truncated_and_grew_past_the_table_is_noticed(folder: Path, tmp_path: Path):
    """An unclean election loses ten records that the table has, while no writer runs."""
    run = ("table", "run", "orders", "--to", str(tmp_path), "--until-end", "-J")
    with run_checked(
        3, errors=lambda each: each["event"] == "unclean_leader_elected", directory=folder
    ) as cluster:
        raftlog = CommandLine(cluster.bootstrap_servers)
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        cluster.create_topic("orders", replication_factor=2, settings=settings)
        produce(cluster.bootstrap_servers, "orders", 10, partitions=1)
        leader = cluster.leader("orders")
        (follower,) = set(cluster.partitions("orders")[0].replicas) - {leader}
        cluster.kill(follower)
        produce(cluster.bootstrap_servers, "orders", 10, partitions=1)
        assert raftlog(*run).returncode == 0
        cluster.kill(leader)
        cluster.restart(follower, wait=False)
        assert cluster.leader("orders") == follower
        for count in (10, 5):  # as long as it was, and longer
            produce(cluster.bootstrap_servers, "orders", count, partitions=1)
            ran = raftlog(*run)
            said = "orders 0: it was read up to offset 20, and has other records from offset 10 on by now, or before"
            assert (ran.returncode, ran.stdout) == (exits.FAILED, "") and said in ran.stderr
        (commit,) = _commits(raftlog(*run, "--skip-lost").stdout)
        assert commit["records"] == 5
        assert raftlog(*run).returncode == 0


def test_a_table_that_is_older_than_tombstones_are_kept_is_said_to_be(
    raftlog: CommandLine, tmp_path: Path
) -> None:
    """When the command goes on, and not at its first run."""
    topic = "old-tombstones"
    kept = ("-c", "cleanup.policy=compact", "-c", "delete.retention.ms=0")
    assert raftlog("topic", "create", topic, "-p", "1", *kept).returncode == 0
    command = ("table", "run", topic, "--to", str(tmp_path), "--until-end", "-G", "")
    warning = "the position is older than delete.retention.ms (0) of this compacted topic"
    for number, is_old in enumerate((False, True)):
        assert raftlog("produce", "-q", "-t", topic, "-k", f"{number}", stdin=b"v\n").returncode == 0
        ran = raftlog(*command)
        assert (ran.returncode, warning in ran.stderr) == (0, is_old), ran.stderr
