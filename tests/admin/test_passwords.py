"""raftlog.admin.passwords: right and wrong passwords, the cost of polling, and the expiry of remembered passwords."""

from __future__ import annotations

import pytest

from raftlog.admin.passwords import MAX_REMEMBERED, Passwords
from raftlog.security.scram import MIN_ITERATIONS, ScramCredential, credential

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def kept(password: str, mechanism: str = SHA256) -> ScramCredential:
    return credential(mechanism, password, b"salt" * 6, MIN_ITERATIONS)


@pytest.mark.parametrize("mechanism", [SHA256, SHA512])
async def test_right_password_is_hashed_once_however_often_it_comes(mechanism: str) -> None:
    """4,096 rounds for each question of a monitor would be a load of its own."""
    passwords = Passwords(lambda: {("alice", mechanism): kept("right", mechanism)}, ())
    assert [await passwords.check("alice", "right") for _ in range(3)] == [
        "right",
        "remembered",
        "remembered",
    ]
    assert passwords.hashed == 1
    assert await passwords.check("alice", "wrong") == "wrong_password"
    assert await passwords.check("alice", "wrong") == "wrong_password"
    assert passwords.hashed == 5


async def test_password_that_was_changed_or_taken_away_counts_no_more() -> None:
    """From the moment that the metadata has it, though it is remembered."""
    known = {("alice", SHA256): kept("old")}
    passwords = Passwords(lambda: known, ())
    assert await passwords.check("alice", "old") == "right"
    known["alice", SHA256] = kept("new")
    assert await passwords.check("alice", "old") == "wrong_password"
    assert await passwords.check("alice", "new") == "right"
    known.clear()
    assert await passwords.check("alice", "new") == "unknown_user"


async def test_password_of_one_user_is_not_that_of_another() -> None:
    """A remembered password belongs to a user."""
    passwords = Passwords(lambda: {("alice", SHA256): kept("a"), ("bob", SHA256): kept("b")}, ())
    assert await passwords.check("alice", "a") == "right"
    assert await passwords.check("bob", "a") == "wrong_password"


async def test_a_wrong_password_costs_as_much_whoever_it_is_for() -> None:
    """The response time reveals neither which users exist nor their mechanisms."""
    known = {("alice", SHA256): kept("right"), ("bob", SHA256): kept("b"), ("bob", SHA512): kept("b", SHA512)}
    costs = {}
    for user in ("alice", "bob", "carol", "nobody"):
        passwords = Passwords(lambda: known, [{"carol": "singing"}])
        assert await passwords.check(user, "wrong") in ("wrong_password", "unknown_user")
        costs[user] = passwords.hashed
    assert set(costs.values()) == {2}, costs


async def test_users_of_plain_and_of_two_mechanisms_are_known() -> None:
    """A password of either is right."""
    known = {("alice", SHA256): kept("one"), ("alice", SHA512): kept("two", SHA512)}
    passwords = Passwords(lambda: known, [{"carol": "singing"}, {"carol": "elsewhere"}])
    for user, password in (("alice", "one"), ("alice", "two"), ("carol", "singing"), ("carol", "elsewhere")):
        assert await passwords.check(user, password) == "right"
    assert await passwords.check("carol", "singing") == "remembered"
    assert await passwords.check("carol", "sing") == "wrong_password"


async def test_memory_of_passwords_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; its next login is hashed again."""
    monkeypatch.setattr("raftlog.admin.passwords.MAX_REMEMBERED", 2)
    assert MAX_REMEMBERED > 2
    known = {(user, SHA256): kept(user) for user in ("a", "b", "c")}
    passwords = Passwords(lambda: known, ())
    outcomes = [await passwords.check(user, user) for user in ("a", "b", "c", "c", "b", "a")]
    assert outcomes == ["right", "right", "right", "remembered", "remembered", "right"]


@pytest.mark.parametrize("successor", [None, "new"])
async def test_password_that_is_taken_away_while_it_is_hashed_is_wrong(successor: str | None) -> None:
    """The thread takes milliseconds, in which the metadata moves on: as for SCRAM on Kafka's listeners."""
    before = {("alice", SHA256): kept("old")}
    after = {} if successor is None else {("alice", SHA256): kept(successor)}
    images = iter([before])
    passwords = Passwords(lambda: next(images, after), ())
    assert await passwords.check("alice", "old") == "wrong_password"
