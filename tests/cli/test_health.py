"""What is healthy and what is not; without a cluster."""

from __future__ import annotations

import pytest

from raftlog.cli.health import GREEN, RED, YELLOW, Partition, Seen, judge

FINE = Seen(
    brokers=(1, 2, 3),
    partitions=(Partition("t", 0, 1, (1, 2, 3), (1, 2, 3)), Partition("t", 1, 2, (2, 3, 1), (2, 3, 1))),
    min_isr={"t": 2},
    voter_lag_ms={1: 0, 2: 5, 3: 9},
    quorum_leader=1,
)


def seen(**changes: object) -> Seen:
    return Seen(**{**{name: getattr(FINE, name) for name in Seen.__slots__}, **changes})


def partition(leader: int, *isr: int) -> list[Partition]:
    return [Partition("t", 0, leader, (1, 2, 3), isr)]


def test_all_there_is_green_and_has_no_reasons() -> None:
    """Nothing to say."""
    assert judge(FINE) == judge(seen()) and judge(FINE).status == GREEN and judge(FINE).reasons == ()


@pytest.mark.parametrize(
    ("status", "changes", "said"),
    [
        (RED, {"quorum_leader": -1}, "quorum has no leader"),
        (RED, {"partitions": partition(-1, 3)}, "1 partition without a leader"),
        (RED, {"partitions": partition(1, 1)}, "below min.insync.replicas, refuse acks=all: t-0"),
        (YELLOW, {"partitions": partition(1, 1, 2)}, "1 partition under-replicated: t-0"),
        (YELLOW, {"brokers": (1, 2)}, "broker 3 not there"),
        (YELLOW, {"brokers": (1,)}, "brokers 2, 3 not there"),
        (
            YELLOW,
            {"voter_lag_ms": {1: 0, 2: 0, 3: 12_000}},
            "voter 3 has been behind in the metadata for 12 s",
        ),
        (YELLOW, {"partitions": (), "voter_lag_ms": {1: 0, 4: 0}}, "broker 4 not there"),
    ],
)
def test_each_trouble_is_named(status: str, changes: dict[str, object], said: str) -> None:
    """Red: something can't be read or written. Yellow: one more failure could make it so."""
    verdict = judge(seen(**changes))
    assert verdict.status == status
    assert said in " ".join(verdict.reasons)


def test_red_goes_before_yellow_and_all_reasons_are_told() -> None:
    """The worst first."""
    verdict = judge(seen(brokers=(1,), partitions=partition(1, 1)))
    assert verdict.status == RED and len(verdict.reasons) == 3
    assert "min.insync.replicas" in verdict.reasons[0]


def test_partitions_are_named_in_the_order_of_their_numbers() -> None:
    """2 before 10."""
    some = [Partition("t", number, 1, (1, 2), (1,)) for number in (10, 2, 0)]
    (reason,) = judge(seen(partitions=some, min_isr={})).reasons
    assert reason.endswith(": t-0, t-2, t-10")


def test_a_long_list_is_cut() -> None:
    """53 partitions are counted, not listed."""
    many = [Partition("t", number, 1, (1, 2), (1,)) for number in range(53)]
    (reason,) = judge(seen(partitions=many, min_isr={})).reasons
    assert reason.startswith("53 partitions") and reason.endswith("and 50 more")
