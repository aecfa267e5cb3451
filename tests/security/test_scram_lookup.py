"""The first answer of SCRAM takes as long for a user that does not exist: the same steps, and about the same time."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raftlog.metadata.persistent_map import PersistentMap
from raftlog.security.scram import (
    LOOKED_LIKE,
    MIN_ITERATIONS,
    CredentialLookup,
    ScramCredential,
    ScramServer,
)

pytestmark = pytest.mark.usefixtures("no_collection")

SECRET = b"s" * 32
MECHANISM = "SCRAM-SHA-256"
USERS = 5_000
ANSWERS = 2_000
GUESSED_AT_BEST = 0.65
"""The share of names that a single timing guesses right; a coin guesses half."""


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Garbage of other tests is not finalised in the midst of an answer."""
    gc.disable()
    yield
    gc.enable()


def known() -> PersistentMap[tuple[str, str], ScramCredential]:
    """Return the credentials of many users, which no login of these tests needs to be right."""
    chance = random.Random(7)
    return PersistentMap(
        {
            (f"user-{number:05}", MECHANISM): ScramCredential(
                chance.randbytes(24), MIN_ITERATIONS, chance.randbytes(32), chance.randbytes(32)
            )
            for number in range(USERS)
        }
    )


def first_answers(measure: Callable[[Callable[[], Any]], float]) -> tuple[list[float], list[float]]:
    """Return the measures of first answers for users that exist and that do not, in turns."""
    lookup, credentials, chance = CredentialLookup(SECRET), known(), random.Random(8)
    found: tuple[list[float], list[float]] = [], []
    for number in range(ANSWERS):
        exists = number % 2 == 0
        name = f"user-{chance.randrange(USERS) + (0 if exists else USERS):05}"

        def answer(name: str = name) -> bytes:
            server = ScramServer(
                MECHANISM,
                lambda user, _extensions: lookup.find(credentials, user, MECHANISM),
                lambda: "nonce",
            )
            return server.first(f"n,,n={name},r=abc".encode())

        found[not exists].append(measure(answer))
    return found


def calls_of(work: Callable[[], Any]) -> float:
    """Return how many functions a call comes to, including functions in C."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_first_answer_takes_the_same_steps_whether_the_user_exists() -> None:
    """Except the very first response, which inspects the others' users, whatever its user."""
    there, missing = first_answers(calls_of)
    assert len(set(there[1:])) == len(set(missing)) == 1
    assert there[1] == missing[0]


def test_decoy_credentials_are_cached_until_the_credentials_change() -> None:
    """A lookup of 5,000 users looks at a hundred of them, once."""
    looked = Counter[str]()

    class Watched(PersistentMap[tuple[str, str], ScramCredential]):
        def __iter__(self) -> Any:
            for key in super().__iter__():
                looked["keys"] += 1
                yield key

    lookup, before, after = CredentialLookup(SECRET), Watched(known()), Watched(known())
    looked.clear()
    for _ in range(10):
        made = lookup.find(before, "nobody", MECHANISM)
        assert lookup.find(before, "nobody", MECHANISM) == made
    assert looked["keys"] == LOOKED_LIKE
    lookup.find(after, "nobody", MECHANISM)
    assert looked["keys"] == 2 * LOOKED_LIKE


@pytest.mark.nightly
def test_the_time_of_the_first_answer_does_not_reveal_users() -> None:
    """The best threshold for the time is hardly better than a coin. Three tries: the machine may be busy."""

    def seconds(work: Callable[[], Any]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    best = min(_best_guess(*first_answers(seconds)) for _ in range(3))
    assert best < GUESSED_AT_BEST, best


def _best_guess(there: list[float], missing: list[float]) -> float:
    """Return the share of names that the best threshold on the time guesses right."""
    ordered = sorted([(each, 1) for each in there[1:]] + [(each, -1) for each in missing[1:]])
    lead = most = 0
    for _, sign in ordered:
        lead += sign
        most = max(most, abs(lead))
    return 0.5 + most / len(ordered)
