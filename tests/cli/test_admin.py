"""`raftlog partition`, `broker`, `quorum`, `group` and `cluster health` at a cluster that runs."""

from __future__ import annotations

import json

import pytest

from raftlog.base.types import decode_uuid
from raftlog.cli.rows import print_table
from tests.cli.live import CommandLine

pytestmark = pytest.mark.slow

FIRST = ("-G", "first", "-X", "fetch.wait.max.ms=10", "-o", "beginning")


def test_partitions_are_listed_and_chosen_by_their_state(raftlog: CommandLine, ten: str) -> None:
    """kafka-topics' --describe filters have verbs and the same long names."""
    rows = raftlog.rows("partition", "list", ten)
    assert [row["partition"] for row in rows] == [0, 1]
    assert raftlog.rows("partition", "list", ten, "--under-replicated-partitions") == []
    assert raftlog.rows("partition", "list", ten, "--unavailable") == []
    raftlog("topic", "alter", ten, "-c", "min.insync.replicas=3")
    assert raftlog.rows("partition", "list", ten, "--at-min-isr-partitions") == rows
    assert raftlog.rows("partition", "list", ten, "--under-min-isr") == []
    assert raftlog("partition", "list", "nowhere").returncode == 3


def test_offsets_are_those_of_the_log_and_of_a_time(raftlog: CommandLine, ten: str) -> None:
    """kafka-get-offsets."""
    assert raftlog.rows("partition", "offsets", ten) == [
        {"partition": 0, "beginning": 0, "end": 0, "offsets": 0},
        {"partition": 1, "beginning": 0, "end": 10, "offsets": 10},
    ]
    (past,) = raftlog.rows("partition", "offsets", ten, "-p", "1", "--time", "2020-01-01")
    (future,) = raftlog.rows("partition", "offsets", ten, "-p", "1", "--time", "2100-01-01T00:00:00Z")
    assert (past["at_time"], future["at_time"]) == (0, None)


def test_a_partition_is_described_with_its_bytes_on_each_broker(raftlog: CommandLine, ten: str) -> None:
    """Three brokers, three copies."""
    found = json.loads(raftlog("partition", "describe", ten, "1", "-J").stdout)
    assert (found["beginning"], found["end"], found["leader_epoch"]) == (0, 10, 0)
    assert sorted(found["bytes"]) == ["1", "2", "3"] and min(found["bytes"].values()) > 0
    refused = raftlog("partition", "describe", ten, "2")
    assert (refused.returncode, refused.stderr) == (
        3,
        f"raftlog: topic {ten} has no partition 2; its partitions are 0 to 1\n",
    )


def test_a_needless_election_is_no_failure(raftlog: CommandLine, ten: str) -> None:
    """Every partition is led by its first replica already."""
    ran = raftlog("partition", "elect", f"{ten}:0,1")
    assert (ran.returncode, ran.stdout) == (
        0,
        f"{ten} 0 is led as it should be\n{ten} 1 is led as it should be\n",
    )
    assert raftlog("partition", "elect", "--unclean").returncode == 2
    assert raftlog("partition", "elect", f"{ten}:x").returncode == 2


def test_a_partition_is_moved_waited_for_and_its_move_is_over(raftlog: CommandLine, ten: str) -> None:
    """kafka-reassign-partitions: to two brokers, with its records; a move that is over can't be cancelled."""
    ran = raftlog("partition", "reassign", f"{ten}:1", "--replicas", "2,3", "--wait")
    assert (ran.returncode, ran.stdout) == (0, f"{ten} 1 moves to 2,3\n"), ran.stderr
    assert raftlog("partition", "reassignments", "-J").stdout == "[]\n"
    assert raftlog.rows("partition", "list", ten)[1]["replicas"] == [2, 3]
    assert raftlog("consume", "-t", ten, "-e", "-X", "fetch.wait.max.ms=10").stdout.count("\n") == 10
    assert raftlog("partition", "reassign", f"{ten}:1", "--cancel").returncode == 3
    refused = raftlog("partition", "reassign", f"{ten}:1", "--replicas", "2,9")
    assert refused.returncode == 1
    assert refused.stderr == f"raftlog: {ten} 1: no broker is registered with id 9\n"


