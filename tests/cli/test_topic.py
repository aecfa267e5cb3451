"""`raftlog topic`, `cluster describe` and `config` at a cluster that runs."""

from __future__ import annotations

import json

import pytest

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.cli import exits
from tests.cli.live import CommandLine, invoke
from tests.kit.waits import until

pytestmark = pytest.mark.slow


def test_a_topic_is_created_listed_described_grown_and_deleted(raftlog: CommandLine, name: str) -> None:
    """The life of a topic; each step sees the previous step."""
    made = raftlog(
        "topic", "create", name, "-p", "2", "--replication-factor", "3", "-c", "retention.ms=60000"
    )
    assert (made.returncode, made.stdout) == (0, f"{name} created\n"), made.stderr
    listed = {"topic": name, "partitions": 2, "replication_factor": 3}
    raftlog.rows_once(lambda rows: listed in rows, "topic", "list")
    assert not {each["topic"] for each in raftlog.rows("topic", "list")} & INTERNAL_TOPICS
    assert listed in raftlog.rows("topic", "list", "--internal")
    assert raftlog("topic", "add-partitions", name, "--num", "1").stdout == f"{name} has 3 partitions\n"
    described = [(number, [1, 2, 3]) for number in range(3)]
    raftlog.rows_once(
        lambda rows: [(each["partition"], sorted(each["isr"])) for each in rows] == described,
        *("topic", "describe", name),
    )
    head = f"{name}  partitions 3  replication factor 3\n  retention.ms=60000\n\npartition"
    until(lambda: raftlog("topic", "describe", name).stdout.startswith(head), "it is shown to people too")
    assert {each["topic"] for each in raftlog.rows("topic", "describe", name)} == {name}
    assert raftlog("topic", "create", name).stderr == f"raftlog: topic {name} exists already\n"
    assert raftlog("topic", "delete", name).stdout == f"{name} deleted\n"
    until(lambda: raftlog("topic", "describe", name).returncode == 3, "it is gone")
    for words in (("delete",), ("describe",), ("add-partitions", "-n", "1")):
        assert raftlog("topic", *words, name).stderr == f"raftlog: there is no topic {name}\n"


def test_a_topic_with_the_prefix_of_internal_topics_is_listed(raftlog: CommandLine, name: str) -> None:
    """Only the cluster's own topics are internal, as Metadata says; the prefix is free for users."""
    mine = f"__{name}"
    assert raftlog("topic", "create", mine).returncode == 0
    raftlog.rows_once(lambda rows: mine in {each["topic"] for each in rows}, "topic", "list")
    assert raftlog("topic", "delete", mine).returncode == 0


def test_asking_for_a_topic_does_not_create_it(raftlog: CommandLine, name: str) -> None:
    """librdkafka's metadata request for one name creates it where auto.create.topics.enable is on."""
    assert raftlog("topic", "describe", name).stderr == f"raftlog: there is no topic {name}\n"
    assert raftlog("consume", "-t", name, "-e").returncode == 3
    assert name not in [row["topic"] for row in raftlog.rows("topic", "list")]


def test_a_topic_that_produce_creates_is_announced_and_no_input_creates_none(
    raftlog: CommandLine, name: str
) -> None:
    """A misspelt name would otherwise be a new topic in silence."""
    empty = raftlog("produce", "-t", name, stdin=b"")
    said = f"topic {name} does not exist, and no record came to create it\n"
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", said)
    assert raftlog("produce", "-q", "-t", name, stdin=b"").stderr == ""
    assert name not in [row["topic"] for row in raftlog.rows("topic", "list")]
    refused = raftlog("produce", "-t", name, "-p", "99", stdin=b"a\n")
    assert refused.returncode == exits.NOT_FOUND and "has no partition 99" in refused.stderr
    assert name not in [row["topic"] for row in raftlog.rows("topic", "list")]
    first = raftlog("produce", "-t", name, "-p", "0", stdin=b"a\n")
    count = len(raftlog.rows("topic", "describe", name))
    many = "1 partition" if count == 1 else f"{count} partitions"
    assert (first.returncode, first.stderr) == (0, f"topic {name} is new, with {many}\n")
    assert raftlog("produce", "-t", name, stdin=b"b\n").stderr == ""


def test_settings_are_read_changed_and_forgotten_with_their_source(raftlog: CommandLine, name: str) -> None:
    """`topic alter` and `config` are two ways to the same."""
    raftlog("topic", "create", name)
    assert raftlog("topic", "alter", name, "-c", "retention.ms=5000").stdout == "retention.ms=5000\n"
    raftlog.rows_once(
        lambda rows: [(each["value"], each["source"]) for each in rows] == [("5000", "topic")],
        *("config", "get", "topic", name, "retention.ms"),
    )
    assert raftlog("config", "set", "topic", name, "segment.bytes=1048576").returncode == 0
    raftlog.rows_once(
        lambda rows: {"retention.ms", "segment.bytes"} <= {each["name"] for each in rows},
        *("config", "get", "topic", name, "--changed"),
    )
    assert raftlog("config", "unset", "topic", name, "segment.bytes", "retention.ms").returncode == 0
    raftlog.rows_once(
        lambda rows: [each["source"] for each in rows] == ["default"],
        *("config", "get", "topic", name, "retention.ms"),
    )


