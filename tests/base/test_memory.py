"""raftlog.base.memory: accounts, and how their limits follow from the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.config import load_config
from raftlog.base.memory import MIB, MIN_BODIES_BYTES, Account, MemoryBudget, account_of_bodies, max_bytes


class Waiter:
    """Takes at once what it waited for."""

    def __init__(self, account: Account, size: int) -> None:
        self.account, self.size, self.told = account, size, 0

    def memory_freed(self) -> None:
        self.told += 1
        self.account.acquire(self.size)


@given(st.integers(MIB, 1 << 40))
def test_the_parts_fit_into_the_whole(whole: int) -> None:
    """raftlog.memory.max.bytes is the wall for all of them together."""
    assert sum(each.limit for each in MemoryBudget(whole)) <= whole * 15 // 16
    assert account_of_bodies(whole).limit <= max(whole // 16, MIN_BODIES_BYTES)


def test_what_an_operator_sets_counts_instead_of_the_rule() -> None:
    """queued.max.request.bytes and raftlog.answers.max.bytes; the other parts stay."""
    budget, ruled = MemoryBudget(64 * MIB, requests=5, answers=6), MemoryBudget(64 * MIB)
    assert (budget.requests.limit, budget.answers.limit) == (5, 6)
    assert budget.sessions.limit == ruled.sessions.limit


def test_the_default_leaves_half_of_a_small_container_to_all_else() -> None:
    """512 MiB where there is a gigabyte or more."""
    assert max_bytes(-1, 256 * MIB) == 128 * MIB
    assert max_bytes(-1, 1 << 40) == 512 * MIB
    assert max_bytes(5, 1 << 40) == 5


@pytest.mark.parametrize(
    "name", ["raftlog.memory.max.bytes", "queued.max.request.bytes", "raftlog.answers.max.bytes"]
)
def test_each_limit_is_a_setting(name: str) -> None:
    """Unset they follow from each other; Kafka's -1, for no limit, is the same as unset."""
    assert getattr(load_config({name: "-1"}), name.replace(".", "_")) == -1
    assert getattr(load_config({name: "1000000"}), name.replace(".", "_")) == 1_000_000


def test_waiters_are_notified_when_the_account_is_no_longer_short() -> None:
    """Below three quarters, so that small releases of memory cause no needless wake-ups."""
    account = Account("a", 100)
    account.acquire(100)
    waiter = Waiter(account, 0)
    account.add_waiter(waiter)
    account.release(25)
    assert (waiter.told, account.is_short, account.is_full) == (0, True, False)
    account.release(1)
    assert (waiter.told, account.is_short) == (1, False)
    account.release(1)
    assert waiter.told == 1, "it would have to wait again"


def test_a_removed_waiter_is_not_notified() -> None:
    """Its connection is gone."""
    account = Account("a", 100)
    account.acquire(100)
    waiter = Waiter(account, 0)
    account.add_waiter(waiter)
    account.remove_waiter(waiter)
    account.release(100)
    assert waiter.told == 0


def test_an_account_counts_how_often_it_was_full_and_its_most() -> None:
    """For an operator: whether a limit was ever reached."""
    account = Account("a", 10)
    for _ in range(3):
        account.acquire(12)
        account.acquire(1)
        account.release(13)
    assert (account.times_full, account.most, account.used) == (3, 13, 0)
