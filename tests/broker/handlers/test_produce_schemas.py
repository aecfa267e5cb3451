"""Topics with schema validation: which batches are checked, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.errors import InvalidRecord, LeaderNotAvailable
from raftlog.records.compression import NONE, ZSTD
from tests.broker.fakes import FakePartitionServer, produce
from tests.broker.handlers.test_produce_fields import serve
from tests.broker.handlers.test_produce_recompressed import leader, produced, records, sent, stored

VALIDATED = {"confluent_value_schema_validation": True}


class RecordingCheck:
    """Notes the batches that it is asked about, and answers as the test says."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.asked: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def check(
        self, topic: str, config: Any, records: memoryview, plain_bytes: int, **asked: Any
    ) -> None:
        self.asked.append(plain_bytes)
        await self.may_answer.wait()
        if self.answer is not None:
            raise self.answer


def served(config: dict[str, Any], check: RecordingCheck) -> FakePartitionServer:
    fake = serve(leader(config))
    fake.broker.made_schema_check = check  # type: ignore[assignment]
    return fake


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("count", [1, 1_000])
async def test_each_batch_is_checked_before_it_is_appended(codec: int, count: int) -> None:
    """Small or large, compressed or not; the check learns how many bytes it takes."""
    check = RecordingCheck(InvalidRecord("wrong"))
    fake = served(VALIDATED, check)
    batch = sent(codec, size=1, count=count)
    assert await produced(fake, fake.connect(), batch) == InvalidRecord.code
    assert bool(check.asked[0]) is (codec == ZSTD)
    check.answer = None
    assert await produced(fake, fake.connect(), batch) == 0
    assert len(check.asked) == 2


@pytest.mark.parametrize("config", [{}, {"schema_payload_validation": True}])
async def test_no_other_topic_is_checked(config: dict[str, Any]) -> None:
    """Payloads are only parsed where ids are checked. The usual path has no task."""
    check = RecordingCheck()
    fake = served(config, check)
    fake.connect().send(produce(1, (0, sent())))
    assert not fake.server.tasks
    assert not check.asked


async def test_a_retry_is_answered_without_a_check() -> None:
    """The first was appended: its schema may have been deleted since, and its consumers have it."""
    check = RecordingCheck()
    fake = served(VALIDATED, check)
    pipe = fake.connect()
    assert await produced(fake, pipe, sent(producer=(7, 0, 0))) == 0
    check.answer = InvalidRecord("gone")
    assert await produced(fake, pipe, sent(producer=(7, 0, 0))) == 0
    assert len(check.asked) == 1


async def test_schemas_that_cannot_be_read_are_an_error_that_clients_retry() -> None:
    """LEADER_NOT_AVAILABLE; later batches of the producer wait for this one."""
    check = RecordingCheck(LeaderNotAvailable("no leader"))
    fake = served(VALIDATED, check)
    pipe = fake.connect()
    assert await produced(fake, pipe, sent(producer=(7, 0, 0))) == LeaderNotAvailable.code
    check.answer = None
    assert await produced(fake, pipe, sent(producer=(7, 0, 50))) == LeaderNotAvailable.code
    assert await produced(fake, pipe, sent(producer=(7, 0, 0))) == 0


async def test_a_batch_that_waits_for_schemas_delays_no_other_topics_batches() -> None:
    """Another topic's batches are walked meanwhile: the registry's leader may not answer for seconds."""
    check = RecordingCheck()
    check.may_answer.clear()
    fake = served(VALIDATED, check)
    fake.connect().send(produce(1, (0, sent())))
    while not check.asked:
        fake.offload.run()
        await asyncio.sleep(0)
    assert not fake.server.walk_lock.locked()
    check.may_answer.set()
    while fake.server.tasks:
        await asyncio.sleep(0)
    assert len(records()) == stored(fake.partition)[0][0].record_count


async def test_a_client_that_has_gone_keeps_nothing() -> None:
    """Neither memory nor the check of its later batches."""
    check = RecordingCheck(ConnectionAbortedError())
    check.may_answer.clear()
    fake = served(VALIDATED, check)
    pipe = fake.connect()
    pipe.send(produce(1, (0, sent()), (0, sent())))
    while not check.asked:
        fake.offload.run()
        await asyncio.sleep(0)
    pipe.connection.connection_lost(None)
    check.may_answer.set()
    while fake.server.tasks:
        fake.offload.run()
        await asyncio.sleep(0)
    assert len(check.asked) == 1
    assert fake.server.memory.unappended.used == 0
