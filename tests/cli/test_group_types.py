"""A command for one type of group names the other type, and the command for it."""

from __future__ import annotations

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine

pytestmark = pytest.mark.slow

FIRST = "auto.offset.reset=earliest"


@pytest.fixture
def share(raftlog: CommandLine, ten: str) -> str:
    group = f"share-{ten}"
    assert raftlog.rows("share-group", "reset", group, "-t", ten, "--to-earliest", "--execute")
    return group


@pytest.fixture
def consumer(raftlog: CommandLine, ten: str) -> str:
    group = f"consumer-{ten}"
    assert raftlog.rows("group", "reset", group, "-t", ten, "--to-earliest", "--execute")
    return group


@pytest.mark.parametrize(
    ("arguments", "verb"),
    [
        (("describe", "GROUP"), "describe"),
        (("offsets", "GROUP"), "describe"),
        (("reset", "GROUP", "-t", "TOPIC", "--to-latest"), "reset"),
        (("reset", "GROUP", "--all-topics", "--to-latest", "--execute"), "reset"),
        (("delete", "GROUP"), "delete"),
        (("delete-offsets", "GROUP", "-t", "TOPIC"), "delete-offsets"),
    ],
)
def test_a_share_group_is_no_consumer_group(
    raftlog: CommandLine, ten: str, share: str, arguments: tuple[str, ...], verb: str
) -> None:
    """The command shows, plans, deletes and moves no offset."""
    named = [{"GROUP": share, "TOPIC": ten}.get(each, each) for each in arguments]
    ran = raftlog("group", *named)
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr == f"raftlog: {share} is a share group: raftlog share-group {verb} {share}\n"
    assert raftlog("share-group", "describe", share).returncode == exits.OK


@pytest.mark.parametrize(
    ("arguments", "verb"),
    [
        (("describe", "GROUP"), "describe"),
        (("reset", "GROUP", "-t", "TOPIC", "--to-latest"), "reset"),
        (("delete", "GROUP"), "delete"),
        (("delete-offsets", "GROUP", "-t", "TOPIC"), "delete-offsets"),
    ],
)
def test_a_consumer_group_is_no_share_group(
    raftlog: CommandLine, ten: str, consumer: str, arguments: tuple[str, ...], verb: str
) -> None:
    """Also a group without members, which only has offsets."""
    named = [{"GROUP": consumer, "TOPIC": ten}.get(each, each) for each in arguments]
    ran = raftlog("share-group", *named)
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr == f"raftlog: {consumer} is a consumer group: raftlog group {verb} {consumer}\n"
    assert raftlog("group", "describe", consumer).returncode == exits.OK


def test_the_http_api_names_the_type_too(raftlog: CommandLine, ten: str, consumer: str) -> None:
    """`why` asks it."""
    ran = raftlog("share-group", "why", consumer, ten, "1", "0")
    assert ran.returncode == exits.NOT_FOUND
    assert f"{consumer} is a consumer group, and no share group" in ran.stderr


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_records_are_taken_by_the_command_of_the_groups_type(
    raftlog: CommandLine, ten: str, share: str, consumer: str, quiet: tuple[str, ...]
) -> None:
    """Without a word of a new group."""
    ran = raftlog("consume", "-G", share, "-e", *quiet, ten)
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr == f"raftlog: {share} is a share group: raftlog consume --share {share} {ten}\n"
    ran = raftlog("consume", "-t", ten, "-o", "stored", "-X", f"group.id={share}", "-X", FIRST, "-e", *quiet)
    assert ran.returncode == exits.NOT_FOUND, "its offsets cannot be committed"
    assert ran.stderr == f"raftlog: {share} is a share group: raftlog consume --share {share} {ten}\n"
    ran = raftlog("consume", "--share", consumer, "-e", *quiet, ten)
    assert (ran.returncode, ran.stdout) == (exits.NOT_FOUND, "")
    assert ran.stderr == f"raftlog: {consumer} is a consumer group: raftlog consume -G {consumer} {ten}\n"
