"""The judge must be seen to fail: it is shown each harm once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from raftlog_chaos.attacks.session import AttackSession
from raftlog_chaos.attacks.verdict import (
    MIB,
    ClusterObservation,
    Limits,
    Times,
    conclude,
    is_settled,
    is_slow_only,
    judge,
    keeps_only,
    times_of,
)
from tests.chaos.attacks.kit import LIMITS, an_attack, calm, with_node


def faults(seen: ClusterObservation, limits: Limits = LIMITS) -> list[str]:
    return list(judge(seen, limits))


def test_a_cluster_that_nothing_happened_to_passes():
    """The other tests change one thing of this."""
    assert faults(calm()) == []
    assert conclude(an_attack(), calm(), LIMITS).status == "passed"


BAD = {
    "a node that ended": (with_node(2, ended="struct.error"), "node 2 ended: struct.error"),
    "a node that was fenced": (calm(fenced=["broker 1 was fenced"]), "broker 1 was fenced"),
    "a lost record": (calm(records=["lost-write on bystanders-0"]), "lost-write"),
    "an error with a traceback": (calm(errors=["node 1: request_crashed: KeyError"]), "request_crashed"),
    "a refused bystander": (calm(failed=["bystanders: a record was not acknowledged"]), "not acknowledged"),
    "slow acknowledgements": (calm(sends=Times(500, 1.2, 3.0)), "p99 of acknowledgements 1.20 s"),
    "slow reads": (calm(reads=Times(500, 1.0, 1.0)), "p99 of reads 1.00 s"),
    "no acknowledgements at all": (calm(sends=Times()), "nothing is shown"),
    "a blown peak": (with_node(3, peak_bytes=90 * MIB + 257 * MIB), "node 3 took 257 MiB above"),
    "memory that is kept": (
        with_node(1, rest_bytes=90 * MIB + 33 * MIB),
        "node 1 keeps 33 MiB above idle 60 s later",
    ),
    "a leaked file": (with_node(1, rest_files=50 + 17), "node 1 keeps 17 more files open"),
    "a connection that is kept": (
        with_node(2, strangers={"http": 3}),
        "node 2 holds 3 connections of the attacker at its http port",
    ),
    "a stalled loop": (with_node(2, stall_s=0.5), "node 2's loop computed for up to 0.5 s"),
    "a silent node": (with_node(2, stall_s=None), "node 2 does not answer /metrics"),
    "a claim that does not hold": (calm(broken="a-0 took a marker of a stranger"), "a-0 took a marker"),
    "an attack that was cut off": (
        calm(guarded="node 1 took more than 1536 MiB"),
        "cut off to save the machine",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_each_harm_is_a_fault(what: str):
    """One line says what it was."""
    seen, said = BAD[what]
    (fault,) = faults(seen)
    assert said in fault
    assert conclude(an_attack(), seen, LIMITS).status == "failed"


def test_values_at_the_limit_pass():
    """A limit is the last good value."""
    seen = with_node(
        1, peak_bytes=(90 + 256) * MIB, rest_bytes=(90 + 32) * MIB, rest_files=50 + 16, stall_s=0.25
    )
    assert faults(seen) == []


def test_memory_that_came_back_in_time_is_no_fault():
    """Memory of a node that settles later, but in time, does not count."""
    seen = with_node(1, rest_bytes=200 * MIB)
    seen.settled_s = 12.0
    assert faults(seen) == []


def test_the_rest_of_a_node_that_ended_is_not_judged_twice():
    """It has no memory left to give back."""
    seen = with_node(1, ended="killed", rest_bytes=0, rest_files=0, stall_s=None)
    assert faults(seen) == ["node 1 ended: killed"]


def test_nodes_are_settled_once_all_that_run_are_back():
    """The waiting loop asks this question."""
    assert is_settled(calm().nodes, LIMITS)
    assert not is_settled(with_node(1, strangers={"kafka": 1}).nodes, LIMITS)
    assert is_settled(with_node(1, ended="killed", strangers={"kafka": 1}).nodes, LIMITS)


def test_a_series_of_attacks_may_leave_more_than_one():
    """Half as much again, and no more."""
    limits = LIMITS.of_series()
    assert not is_settled(with_node(1, rest_bytes=(90 + 48) * MIB).nodes, LIMITS)
    assert is_settled(with_node(1, rest_bytes=(90 + 48) * MIB).nodes, limits)
    assert not is_settled(with_node(1, rest_bytes=(90 + 49) * MIB).nodes, limits)


def test_the_second_attack_on_a_cluster_begins_a_series():
    """The first is judged as if it were alone."""

    def stop() -> str:
        raise InterruptedError

    ground = SimpleNamespace(doors={}, bootstrap="", client_settings={})
    session = AttackSession(ground, LIMITS)
    for expected in (LIMITS, LIMITS.of_series(), LIMITS.of_series()):
        with pytest.raises(InterruptedError):
            session.judge(an_attack(), stop)
        assert session.limits == expected


def test_harm_that_earlier_attacks_may_share_is_distinguished():
    """Memory that is kept may be the sum of several attacks; a stall during an attack is its own."""
    kept = with_node(1, rest_bytes=300 * MIB)
    assert keeps_only(kept, LIMITS)
    kept.nodes[2].stall_s = 3.0
    assert not keeps_only(kept, LIMITS)


def test_a_machine_that_is_busy_without_any_attack_is_given_more_time():
    """The limit is five times the bystanders' wait before the attack; a longer wait still fails."""
    assert faults(calm(sends=Times(500, 1.2, 3.0), calm_s=0.3)) == []
    assert faults(calm(sends=Times(500, 1.6, 3.0), calm_s=0.3))


def test_waiting_alone_is_distinguished():
    """Another build on the same machine can make bystanders wait; it cannot stop the loop of a node."""
    slow = calm(sends=Times(500, 1.2, 3.0))
    assert is_slow_only(slow, LIMITS)
    slow.nodes[2].stall_s = 3.0
    assert not is_slow_only(slow, LIMITS)


def test_an_unfinished_wait_counts_with_its_age():
    """An endless stall would otherwise leave only fast records to count."""
    times = times_of([0.01] * 99, [7.0, 8.0])
    assert (times.count, times.p99_s, times.max_s, times.open) == (101, 7.0, 8.0, 2)
    assert times_of([]).count == 0