def test_a_throttled_move_is_held_back_while_it_lasts_and_no_longer(raftlog: CommandLine, ten: str) -> None:
    """kafka-reassign-partitions --throttle: the topic names the replicas, the brokers the rate."""

    def throttled() -> dict[str, object]:
        changed = [
            *raftlog.rows("config", "get", "topic", ten),
            *raftlog.rows("config", "get", "broker", "3"),
        ]
        return {
            row["name"]: row["value"]
            for row in changed
            if ".replication.throttled." in row["name"] and row["source"] != "default"
        }

    (before,) = [row["replicas"] for row in raftlog.rows("partition", "list", ten) if row["partition"] == 1]
    to = [each for each in before if each != before[-1]]
    ran = raftlog("partition", "reassign", f"{ten}:1", "-r", ",".join(map(str, to)), "--throttle", "10MB")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith(f"throttled until: raftlog partition unthrottle {ten}\n")
    assert throttled() == {
        "leader.replication.throttled.replicas": ",".join(f"1:{each}" for each in before),
        "leader.replication.throttled.rate": "10000000",
        "follower.replication.throttled.rate": "10000000",
    }
    back = (
        "partition",
        "reassign",
        f"{ten}:1",
        "-r",
        ",".join(map(str, before)),
        "--throttle",
        "1MB",
        "--wait",
    )
    ran = raftlog(*back)
    assert (ran.returncode, ran.stdout) == (0, f"{ten} 1 moves to {','.join(map(str, before))}\n"), ran.stderr
    assert throttled() == {}
    assert raftlog("partition", "unthrottle", ten).stdout == "no move is throttled\n"
    assert raftlog("partition", "unthrottle", "nowhere").returncode == 3


