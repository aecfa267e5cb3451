"""`raftlog share-group …`: lists, describes, resets and deletes share groups."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Message, ShareConsumer

from raftlog.cli import exits
from tests.cli.live import CommandLine, invoke
from tests.kit.waits import until

pytestmark = pytest.mark.slow


def start_offsets(raftlog: CommandLine, group: str) -> dict[int, int]:
    found = json.loads(raftlog("share-group", "describe", group, "-J").stdout)
    return {each["partition"]: each["start_offset"] for each in found["offsets"]}


def test_a_share_group_is_reset_described_and_deleted(raftlog: CommandLine, ten: str) -> None:
    """The first reset makes it. Offsets change only with --execute."""
    group = f"share-{ten}"
    reset = ("share-group", "reset", group, "-t", ten)
    planned = raftlog(*reset, "--to-earliest")
    assert planned.returncode == exits.OK
    assert f"there is no share group {group} yet; no offset was changed" in planned.stderr
    rows = raftlog.rows(*reset, "--to-offset", "1", "--execute")
    assert {row["new_offset"] for row in rows} <= {0, 1}
    expected = {row["partition"]: row["new_offset"] for row in rows}
    assert start_offsets(raftlog, group) == expected
    assert (group, "empty") in [(row["group"], row["state"]) for row in raftlog.rows("share-group", "list")]
    letters = "errors.deadletterqueue.topic.name"
    assert raftlog("config", "set", "group", group, f"{letters}=dlq.{ten}").returncode == exits.OK
    assert json.loads(raftlog("share-group", "describe", group, "-J").stdout)["dead_letters"] == f"dlq.{ten}"
    shown = raftlog("share-group", "describe", group)
    assert shown.returncode == exits.OK and "start offset" in shown.stdout
    moved = raftlog.rows("share-group", "reset", group, "--all-topics", "--to-earliest", "--execute")
    assert [row["new_offset"] for row in moved] == [0] * len(expected)
    forgotten = raftlog("share-group", "delete-offsets", group, "-t", ten)
    assert (forgotten.returncode, forgotten.stdout) == (exits.OK, f"{group} {ten} forgotten\n")
    assert start_offsets(raftlog, group) == {}
    assert raftlog("share-group", "delete-offsets", group, "-t", ten).returncode == exits.NOT_FOUND
    assert raftlog("share-group", "delete", group).stdout == f"{group} deleted\n"
    assert group not in [row["group"] for row in raftlog.rows("share-group", "list")]


def test_a_share_group_with_members_is_neither_moved_nor_deleted(raftlog: CommandLine, ten: str) -> None:
    """The error names the member."""
    group = f"live-share-{ten}"
    member = ShareConsumer({"bootstrap.servers": raftlog.bootstrap, "group.id": group})
    member.subscribe([ten])
    try:

        def joined() -> bool:
            member.poll(0.1)
            return group in [row["group"] for row in raftlog.rows("share-group", "list")]

        until(joined, "the member is in the group")
        found = json.loads(raftlog("share-group", "describe", group, "-J").stdout)
        (it,) = found["members"]
        assert found["state"] == "stable"
        for verb in (
            ("reset", group, "-t", ten, "--to-earliest", "--execute"),
            ("delete", group),
            ("delete-offsets", group, "-t", ten),
        ):
            refused = raftlog("share-group", *verb)
            assert (refused.returncode, refused.stdout) == (exits.FAILED, "")
            assert f"has a member ({it['member']}): stop them first" in refused.stderr
    finally:
        member.close()


def test_the_deliveries_of_a_record_are_shown(raftlog: CommandLine, ten: str) -> None:
    """To whom each went, and how it ended. A record that is not there is named."""
    group = f"why-{ten}"
    assert raftlog.rows("share-group", "reset", group, "-t", ten, "--to-earliest", "--execute")
    assert raftlog("consume", "--share", group, "-e", ten).returncode == exits.OK
    shown = raftlog("share-group", "why", group, ten, "1", "0")
    assert shown.returncode == exits.OK, shown.stderr
    assert "Offset 0" in shown.stdout and "delivery 1, to " in shown.stdout
    found = json.loads(raftlog("share-group", "why", group, ten, "1", "0", "-J").stdout)
    assert [each["what"] for each in found["events"]] == [["accepted"], ["delivered"]]
    missing = raftlog("share-group", "why", group, ten, "99", "0")
    assert (missing.returncode, missing.stdout) == (exits.NOT_FOUND, "")
    late = raftlog("share-group", "why", group, ten, "1", "99999")
    assert (late.returncode, late.stdout) == (exits.NOT_FOUND, "")
    assert f"partition {ten}-1 has no record 99999: it ends at offset " in late.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "none"),
        ("delete", "none"),
        ("delete-offsets", "none", "-t", "t"),
        ("why", "none", "t", "0", "0"),
        ("release", "none", "t:0"),
        ("archive", "none", "t:0"),
    ],
    ids=lambda words: words[0],
)
def test_a_share_group_that_is_not_there_is_named_as_such(
    raftlog: CommandLine, arguments: tuple[str, ...]
) -> None:
    """In one line, by every verb."""
    refused = raftlog("share-group", *arguments)
    assert refused.returncode == exits.NOT_FOUND
    assert "there is no share group none" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", ""),
        ("reset", "g", "-t", "t"),
        ("reset", "g", "--to-earliest"),
        ("reset", "g", "-t", "t", "--all-topics", "--to-latest"),
        ("delete-offsets", "g"),
        ("delete-offsets", "g", "-t", "t:0"),
    ],
)
def test_wrong_usage_is_said_to_be(arguments: tuple[str, ...]) -> None:
    """Before any cluster is asked."""
    code, out, said = invoke("share-group", *arguments)
    assert (code, out) == (exits.USAGE, "") and said.count("\n") == 1


def test_records_of_a_share_group_are_released_and_archived_by_hand(raftlog: CommandLine, ten: str) -> None:
    """What a member holds goes back, or is never delivered again; text that names no partition is refused."""
    group = f"hand-{ten}"
    raftlog.rows("share-group", "reset", group, "-t", ten, "--to-earliest", "--execute")
    member = ShareConsumer({"bootstrap.servers": raftlog.bootstrap, "group.id": group})
    member.subscribe([ten])
    held: list[Message] = []
    try:
        until(lambda: held.extend(member.poll(0.5)) or held, "the member has records")
        first = held[0]
        records = f"{ten}:{first.partition()}"

        def by_hand(action: str, what: str) -> dict[str, int]:
            found = json.loads(raftlog("share-group", action, group, what, "-J").stdout)
            return {name: found[name] for name in ("released", "archived", "available") if found[name]}

        assert by_hand("release", f"{records}:{first.offset()}") == {"released": 1}
        assert by_hand("release", f"{records}:{first.offset()}-{first.offset()}") == {"available": 1}
        assert by_hand("archive", f"{records}:{first.offset()}") == {"archived": 1}
        assert by_hand("archive", records)["archived"] == sum(
            each.partition() == first.partition() for each in held[1:]
        )
        assert "not fetched" in raftlog("share-group", "release", group, records).stdout
    finally:
        member.close()
    for text in (ten, f"{ten}:x", f"{ten}:0:5-", f"{ten}:0:-5", ":0"):
        assert raftlog("share-group", "archive", group, text).returncode == exits.USAGE
    assert raftlog("share-group", "archive", group, f"{ten}:0:5-4").returncode == exits.FAILED
    assert raftlog("share-group", "archive", group, f"{ten}:99").returncode == exits.NOT_FOUND