def test_a_change_that_is_refused_changes_nothing(raftlog: CommandLine, name: str) -> None:
    """All or none, and the setting is named."""
    raftlog("topic", "create", name)
    refused = raftlog("topic", "alter", name, "-c", "retention.ms=5000", "-c", "segment.bytes=nonsense")
    assert refused.returncode == 1 and "segment.bytes" in refused.stderr
    assert refused.stderr.count("\n") == 1 and refused.stdout == ""
    (row,) = raftlog.rows_once(len, "config", "get", "topic", name, "retention.ms")
    assert row["source"] == "default"


def test_record_without_a_key_is_refused_by_a_compacted_topic_with_what_to_do(
    raftlog: CommandLine, name: str
) -> None:
    """librdkafka reports neither the record nor the reason."""
    raftlog("topic", "create", name, "-c", "cleanup.policy=compact")
    refused = raftlog("produce", "-t", name, stdin=b"no key\n")
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "a compacted topic accepts only records with a key: set one with -k, or split lines with -K\n"
    )
    assert raftlog("produce", "-t", name, "-K", ":", stdin=b"k:v\n").returncode == 0


def test_trimming_moves_the_beginning_and_only_that(raftlog: CommandLine, name: str) -> None:
    """Records before the offset are gone, those after it stay."""
    raftlog("topic", "create", name, "-p", "1")
    raftlog("produce", "-t", name, stdin=b"zero\none\ntwo\n")
    assert raftlog("topic", "trim", name, "--offset", "2").stdout == f"{name} 0 begins at 2\n"
    assert raftlog("consume", "-t", name, "-e").stdout == "two\n"
    outside = raftlog("topic", "trim", name, "--offset", "9")
    assert outside.returncode == 1 and outside.stderr.startswith(f"raftlog: {name} 0: ")


def test_a_name_in_a_refusal_is_fit_for_a_terminal(raftlog: CommandLine) -> None:
    """A line break in it would begin a line that another command seems to print."""
    for words in ("create", "delete"):
        assert raftlog("topic", words, "a\nraftlog: done").stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (4, ["topic", "create", "there"]),
        (0, ["topic", "create", "there", "--if-not-exists"]),
        (0, ["topic", "delete", "nowhere", "--if-exists"]),
        (3, ["topic", "delete", "nowhere"]),
        (3, ["topic", "add-partitions", "nowhere", "-n", "1"]),
        (3, ["config", "get", "topic", "there", "no.such.setting"]),
        (2, ["topic", "alter", "there"]),
        (2, ["topic", "add-partitions", "there"]),
        (2, ["topic", "trim", "there", "--offset", "x"]),
        (1, ["topic", "create", "wide", "--replicas", "9"]),
    ],
)
def test_each_outcome_has_its_exit_code_and_at_most_one_line(
    raftlog: CommandLine, code: int, arguments: list[str]
) -> None:
    """Scripts distinguish them; people read one sentence."""
    raftlog("topic", "create", "there", "--if-not-exists")
    ran = raftlog(*arguments)
    assert ran.returncode == code, ran.stderr
    assert ran.stderr.count("\n") == (1 if code else 0)
    assert not code or ran.stderr.startswith("raftlog: ")


def test_a_dry_run_creates_nothing(raftlog: CommandLine, name: str) -> None:
    """--dry-run has the cluster check it, and that is all."""
    assert raftlog("topic", "create", name, "--dry-run").stdout == f"{name} could be created\n"
    assert raftlog("topic", "create", name, "--dry-run", "-r", "9").returncode == 1
    assert name not in [row["topic"] for row in raftlog.rows("topic", "list")]


def test_the_cluster_is_described_with_its_brokers(raftlog: CommandLine) -> None:
    """One object; the table says the same."""
    found = json.loads(raftlog("cluster", "describe", "--json").stdout)
    assert found["brokers"] == 3 and found["without_a_leader"] == 0
    assert [node["broker"] for node in found["nodes"]] == [1, 2, 3]
    assert found["controller"] in (1, 2, 3)
    status = json.loads(raftlog("status", "--json").stdout)
    for each in ("topics", "partitions", "internal_partitions"):
        assert found[each] == status[each], each
    assert found["cluster"] in raftlog("cluster", "describe").stdout


def test_tables_fit_a_terminal_of_80_columns(raftlog: CommandLine, name: str) -> None:
    """The most frequent listing is read without wrapping."""
    raftlog("topic", "create", name, "-p", "6")
    for arguments in (["topic", "list"], ["topic", "describe", name], ["cluster", "describe"]):
        assert max(map(len, raftlog(*arguments).stdout.splitlines())) <= 80


def test_a_file_names_the_cluster_unless_the_line_does(raftlog: CommandLine, tmp_path) -> None:
    """-F < -b, for both client libraries; and a file that is not there is named."""
    (tmp_path / "right").write_text(f"bootstrap.servers={raftlog.bootstrap}\n")
    (tmp_path / "wrong").write_text("bootstrap.servers=127.0.0.1:1\n")
    for verb in (["topic", "list"], ["quorum", "status"]):
        assert invoke(*verb, "-F", str(tmp_path / "right"))[0] == 0
        assert raftlog(*verb, "-F", str(tmp_path / "wrong")).returncode == 0
        code, _, err = invoke(*verb, "-F", str(tmp_path / "wrong"), "--timeout", "1")
        assert code == 6 and "127.0.0.1:1" in err
        assert invoke(*verb, "-F", str(tmp_path / "none"))[0] == 2