def test_the_settings_of_a_broker_fit_80_columns(
    raftlog: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as a terminal shows them."""
    print_table(raftlog.rows("broker", "configs", "2"), ("name", "source", "value"), width=80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("node.id  ") and line.endswith("  2") for line in lines)


def test_brokers_are_listed_and_described(raftlog: CommandLine, ten: str) -> None:
    """The brokers' addresses, their content, and their settings."""
    rows = raftlog.rows("broker", "list")
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert sum(row["controller"] for row in rows) == 1
    assert sum(row["leads"] for row in rows) == len(raftlog.rows("partition", "list"))
    assert raftlog("broker", "describe", "2").stdout.startswith("broker      2\n")
    configs = {row["name"]: row for row in raftlog.rows("broker", "configs", "2")}
    assert configs["node.id"]["value"] == "2"
    assert configs["raftlog.cluster.secret"]["value"] is None
    folders = raftlog.rows("broker", "log-dirs")
    assert {row["broker"] for row in folders} == {1, 2, 3} and all(row["free"] > 0 for row in folders)
    assert not any(row["cordoned"] for row in folders)
    assert (
        raftlog("broker", "describe", "9").stderr
        == "raftlog: there is no broker 9; the brokers are 1, 2, 3\n"
    )
    unknown = raftlog("broker", "unregister", "9")
    assert (unknown.returncode, unknown.stderr) == (3, "raftlog: broker 9 is not registered\n")


def test_a_cordoned_broker_gets_no_new_replicas(raftlog: CommandLine) -> None:
    """Its folders are named by log-dirs, and it keeps its replicas."""
    wrong = raftlog("broker", "cordon", "2", "/elsewhere")
    assert wrong.returncode == 3 and "has no folder /elsewhere" in wrong.stderr
    assert raftlog("broker", "cordon", "2").stdout == "broker 2 gets no new replicas\n"
    try:
        rows = raftlog.rows("broker", "log-dirs")
        assert [row["broker"] for row in rows if row["cordoned"]] == [2]
        refused = raftlog("topic", "create", "cordoned", "-r", "3")
        assert refused.returncode and "all log directories of broker 2 are cordoned" in refused.stderr
    finally:
        undone = raftlog("broker", "cordon", "2", "--undo")
    assert undone.stdout == "broker 2 gets new replicas\n"
    configs = {row["name"]: row for row in raftlog.rows("broker", "configs", "2")}
    assert (configs["cordoned.log.dirs"]["value"], configs["cordoned.log.dirs"]["source"]) == ("", "default")


def test_the_quorum_shows_its_leader_and_how_far_each_voter_is(raftlog: CommandLine) -> None:
    """kafka-metadata-quorum describe --status, --replication."""
    status = json.loads(raftlog("quorum", "status", "-J").stdout)
    assert status["leader"] in (1, 2, 3) and status["voters"] == [1, 2, 3] and status["observers"] == []
    rows = raftlog.rows("quorum", "replication")
    assert [row["status"] for row in rows if row["node"] == status["leader"]] == ["leader"]
    assert len({decode_uuid(row["directory_id"]) for row in rows}) == len(rows), (
        "each has a directory of its own"
    )


def test_a_cluster_that_lacks_nothing_is_green(raftlog: CommandLine) -> None:
    """Exit code 0; and -w -e ends as soon as it is so."""
    health = raftlog("cluster", "health")
    assert (health.returncode, health.stdout.splitlines()[0]) == (0, "green")
    watched = raftlog("cluster", "health", "-w", "-e", "-o", "json")
    assert (watched.returncode, json.loads(watched.stdout)["status"]) == (0, "green")


def test_a_partition_that_its_leader_serves_is_not_listed_as_too_few_in_sync(
    raftlog: CommandLine, name: str
) -> None:
    """With one replica there cannot be two in sync, and acks=all is taken: the brokers' rule, not a comparison."""
    made = raftlog("topic", "create", name, "-p", "1", "-r", "1", "--config", "min.insync.replicas=2")
    assert made.returncode == 0, made.stderr
    assert raftlog("produce", "-t", name, "-X", "acks=all", stdin=b"x\n").returncode == 0
    assert raftlog.rows("partition", "list", name, "--under-min-isr") == []
    (at,) = raftlog.rows("partition", "list", name, "--at-min-isr")
    assert at["topic"] == name
    assert raftlog("cluster", "health").stdout.startswith("green\n")
    assert raftlog("topic", "delete", name).returncode == 0, (
        "other tests drain the only broker that can lead it"
    )


def test_a_groups_offsets_are_shown_planned_and_moved(raftlog: CommandLine, ten: str) -> None:
    """Without --execute the offsets stay; the new offset is always within the log."""
    group = f"group-{ten}"
    assert raftlog("consume", "-G", group, *FIRST[2:], "-c", "4", ten).returncode == 0
    (row,) = [row for row in raftlog.rows("group", "offsets", group) if row["partition"] == 1]
    assert (row["offset"], row["end"], row["lag"]) == (4, 10, 6)

    def reset(*rule: str) -> object:
        (row,) = raftlog.rows("group", "reset", group, "-t", f"{ten}:1", *rule)
        return row["new_offset"]

    assert reset("--to-earliest") == 0 and reset("--to-latest") == 10 and reset("--to-current") == 4
    assert reset("--to-offset", "7") == 7 and reset("--to-offset", "99") == 10
    assert reset("--shift-by", "-3") == 1 and reset("--shift-by", "-9") == 0
    assert reset("--to-datetime", "2020-01-01T00:00:00Z") == 0 and reset("--by-duration", "PT0S") == 10
    assert reset("--to-current") == 4
    planned = raftlog("group", "reset", group, "--all-topics", "--to-earliest")
    assert "no offset was changed" in planned.stderr
    assert raftlog("group", "reset", group, "-t", f"{ten}:1", "--to-offset", "8", "--execute").stderr == ""
    assert reset("--to-current") == 8
    assert raftlog("consume", "-G", group, *FIRST[2:4], "-e", ten).stdout == "8\n9\n"


def test_groups_are_listed_and_described(raftlog: CommandLine, ten: str) -> None:
    """A missing group is distinguished from a group without members."""
    group = f"group-{ten}"
    raftlog("consume", "-G", group, *FIRST[2:], "-c", "1", ten)
    assert group in [row["group"] for row in raftlog.rows("group", "list")]
    found = json.loads(raftlog("group", "describe", group, "-J").stdout)
    assert (found["state"], found["members"]) == ("empty", [])
    for verb in ("describe", "offsets"):
        refused = raftlog("group", verb, "nobody")
        assert (refused.returncode, refused.stderr) == (3, "raftlog: there is no group nobody\n")


def test_groups_and_their_offsets_are_deleted(raftlog: CommandLine, ten: str) -> None:
    """kafka-consumer-groups' --delete and --delete-offsets; missing groups are reported."""
    group = f"group-{ten}"
    raftlog("consume", "-G", group, *FIRST[2:], "-c", "1", ten)
    ran = raftlog("group", "delete-offsets", group, "-t", f"{ten}:1")
    assert (ran.returncode, ran.stdout) == (0, f"{group} {ten} 1 forgotten\n")
    assert 1 not in [row["partition"] for row in raftlog.rows("group", "offsets", group) if row["offset"]]
    ran = raftlog("group", "delete", group)
    assert (ran.returncode, ran.stdout) == (0, f"{group} deleted\n")
    ran = raftlog("group", "delete", group)
    assert ran.returncode != 0
    assert ran.stderr.startswith(f"raftlog: {group}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "reset", "g", "--to-earliest"],
        ["group", "reset", "g", "--all-topics"],
        ["group", "reset", "g", "--all-topics", "--to-earliest", "--to-latest"],
        ["group", "reset", "g", "--all-topics", "-t", "x", "--to-earliest"],
        ["group", "delete-offsets", "g"],
        ["partition", "reassign", "t:0"],
        ["partition", "reassign", "t:0", "-r", "one"],
        ["partition", "reassign", "t:0", "-r", "1", "--throttle", "fast"],
        ["partition", "reassign", "t:0", "--cancel", "--throttle", "1MB"],
        ["quorum", "status", "-X", "linger.ms=1"],
        ["consume"],
        ["consume", "-t", "t", "-o", "soon"],
        ["consume", "-t", "t", "-o", "stored"],
        ["consume", "-t", "t", "-f", "%y"],
        ["consume", "-G", "g", "-t", "t", "-p", "1"],
        ["produce", "-t", "t", "-z", "zip"],
        ["produce", "-t", "t", "--acks", "2"],
        ["produce", "-t", "t", "-D", ""],
        ["produce", "-t", "t", "-l"],
        ["produce", "-t", "t", "-F", "no-such-file"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2_before_the_cluster_is_asked(
    raftlog: CommandLine, arguments: list[str]
) -> None:
    """It says what would be right."""
    ran = raftlog(*arguments)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("raftlog: ") and ran.stderr.count("\n") == 1 and ran.stdout == ""
