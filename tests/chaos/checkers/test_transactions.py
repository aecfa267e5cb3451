"""Our own rules about transactions: all or nothing, and a group consumes each value in a single transaction."""

from __future__ import annotations

import pytest

from tests.chaos.checkers.told_history import ToldHistory, reading, sending

GROUP = "copyists"


def copied(
    *records: tuple[int, str], at: int, type: str = "ok", process: int = 1, tale: ToldHistory
) -> ToldHistory:
    """Consume records of t-0 and write as many to out-0 from that offset on, in one transaction."""
    sends = [sending(at + each, f"{value}/{at}", key="out-0") for each, (_, value) in enumerate(records)]
    return tale.txn(process, reading(*records), *sends, type=type, group=GROUP)


def output(tale: ToldHistory, *records: tuple[int, str]) -> None:
    """All of it is read at the end."""
    tale.both(99, "ok", "poll", [reading(*records, key="out-0")])


def joined(tale: ToldHistory, process: int, group: str) -> None:
    for type in ("invoke", "ok"):
        tale.line(process, type, "subscribe", ["t-0"], group=group)


def found(tale: ToldHistory) -> set[str]:
    return {name for name in tale.found() if not tale.verdict().anomalies[name][0].allowed}


def test_each_value_in_one_committed_transaction_is_exactly_once():
    """Aborted attempts are ignored, as are attempts of unknown fate without visible effects."""
    tale = ToldHistory().log("a", "b", "c")
    copied((0, "a"), at=0, tale=tale)
    copied((1, "b"), at=10, type="fail", tale=tale)
    copied((1, "b"), at=20, type="info", process=2, tale=tale)
    copied((1, "b"), (2, "c"), at=30, process=3, tale=tale)
    output(tale, (0, "a/0"), (30, "b/30"), (31, "c/30"))
    assert found(tale) == set()


@pytest.mark.parametrize("type", ["ok", "info"])
def test_a_value_in_two_committed_transactions_of_a_group_was_processed_twice(type: str):
    """A transaction applied twice, or offsets that went back; it is enough that the second was seen."""
    tale = ToldHistory().log("a", "b")
    copied((0, "a"), at=0, tale=tale)
    copied((0, "a"), (1, "b"), at=10, type=type, process=2, tale=tale)
    output(tale, (0, "a/0"), (10, "a/10"), (11, "b/10"))
    assert found(tale) == {"processed-twice"}


def test_a_value_that_one_transaction_consumed_twice_was_processed_twice():
    """It went back within it."""
    tale = ToldHistory().log("a")
    tale.txn(1, reading((0, "a"), (0, "a")), group=GROUP)
    assert "processed-twice" in found(tale)


def test_other_groups_consume_for_themselves():
    """Once for each group; polls without a group's offsets may be repeated."""
    tale = ToldHistory().log("a")
    for group in ("one", "two", "", ""):
        tale.txn(3, reading((0, "a")), group=group)
    assert "processed-twice" not in found(tale)


def test_a_value_that_a_group_passed_over_is_left_out():
    """The group's offset ran ahead of what was committed with it."""
    tale = ToldHistory().log("a", "b", "c")
    copied((0, "a"), at=0, tale=tale)
    copied((2, "c"), at=1, process=2, tale=tale)
    output(tale, (0, "a/0"), (1, "c/1"))
    assert found(tale) == {"left-out"}


def begun(tale: ToldHistory, value: str, *, process: int) -> None:
    """A transaction polls and writes, and its client is gone before it can say what it got."""
    tale.line(process, "invoke", "txn", [["poll"], ["send", "out-0", value]], group=GROUP)


def test_a_silent_transaction_that_was_committed_may_have_consumed_what_follows():
    """Its client lost its power with the cluster; that it was committed shows in what it wrote."""
    tale = ToldHistory().log("a", "b", "c", "d")
    copied((0, "a"), at=0, tale=tale)
    begun(tale, "b+c", process=2)
    copied((3, "d"), at=3, process=3, tale=tale)
    output(tale, (0, "a/0"), (1, "b+c"), (3, "d/3"))
    assert found(tale) == set()


def test_a_silent_transaction_of_which_nothing_is_read_consumed_nothing():
    """It was not committed."""
    tale = ToldHistory().log("a", "b")
    begun(tale, "a", process=2)
    copied((1, "b"), at=1, process=3, tale=tale)
    output(tale, (1, "b/1"))
    assert found(tale) == {"left-out"}


def test_a_silent_transaction_consumed_nothing_before_what_was_consumed_when_it_began():
    """The group's offset was behind that already."""
    tale = ToldHistory().log("a", "b")
    copied((1, "b"), at=1, tale=tale)
    begun(tale, "a", process=2)
    output(tale, (1, "b/1"), (2, "a"))
    assert found(tale) == {"left-out"}


def test_a_silent_transaction_consumed_neighbours_only():
    """Of two values that are left out, with a consumed one between them, it accounts for the first."""
    tale = ToldHistory().log("a", "b", "c", "d")
    begun(tale, "a", process=2)
    copied((1, "b"), at=1, process=3, tale=tale)
    copied((3, "d"), at=2, process=3, tale=tale)
    output(tale, (0, "a"), (1, "b/1"), (2, "d/2"))
    assert found(tale) == {"left-out"}
    assert [each.about[0] for each in tale.verdict().anomalies["left-out"]] == ["c"]


def test_what_was_aborted_need_not_be_consumed():
    """A read_committed group passes over it."""
    tale = ToldHistory().send(90, "a", 0).txn(91, sending(1, "x"), type="fail").send(90, "b", 2)
    tale.poll(99, (0, "a"), (2, "b"))
    copied((0, "a"), (2, "b"), at=0, tale=tale)
    output(tale, (0, "a/0"), (1, "b/0"))
    assert found(tale) == set()


@pytest.mark.parametrize("type", ["ok", "info"])
def test_a_transaction_of_which_a_part_is_never_seen_is_torn(type: str):
    """All of it or none, also for a transaction of unknown fate."""
    tale = ToldHistory().log("a")
    tale.txn(1, sending(1, "b"), sending(None, "c", key="t-1"), type=type)
    tale.poll(99, (1, "b"))
    assert "torn-transaction" in found(tale)


def test_an_aborted_value_that_is_read_is_g1a():
    """No commit of it was ever requested."""
    tale = ToldHistory().log("a").txn(1, sending(1, "b"), type="fail").poll(99, (1, "b"))
    assert found(tale) == {"G1a"}


@pytest.mark.parametrize(("group", "valid"), [(GROUP, False), ("", True)])
def test_a_reader_beside_such_a_group_may_not_skip(group: str, valid: bool):
    """A rebalance excuses subscribers; where all subscribers commit in transactions, that excuse is not needed."""
    tale = ToldHistory().log("a", "b", "c")
    joined(tale, 5, group)
    tale.poll(6, (0, "a")).poll(6, (2, "c"))
    assert tale.verdict().valid == valid
    assert "poll-skip" in tale.found()


def test_members_of_such_a_group_may_skip_what_others_consumed():
    """A partition that a member did not get was assigned to another."""
    tale = ToldHistory().log("a", "b", "c")
    joined(tale, 1, GROUP)
    copied((0, "a"), at=0, tale=tale)
    copied((1, "b"), at=1, process=2, tale=tale)
    copied((2, "c"), at=2, tale=tale)
    output(tale, (0, "a/0"), (1, "b/1"), (2, "c/2"))
    assert found(tale) == set() and "poll-skip" not in tale.found()
