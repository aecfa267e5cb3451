"""`raftlog consume --share`: records of a share group, accepted, given back or rejected."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from tests.cli.live import CommandLine, invoke
from tests.cli.test_end_signals import running
from tests.client.test_share_fetching import Leader, batch
from tests.kit.waits import ended


@pytest.fixture
def queue(raftlog: CommandLine, ten: str) -> str:
    """A share group that begins with the ten records of a topic of the same name."""
    reset = raftlog("share-group", "reset", ten, "-t", ten, "--to-earliest", "--execute")
    assert reset.returncode == exits.OK, reset.stderr
    return ten


def lines(raftlog: CommandLine, queue: str, *arguments: str) -> list[str]:
    """Return what a member prints until the queue has no more."""
    ran = raftlog("consume", "--share", queue, "-e", *arguments, queue)
    assert (ran.returncode, ran.stderr) == (exits.OK, "")
    return ran.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_accepted_records_are_printed_once(raftlog: CommandLine, queue: str) -> None:
    """The second member finds the rest, the third none; -c takes no more than it prints."""
    assert lines(raftlog, queue, "-c", "4") == ["0", "1", "2", "3"]
    envelopes = [json.loads(each) for each in lines(raftlog, queue, "-J")]
    assert [(each["payload"], each["delivery_count"]) for each in envelopes] == [
        (str(number), 1) for number in range(4, 10)
    ]
    assert lines(raftlog, queue) == []
    described = json.loads(raftlog("share-group", "describe", queue, "-J").stdout)
    assert (described["state"], described["members"]) == ("empty", [])


@pytest.mark.slow
def test_released_records_come_again_and_rejected_records_do_not(raftlog: CommandLine, queue: str) -> None:
    """A member that gives all back prints each record once, and the delivery count grows."""
    every = [str(number) for number in range(10)]
    form = ("-f", "%s %d\\n")
    assert lines(raftlog, queue, "--ack", "release", *form) == [f"{each} 1" for each in every]
    assert lines(raftlog, queue, "--ack", "reject", "-c", "1", *form) == ["0 2"]
    assert lines(raftlog, queue, *form) == [f"{each} 2" for each in every[1:]]


@pytest.mark.slow
def test_an_ended_member_gives_back_what_it_holds_at_once(raftlog: CommandLine, queue: str) -> None:
    """Long before its locks expire; its exit code is that of an interrupt."""
    taking = ("consume", "--share", queue, "--ack", "release", "-c", "11", "-u", "-f", "%s\\n", queue)
    with running(raftlog, *taking) as member:
        assert member.stdout is not None
        assert [member.stdout.readline() for _ in range(10)] == [b"%d\n" % number for number in range(10)]
        assert lines(raftlog, queue) == []
        member.send_signal(signal.SIGTERM)
        assert ended(member) == exits.INTERRUPTED
    assert lines(raftlog, queue, "-f", "%s %d\\n") == [f"{number} 2" for number in range(10)]


@pytest.mark.slow
def test_a_new_group_is_said_to_begin_at_the_end(raftlog: CommandLine, ten: str) -> None:
    """The command would look stuck; the message names what begins earlier. A config of the group may say so."""
    ran = raftlog("consume", "--share", f"new-{ten}", "-e", ten)
    assert (ran.returncode, ran.stdout) == (exits.OK, "")
    assert f"raftlog share-group reset new-{ten} -t {ten} --to-earliest --execute" in ran.stderr
    assert raftlog("consume", "--share", f"new-{ten}", "-e", ten).stderr == ""
    raftlog("config", "set", "group", f"first-{ten}", "share.auto.offset.reset=earliest")
    ran = raftlog("consume", "--share", f"first-{ten}", "-c", "10", ten)
    assert ran.stdout.count("\n") == 10
    assert ran.stderr == (
        f"share group first-{ten} is new: it begins at the beginning (share.auto.offset.reset=earliest)\n"
    )


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_named(raftlog: CommandLine) -> None:
    """A group would wait for it."""
    ran = raftlog("consume", "--share", "work", "-e", "no-such-topic")
    assert (ran.returncode, ran.stderr) == (exits.NOT_FOUND, "raftlog: there is no topic no-such-topic\n")


class Expired(Leader):
    """Delivers its record again with each ShareFetch, as if the lock was over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lock_ms = 0

    def _respond_to(self, api_key: int, version: int, request: Any) -> Any:
        if api_key == ApiKey.SHARE_GROUP_DESCRIBE:
            make = response_builders(api_key, version)
            groups = (make.DescribedGroup(group_id="work", group_state="Empty", members=()),)
            return make.ShareGroupDescribeResponse(groups=groups)
        if api_key == ApiKey.SHARE_FETCH:
            self.records, self.spans = batch(b"0"), [(0, 0, 1 + len(self.epochs))]
        return super()._respond_to(api_key, version, request)


def test_what_is_held_until_the_end_is_given_back_before_its_lock_is_over() -> None:
    """Otherwise the command takes its own records again, until their deliveries are used up."""
    with Expired() as leader:
        asked = ("--share", "work", "--ack", "release", "-c", "3", "-q", "-f", "%s %d\\n")
        code, out, said = invoke("consume", "-b", f"{leader.host}:{leader.port}", *asked, "t")
        assert (code, out) == (exits.OK, "0 1\n")
        assert said == "raftlog: the lock's duration is over: what is held is given back\n"
        assert (leader.epochs, leader.acks) == ([0, -1], [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--share", ""), "the group's id is empty"),
        (("--share", "g", "-G", "g"), "cannot be combined"),
        (("--share", "g", "-p", "0"), "cannot be combined"),
        (("--share", "g", "-o", "end"), "the group's configs"),
        (("--share", "g", "--isolation-level", "read_committed"), "the group's configs"),
        (("--share", "g", "--ack", "renew"), "accept, release, reject"),
        (("--share", "g", "-X", "auto.offset.reset=earliest"), "this command only knows"),
        (("--ack", "accept"), "--ack needs --share"),
        (("--share", "g", "--ack", "release"), "add -e or -c"),
    ],
)
def test_wrong_usage_is_said_to_be(arguments: tuple[str, ...], message: str) -> None:
    """Before any cluster is asked."""
    code, out, said = invoke("consume", "-t", "t", *arguments)
    assert (code, out) == (exits.USAGE, "")
    assert message in said and said.count("\n") == 1
