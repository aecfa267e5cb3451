"""Claims about what holds back consumers of committed records. The brokers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from types import SimpleNamespace as Answer
from typing import Any

import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native.held_offsets import list_held_offsets
from raftlog.base.transaction_listing import TransactionalId
from raftlog.protocol.apis import ApiKey
from tests.admin.test_groups import Brokers, call

HELD_AT = 4
END = 10
PRODUCER = 7


class Leaders(Brokers):
    """The last stable offset is below the high watermark; two transactions are open, the older of producer 7."""

    async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
        """Answer as the leader of t-0."""
        if api_key == ApiKey.DESCRIBE_PRODUCERS:
            producers = [
                Answer(producer_id=8, current_txn_start_offset=6, last_timestamp=3),
                Answer(producer_id=PRODUCER, current_txn_start_offset=HELD_AT, last_timestamp=2),
                Answer(producer_id=9, current_txn_start_offset=-1, last_timestamp=1),
            ]
            partition = Answer(partition_index=0, error_code=0, active_producers=producers)
            return Answer(topics=[Answer(name="t", partitions=[partition])])
        assert api_key == ApiKey.LIST_OFFSETS
        offset = HELD_AT if message.isolation_level else END
        partitions = [
            Answer(partition_index=each.partition_index, error_code=0, offset=offset)
            for each in message.topics[0].partitions
        ]
        return Answer(topics=[Answer(name="t", partitions=partitions)])


class Ids:
    """A transaction port with one open id."""

    async def all(self, *, producer_ids: Collection[int] = ()) -> list[TransactionalId]:
        """Return it if it is asked for."""
        assert list(producer_ids) == [PRODUCER]
        return [TransactionalId("report", 1, PRODUCER, "Ongoing", -1, -1)]

    async def open(self, listed: Iterable[TransactionalId]) -> dict[str, tuple[int, int]]:
        """Return when it began."""
        return {each.transactional_id: (5, 9) for each in listed}


@pytest.mark.parametrize("known", [True, False])
def test_oldest_open_transaction_is_named_with_its_start(known: bool) -> None:
    """By its id if a coordinator knows it, otherwise by its producer alone. Leaderless partitions are not counted."""
    asked = call(Leaders([]), topic_name="t")
    port: Any = Ids
    asked.node.transactions = port if known else None
    found = asyncio.run(list_held_offsets(asked))
    (only,) = found.data
    assert found.held_partitions == 1
    assert (only.partition_id, only.last_stable_offset, only.high_watermark) == (0, HELD_AT, END)
    assert (only.producer_id, only.start_offset, only.last_ms) == (PRODUCER, HELD_AT, 2)
    assert (only.transactional_id, only.start_ms) == (("report", 5) if known else (None, None))


def test_missing_topic_is_no_topic_without_held_offsets() -> None:
    """It is 404."""
    with pytest.raises(ApiError) as caught:
        asyncio.run(list_held_offsets(call(Leaders([]), topic_name="gone")))
    assert caught.value.status == 404
