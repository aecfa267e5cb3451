"""raftlog.base.errors: what errors say."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from raftlog.base.errors import ERRORS, MESSAGE_CHARS, NONE, InvalidRequest, from_code


def test_a_message_that_repeats_what_a_client_named_still_fits_into_an_answer() -> None:
    """A string of the protocol has 32,767 bytes at most: a longer string could not be encoded."""
    error = InvalidRequest("ü" * 100_000)
    assert error.message == str(error) == "ü" * MESSAGE_CHARS
    assert len(error.message.encode()) < 2**15


def test_every_code_of_the_protocol_has_its_class_and_retriability() -> None:
    """The table is Apache Kafka's, which kio generates its codes from."""
    assert {code: kind.retriable for code, kind in ERRORS.items()} == {
        each.value: each.retriable for each in ErrorCode if each.value != NONE
    }
    assert all(from_code(code).code == code for code in ERRORS)
