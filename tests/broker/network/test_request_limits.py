"""Every API has a limit of parts, and a request beyond it is refused before anything is done for it."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.broker.api import IN_TURNS
from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.codec import decode_response
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS as HOT_PARTS_MAX
from tests.broker.fakes import FakePartitionServer, fetch, produce
from tests.broker.handlers.large_requests import Case, cases, frame_of
from tests.broker.rows import all_rows, change_row
from tests.kit.waits import PATIENCE_S

HOT = {ApiKey.PRODUCE, ApiKey.FETCH}
INVALID_REQUEST = 42


def one_case(api_key: int) -> Case | None:
    """Return a large array of the API's newest request; None if it has none."""
    return next(cases(api_key, APIS[api_key].max_version), None)


WITH_ARRAYS = [key for key in sorted(served() - HOT) if one_case(key) is not None]


def test_every_api_that_is_served_has_a_limit() -> None:
    """No API's limit is beyond the limit of requests that are handled in turns."""
    assert all(0 < row.max_parts <= IN_TURNS for row in all_rows().values())


@pytest.mark.parametrize("api_key", WITH_ARRAYS, ids=lambda key: APIS[key].name)
@pytest.mark.parametrize("parts", [30, 3_000])
async def test_a_request_of_too_many_parts_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], api_key: int, parts: int
) -> None:
    """INVALID_REQUEST where the API can say so, else a closed connection; decoded at once or in turns."""
    change_row(monkeypatch, api_key, max_parts=20)
    case = one_case(api_key)
    assert case is not None
    pipe = FakePartitionServer().connect()
    pipe.send(frame_of(case, parts))
    async with asyncio.timeout(PATIENCE_S):
        while not (pipe.transport.closed or pipe.transport.written):
            await asyncio.sleep(0)
    if pipe.transport.closed:
        assert "have at most 20 elements together" in capsys.readouterr().out
    else:
        (frame,) = pipe.frames()
        assert decode_response(api_key, case.version, frame)[1].error_code == INVALID_REQUEST


async def test_a_fetch_of_too_many_partitions_is_refused() -> None:
    """INVALID_REQUEST for all of it, in versions that have a place for that."""
    pipe = FakePartitionServer().connect()
    pipe.send(fetch(1, *((index, 0) for index in range(HOT_PARTS_MAX)), version=12))
    assert pipe.answer(ApiKey.FETCH, 12).error_code == INVALID_REQUEST
    pipe.send(fetch(2, *((index, 0) for index in range(HOT_PARTS_MAX)), version=4))
    assert pipe.transport.closed


async def test_a_produce_of_too_many_partitions_is_refused() -> None:
    """Its response has no place for an error of the request, so the connection ends; no record is appended."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(produce(1, *((index, None) for index in range(HOT_PARTS_MAX))))
    assert pipe.transport.closed
    assert not pipe.transport.written


@pytest.mark.parametrize("path", ["topics.partitions", "topics.partitions.acknowledgement_batches"])
async def test_acknowledgements_of_very_many_partitions_are_decoded(path: str) -> None:
    """Partitions with one acknowledgement each have more objects a byte than any other honest request."""
    case = Case(ApiKey.SHARE_ACKNOWLEDGE, 2, tuple(path.split(".")), is_repeated=False)
    assert await error_code_of(case, parts=24_000) != INVALID_REQUEST


async def test_a_request_of_more_objects_than_its_size_allows_is_refused() -> None:
    """The client gets INVALID_REQUEST, instead of a connection that ends without a reason."""
    case = Case(ApiKey.SHARE_GROUP_HEARTBEAT, 1, ("subscribed_topic_names",), is_repeated=True)
    assert await error_code_of(case, parts=90_000) == INVALID_REQUEST


async def error_code_of(case: Case, *, parts: int) -> int:
    """Return the error of the whole request, in turns of the loop."""
    pipe = FakePartitionServer().connect()
    pipe.send(frame_of(case, parts))
    async with asyncio.timeout(PATIENCE_S):
        while not (pipe.transport.closed or pipe.transport.written):
            await asyncio.sleep(0)
    (frame,) = pipe.frames()
    return int(decode_response(case.api_key, case.version, frame)[1].error_code)
