"""Bugs of an operator's abort: what it ends beside the transaction that the operator was shown."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import InvalidTxnState
from raftlog.broker.coordination import hanging_transactions as survey
from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.hanging import hanging_transactions
from tests.planted.plant import Plant


def what_is_open_ends(patch: pytest.MonkeyPatch) -> None:
    """The leader ends whatever its producer has open by then."""
    patch.setattr(ProducerState, "check_open_transaction", lambda state, producer_id, offset, *last: None)


def what_began_there_ends(patch: pytest.MonkeyPatch) -> None:
    """The leader looks where the transaction begins, and not whether another transaction has replaced it since."""

    def check_where_it_begins(state: ProducerState, producer_id: int, offset: int, *last: int) -> None:
        producer = state.get(producer_id)
        if producer is None or producer.txn_first_offset != offset:
            raise InvalidTxnState

    patch.setattr(ProducerState, "check_open_transaction", check_where_it_begins)


def coordinators_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Every open transaction is taken for hanging."""

    def nobody(*arguments: Any) -> None:
        return None

    patch.setattr(survey, "_coordinated", nobody)


PLANTS = [
    Plant("abort-ends-the-next", "half a transaction", hanging_transactions, what_is_open_ends, 6.0),
    Plant(
        "abort-takes-what-grew",
        "half a transaction",
        hanging_transactions,
        what_began_there_ends,
        6.0,
        test=(
            "tests/storage/test_producers.py::"
            "test_an_operators_abort_fits_only_the_transaction_that_the_operator_was_shown"
        ),
    ),
    Plant("abort-asks-nobody", "half a transaction", hanging_transactions, coordinators_are_not_asked, 6.0),
]
