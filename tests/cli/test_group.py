"""`raftlog group …` where a group has members, or is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from raftlog.cli import exits, group_reset
from tests.cli.live import CommandLine, invoke
from tests.kit.waits import until

pytestmark = pytest.mark.slow


@pytest.fixture
def live(raftlog: CommandLine, ten: str) -> Iterator[str]:
    """A group with one static member that reads both partitions of a topic and has committed offset 4 of the first."""
    group = f"live-{ten}"
    settings = {"bootstrap.servers": raftlog.bootstrap, "group.id": group, "group.instance.id": "till-1"}
    member = Consumer({**settings, "auto.offset.reset": "earliest", "session.timeout.ms": 6000})
    member.subscribe([ten])
    while member.poll(0.1) is None:
        pass
    member.commit(offsets=[TopicPartition(ten, 1, 4)], asynchronous=False)
    yield group
    member.close()


def test_a_group_with_members_is_neither_moved_nor_deleted(raftlog: CommandLine, ten: str, live: str) -> None:
    """The error lists its members, and so does a plan."""
    found = json.loads(raftlog("group", "describe", live, "-J").stdout)
    assert [each["instance"] for each in found["members"]] == ["till-1"]
    assert "till-1" in raftlog("group", "describe", live).stdout
    reset = ("group", "reset", live, "-t", ten, "--to-latest")
    for refused in (raftlog(*reset, "--execute"), raftlog("group", "delete", live)):
        assert (refused.returncode, refused.stdout) == (exits.FAILED, "")
        assert "a member (till-1): stop them first; static ones are members until" in refused.stderr
    planned = raftlog(*reset)
    assert planned.returncode == 0 and f"but group {live} has a member" in planned.stderr


def test_settings_of_a_group_are_read_changed_and_forgotten_with_their_source(raftlog: CommandLine) -> None:
    """As for topics and brokers, even before the group exists."""
    session, whose = "consumer.session.timeout.ms", ("group", "to-come")

    def changed() -> list[tuple[str, str, str]]:
        rows = raftlog.rows("config", "get", *whose, "--changed")
        return [(row["name"], row["value"], row["source"]) for row in rows]

    ran = raftlog("config", "set", *whose, f"{session}=50000")
    assert (ran.returncode, ran.stdout) == (exits.OK, f"{session}=50000\n"), ran.stderr
    until(lambda: changed() == [(session, "50000", "group")], "whichever broker is asked knows")
    refused = raftlog("config", "set", *whose, f"{session}=1")
    assert refused.returncode == exits.FAILED and "must be from 45000" in refused.stderr
    assert raftlog("config", "unset", *whose, session).returncode == exits.OK
    until(lambda: changed() == [], "it is the default again")


def test_what_a_group_has_not_committed_is_shown_beside_what_it_has(
    raftlog: CommandLine, ten: str, live: str
) -> None:
    """An unknown lag is not a lag of zero."""
    assert raftlog.rows("group", "offsets", live) == [
        {"topic": ten, "partition": 0, "offset": None, "end": 0, "lag": None},
        {"topic": ten, "partition": 1, "offset": 4, "end": 10, "lag": 6},
    ]
    assert raftlog("group", "offsets", live).stdout.splitlines()[1].split() == [ten, "0", "-", "0", "-"]


def test_an_offset_beyond_the_end_is_the_end_and_said_to_be(raftlog: CommandLine, ten: str) -> None:
    """For a group that is yet to be, as well."""
    ran = raftlog("group", "reset", "new", "-t", f"{ten}:1", "--to-offset", "5000", "-o", "jsonl")
    assert ran.returncode == 0 and json.loads(ran.stdout)["new_offset"] == 10
    assert f"{ten} 1 has offsets 0 to 10, not 5000: 10 instead" in ran.stderr
    assert "there is no group new yet" in ran.stderr


@pytest.mark.parametrize("noun", ["group", "share-group"])
def test_no_offset_is_moved_beyond_all_ends(raftlog: CommandLine, ten: str, noun: str) -> None:
    """An offset that some partitions have is moved to the end of the others, with a line for each."""
    name = f"{noun}-{ten}"
    reset = (noun, "reset", name, "-t", ten, "--execute", "--to-offset")
    ran = raftlog(*reset, "11")
    assert (ran.returncode, ran.stdout) == (exits.FAILED, "")
    ends = f"{ten} 0 ends at 0, {ten} 1 ends at 10"
    assert ran.stderr == f"raftlog: --to-offset 11: {ends}; no offset was changed\n"
    ran = raftlog(*reset, "10")
    assert ran.returncode == exits.OK and f"{ten} 0 has offsets 0 to 0, not 10: 0 instead" in ran.stderr


def test_more_partitions_than_one_request_commits_are_reset(
    raftlog: CommandLine, ten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In as many requests as it takes, each partition in a single request."""
    monkeypatch.setattr(group_reset, "AT_ONCE", 1)
    ran = raftlog("group", "reset", f"many-{ten}", "-t", ten, "--to-latest", "--execute")
    assert ran.returncode == exits.OK, ran.stderr
    found = raftlog.rows("group", "offsets", f"many-{ten}")
    assert [(row["partition"], row["offset"]) for row in found] == [(0, 0), (1, 10)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "nobody"],
        ["offsets", "nobody"],
        ["reset", "nobody", "--all-topics", "--to-latest"],
        ["delete-offsets", "nobody", "-t", "nothing"],
    ],
)
def test_a_group_that_is_not_there_is_named_as_such(raftlog: CommandLine, arguments: list[str]) -> None:
    """In one line, by every verb."""
    ran = raftlog("group", *arguments)
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr == "raftlog: there is no group nobody\n"


def test_what_was_never_there_is_not_deleted(raftlog: CommandLine) -> None:
    """Also where its coordinator has only just begun, and says so at first."""
    ran = raftlog("group", "delete", "nobody", "no-one")
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr.count("there is no such group") == ran.stderr.count("\n") == 2


@pytest.mark.parametrize("verb", ["describe", "offsets", "delete", "delete-offsets", "reset"])
def test_an_empty_name_is_wrong_usage(verb: str) -> None:
    """Before any cluster is asked."""
    code, out, said = invoke("group", verb, "")
    assert (code, out) == (exits.USAGE, "") and "a name is empty" in said and said.count("\n") == 1
