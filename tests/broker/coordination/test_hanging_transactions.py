"""A broker asks very many transactions' coordinators."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from raftlog.base.transaction_listing import TransactionalId
from raftlog.broker.coordination import hanging_transactions
from raftlog.broker.coordination.hanging_transactions import TransactionSurvey
from raftlog.broker.dispatch import serve_own
from raftlog.broker.handlers import describe_transactions
from raftlog.broker.links.broker_links import BrokerLinks
from raftlog.coordinator.transactions.transaction import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from tests.broker.coordination.transaction_broker import TransactionBroker, run_scenario
from tests.broker.loop_turns import count_loop_turns

NAMES = [f"x{number:04}" for number in range(1_000)]


class CountingCoordinator:
    """A coordinator of these ids, each with an open transaction; counts how often each is looked at."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    async def read(self, name: str) -> Transaction:
        self.reads[name] += 1
        return Transaction(name, ProducerIdAndEpoch(7, 0), TransactionState.ONGOING, timeout_ms=9, start_ms=5)

    async def read_all(self, *, wholly: bool) -> list[Transaction]:
        return [
            Transaction(each, ProducerIdAndEpoch(7, 0), TransactionState.ONGOING) for each in reversed(NAMES)
        ]


def survey_of(node: TransactionBroker, known: Any) -> TransactionSurvey:
    """Return a survey that asks this broker, the coordinator of all ids."""
    node.broker.transactions = known
    links = BrokerLinks(node.broker.env, 1, None, partial(serve_own, node.broker))  # type: ignore[arg-type]  # no others
    node.broker.links = links
    return TransactionSurvey(node.broker)


def test_ids_that_an_answer_had_no_room_for_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is missing from the list of open transactions, and none is described twice."""
    monkeypatch.setattr(describe_transactions, "MAX_PARTITIONS", 100)
    monkeypatch.setattr(hanging_transactions, "MAX_IDS_PER_REQUEST", 250)

    async def scenario(node: TransactionBroker) -> None:
        known = CountingCoordinator()
        listed = [TransactionalId(each, 1, 7, TransactionState.ONGOING.value, -1, -1) for each in NAMES]
        found = await survey_of(node, known).open(listed)
        assert found == dict.fromkeys(NAMES, (5, 9))
        assert known.reads == Counter(NAMES)

    run_scenario(scenario)


def test_very_many_ids_are_sorted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """To sort a hundred thousand takes a tenth of a second."""
    monkeypatch.setattr(hanging_transactions, "MAX_IDS_PER_REQUEST", 10)

    async def scenario(node: TransactionBroker) -> None:
        listed, turns = await count_loop_turns(survey_of(node, CountingCoordinator()).all())
        assert [each.transactional_id for each in listed] == NAMES
        assert turns > len(NAMES) / 10

    run_scenario(scenario)
