"""`raftlog consume -G` as one member of several: beside a stock client, and beside another of its kind."""

from __future__ import annotations

import json
import signal

import pytest
from confluent_kafka import Consumer

from tests.cli.live import CommandLine
from tests.cli.test_end_signals import running
from tests.kit.waits import ended, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FIRST = (
    "-X",
    "auto.offset.reset=earliest",
    "-X",
    "heartbeat.interval.ms=100",
    "-X",
    "session.timeout.ms=6000",
)


@pytest.mark.parametrize(
    ("arguments", "is_said"),
    [((), True), (("-q",), False), (("-o", "beginning"), False), (("-X", "auto.offset.reset=latest"), False)],
)
def test_a_new_group_that_begins_at_the_end_is_said_to(
    raftlog: CommandLine, ten: str, arguments: tuple[str, ...], is_said: bool
) -> None:
    """Once, with what begins earlier: the command would print nothing and look stuck."""
    group = ("-G", f"group-{ten}", *FIRST[2:], "-e", *arguments, ten)
    err = raftlog("consume", *group).stderr
    assert err.count(f"group group-{ten} has no committed offsets") == is_said
    assert ("-X auto.offset.reset=earliest" in err) == is_said


def test_partitions_are_shared_with_a_stock_client_and_given_back(raftlog: CommandLine, name: str) -> None:
    """Range is an assignor of both; after each join and leave, each record goes to one member."""
    raftlog("topic", "create", name, "-p", "2")
    raftlog("produce", "-t", name, "-p", "0", stdin=b"zero\n")
    raftlog("produce", "-t", name, "-p", "1", stdin=b"one\n")
    settings = {
        "bootstrap.servers": raftlog.bootstrap,
        "group.id": f"group-{name}",
        "session.timeout.ms": 6000,
    }
    stock = Consumer({**settings, "heartbeat.interval.ms": 100, "auto.offset.reset": "earliest"})
    with running(raftlog, "consume", "-G", f"group-{name}", *FIRST, "-u", name) as ours:
        assert ours.stdout is not None
        assert {ours.stdout.readline(), ours.stdout.readline()} == {b"zero\n", b"one\n"}
        stock.subscribe([name])

        def partitions() -> list[int]:
            assert stock.poll(0.1) is None, "all that was printed before is committed"
            return [each.partition for each in stock.assignment()]

        until(lambda: len(partitions()) == 1, "the stock client has one of the partitions")
        (own,) = partitions()
        raftlog("produce", "-t", name, "-p", str(1 - own), stdin=b"ours\n")
        assert ours.stdout.readline() == b"ours\n"
        ours.send_signal(signal.SIGTERM)
        assert ended(ours) == 130
        until(lambda: len(partitions()) == 2, "the stock client has both partitions")
    raftlog("produce", "-t", name, "-p", str(1 - own), stdin=b"theirs\n")
    found = None
    while found is None:
        found = stock.poll(0.1)
    assert (found.error(), found.value()) == (None, b"theirs")
    stock.close()


def test_two_of_a_kind_share_partitions(raftlog: CommandLine, name: str) -> None:
    """The leader of the group is raftlog itself here, and assigns the partitions."""
    raftlog("topic", "create", name, "-p", "2")
    group = ("consume", "-G", f"group-{name}", *FIRST, "-u", "-f", "%p\\n", name)
    with running(raftlog, *group) as first, running(raftlog, *group) as second:
        assert first.stdout is not None and second.stdout is not None

        def shared() -> bool:
            ran = raftlog("group", "describe", f"group-{name}", "-J")
            members = json.loads(ran.stdout)["members"] if ran.returncode == 0 else []
            return sorted(each["partitions"] for each in members) == [[f"{name}-0"], [f"{name}-1"]]

        until(shared, "each has a partition")
        for number in ("0", "1"):
            raftlog("produce", "-t", name, "-p", number, stdin=b"x\n")
        assert {first.stdout.readline(), second.stdout.readline()} == {b"0\n", b"1\n"}
