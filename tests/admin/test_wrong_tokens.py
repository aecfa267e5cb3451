"""Claims about addresses that are wrong about their token, by a clock of the test's."""

from __future__ import annotations

from raftlog.admin.wrong_tokens import WrongTokens
from tests.kit.clock import Clock


def test_address_is_shut_out_after_its_burst_and_let_in_again_bit_by_bit() -> None:
    """Three at once, then one every two seconds; other addresses are not affected."""
    clock = Clock()
    wrong = WrongTokens(clock, burst=3, every_s=2.0)
    for _ in range(3):
        assert wrong.wait_s("10.0.0.1") == 0
        wrong.add("10.0.0.1")
    assert wrong.wait_s("10.0.0.1") == 2
    assert wrong.wait_s("10.0.0.2") == 0
    clock.now += 1.5
    assert wrong.wait_s("10.0.0.1") == 0.5
    clock.now += 0.5
    assert wrong.wait_s("10.0.0.1") == 0
    wrong.add("10.0.0.1")
    assert wrong.wait_s("10.0.0.1") == 2
    clock.now += 6
    for _ in range(3):
        assert wrong.wait_s("10.0.0.1") == 0
        wrong.add("10.0.0.1")
    assert wrong.wait_s("10.0.0.1") == 2


def test_what_was_right_after_all_is_taken_back() -> None:
    """An address that was wrong before stays so."""
    wrong = WrongTokens(Clock(), burst=2, every_s=2.0)
    wrong.add("10.0.0.1")
    for _ in range(10):
        assert wrong.wait_s("10.0.0.1") == 0
        wrong.add("10.0.0.1")
        assert wrong.wait_s("10.0.0.1") == 2
        wrong.take_back("10.0.0.1")
    wrong.take_back("10.0.0.1")
    wrong.take_back("10.0.0.1")
    assert not wrong._forgiven_at


def test_no_more_addresses_are_remembered_than_there_is_room_for() -> None:
    """Forgiven addresses go first, then the addresses that are forgiven soonest: the worst stay."""
    clock = Clock()
    wrong = WrongTokens(clock, burst=1, every_s=10.0, most=2)
    wrong.add("10.0.0.1")
    wrong.add("10.0.0.1")
    wrong.add("10.0.0.2")
    wrong.add("10.0.0.3")
    assert (wrong.wait_s("10.0.0.1"), wrong.wait_s("10.0.0.2"), wrong.wait_s("10.0.0.3")) == (20, 0, 10)
    clock.now += 15
    wrong.add("10.0.0.4")
    assert (wrong.wait_s("10.0.0.1"), wrong.wait_s("10.0.0.4")) == (5, 10)


def test_machine_with_many_ipv6_addresses_is_one() -> None:
    """It may choose the last 64 bits."""
    wrong = WrongTokens(Clock(), burst=1)
    wrong.add("2001:db8::1")
    assert wrong.wait_s("2001:db8::ffff:2") == 1
    assert wrong.wait_s("2001:db8:0:1::1") == 0
    assert wrong.wait_s("::ffff:10.0.0.1") == 0
