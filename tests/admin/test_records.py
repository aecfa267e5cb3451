"""Claims about showing the records of one fetch: from any offset, in turns of the loop, one request at a time."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native import records
from raftlog.admin.native.opened_batches import SMALL_PLAIN_BYTES, KeptBatch
from raftlog.admin.native.record_contents import DECODED_MAX_BYTES, Choices, Contents
from raftlog.admin.native.record_filter import Filter, Texts
from raftlog.admin.native.records import MAX_RECORD_BYTES, SLICE_BYTES, STEP_BYTES, Part, shown
from raftlog.base.env import ThreadOffload
from raftlog.base.memory import Account
from raftlog.records.batch import (
    EndTransactionMarker,
    Record,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.compression import NONE, ZSTD
from raftlog.records.header import iter_headers

LARGE_BATCH = build_batch([new_record(None, b"v" * 20, timestamp=5) for _ in range(20_000)], codec=ZSTD)


class CountedTurns:
    """The turns of a client that leaves after `patience` of them."""

    def __init__(self, patience: int) -> None:
        self.taken = 0
        self._patience = patience

    async def next(self) -> None:
        self.taken += 1
        await asyncio.sleep(0)
        if self.taken > self._patience:
            raise ConnectionResetError("the client left")


class FakeCall:
    """The part of a request that reading records needs. Its client leaves after `patience` turns of the loop."""

    def __init__(self, node: Any = None, *, patience: int = 1_000_000) -> None:
        self.node = node or SimpleNamespace(reading_records=asyncio.Lock(), offload=ThreadOffload())
        self.turns = CountedTurns(patience)


async def read(call: Any, content: bytes, *, start: int = 0, most: int = 10, **more: Any) -> dict[str, Any]:
    """Return the answer as a client parses it."""
    data = SimpleNamespace(error_code=0, records=content, high_watermark=9, log_start_offset=0)
    found, _ = await shown(call, ("t", 0), data, Part(start, most, **more))
    answer: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return answer


def offsets(answer: dict[str, Any]) -> list[int]:
    return [each["offset"] for each in answer["records"]]


def batch_of(*values: bytes, base_offset: int = 0, codec: int = NONE) -> bytes:
    return build_batch(
        [new_record(b"k", each, timestamp=7, headers=(("h", b"\xff"),)) for each in values],
        base_offset=base_offset,
        codec=codec,
    )


async def test_records_are_shown_as_text_or_in_base64() -> None:
    """Keys, values and headers are UTF-8 or not; a missing value is null."""
    content = build_batch([Record(-1, 7, b"k", None, (("h", b"\xff"),)), new_record(None, b"v", timestamp=8)])
    answer = await read(FakeCall(), content)
    assert answer["records"] == [
        {
            "offset": 0,
            "timestamp": 7,
            "key": {"type": "STRING", "data": "k"},
            "value": None,
            "headers": [{"name": "h", "value": {"type": "BINARY", "data": "/w=="}}],
        },
        {"offset": 1, "timestamp": 8, "key": None, "value": {"type": "STRING", "data": "v"}, "headers": []},
    ]
    assert answer["next_offset"] == 2


@pytest.mark.parametrize("codec", [NONE, ZSTD])
async def test_reading_begins_within_a_batch_and_ends_after_so_many_records(codec: int) -> None:
    """A fetch returns whole batches, so earlier records of the first batch are skipped."""
    content = batch_of(b"a", b"b", b"c", codec=codec) + batch_of(b"d", b"e", base_offset=3, codec=codec)
    answer = await read(FakeCall(), content, start=1, most=3)
    assert (offsets(answer), answer["next_offset"]) == ([1, 2, 3], 4)


async def test_reading_goes_on_behind_markers_of_transactions() -> None:
    """They are no records, and a reader that follows a partition would otherwise never reach its end."""
    marker = build_end_marker(7, 0, marker=EndTransactionMarker(commit=True, coordinator_epoch=0))
    answer = await read(FakeCall(), marker)
    assert (answer["records"], answer["next_offset"]) == ([], 1)


async def test_passing_over_many_records_lets_other_work_go_on() -> None:
    """The last record of a large batch costs a walk over all others."""
    call = FakeCall()
    answer = await read(call, LARGE_BATCH, start=19_999)
    assert offsets(answer) == [19_999]
    assert call.turns.taken >= 19_999 * STEP_BYTES // SLICE_BYTES


async def test_a_walk_ends_when_its_client_has_left() -> None:
    """Otherwise clients could pile up walks by connecting again."""
    call = FakeCall(patience=3)
    with pytest.raises(ConnectionResetError):
        await read(call, LARGE_BATCH, start=19_999)
    assert call.turns.taken == 4
    assert not call.node.reading_records.locked()


async def test_one_request_walks_through_a_large_batch_at_a_time() -> None:
    """Each may hold a batch of 64 MiB."""
    first = FakeCall()
    second = FakeCall(first.node)
    walk = asyncio.ensure_future(read(first, LARGE_BATCH, start=19_999))
    while not first.turns.taken:
        await asyncio.sleep(0)
    other = asyncio.ensure_future(read(second, LARGE_BATCH, start=19_999))
    small = FakeCall(first.node)
    assert offsets(await read(small, batch_of(b"v", codec=ZSTD))) == [0]
    assert not walk.done(), "a small batch is read without a wait"
    await walk
    assert second.turns.taken == 0
    assert offsets(await other) == [19_999]


async def test_reading_ends_in_time_for_other_requests() -> None:
    """Each answer has at least one record, and says where to continue."""
    call: Any = FakeCall()
    contents = Contents(call, "t", Choices("auto", "auto"))
    answer = await read(call, batch_of(b"a", b"b", b"c"), contents=contents, longest_s=0.0)
    assert offsets(answer) == list(range(answer["next_offset"]))
    wanted = Filter(Texts("", "no such text", "", ""))
    answer = await read(call, LARGE_BATCH, start=0, contents=contents, filter=wanted, longest_s=0.0)
    assert (answer["records"], 0 < answer["next_offset"] < 20_000) == ([], True)
    assert not call.node.reading_records.locked()


async def test_rest_of_a_large_batch_is_kept_for_the_next_part_of_a_scan() -> None:
    """It is decompressed once, its bytes count, and a jump to another offset opens it again."""
    call: Any = FakeCall()
    opened = []

    def offload(work: Any) -> Any:
        opened.append(work)
        return ThreadOffload()(work)

    call.node.offload = offload
    account = Account("contents", 1)
    kept = KeptBatch(account)
    assert offsets(await read(call, LARGE_BATCH, kept=kept)) == list(range(10))
    once = len(opened)
    assert account.used > SMALL_PLAIN_BYTES
    async with call.node.reading_records:  # held by another request
        assert offsets(await read(call, LARGE_BATCH, start=10, kept=kept)) == list(range(10, 20))
    assert len(opened) == once
    assert offsets(await read(call, LARGE_BATCH, start=50, kept=kept)) == list(range(50, 60))
    assert len(opened) == 2 * once
    other = KeptBatch(account)
    await read(call, LARGE_BATCH, kept=other)
    assert other.take(next(iter_headers(LARGE_BATCH))[1], 10) is None, "the account is full"
    await read(call, batch_of(b"v", base_offset=60), start=60, kept=kept)
    assert account.used == 0


async def test_an_answer_has_so_many_bytes_at_most() -> None:
    """The record that exceeds the size is the last, so that each response has at least one record."""
    values = [b"v" * 1_000] * 9
    answer = await read(FakeCall(), batch_of(*values), room=2_500)
    assert (offsets(answer), answer["next_offset"]) == ([0, 1, 2], 3)


async def test_encoding_large_records_lets_other_work_go_on() -> None:
    """JSON of a megabyte takes milliseconds."""
    call = FakeCall()
    assert len((await read(call, batch_of(*[b"\x01" * 500_000] * 6)))["records"]) == 6
    assert call.turns.taken == 6


async def test_a_record_beyond_the_limit_is_refused_with_its_offset_and_hides_no_earlier_one() -> None:
    """The reader can go on behind it."""
    content = batch_of(b"small", b"v" * MAX_RECORD_BYTES, b"after")
    answer = await read(FakeCall(), content)
    assert (offsets(answer), answer["next_offset"]) == ([0], 1)
    with pytest.raises(ApiError, match=rf"offset 1 has .* at most {MAX_RECORD_BYTES} .* offset 2") as refusal:
        await read(FakeCall(), content, start=1)
    assert refusal.value.status == 413
    assert offsets(await read(FakeCall(), content, start=2)) == [2]


async def test_very_many_small_batches_let_other_work_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes can be 60,000 markers."""
    monkeypatch.setattr(records, "SLICE_BYTES", 10 * STEP_BYTES)
    marker = build_end_marker(7, 0, marker=EndTransactionMarker(commit=True, coordinator_epoch=0))
    call = FakeCall()
    await read(call, marker * 100)
    assert call.turns.taken == 10


async def test_decoded_records_take_turns_and_end_with_their_client() -> None:
    """Each record counts for more than its bytes, and a large payload takes turns by itself."""
    small = batch_of(*[msgspec.msgpack.encode({"id": number}) for number in range(2_000)])
    large = batch_of(msgspec.msgpack.encode(list(range(15_000))))
    for content, turns in ((small, 20), (large, 50)):
        call: Any = FakeCall()
        contents = Contents(call, "t", Choices("auto", "msgpack"))
        assert (await read(call, content, most=5_000, contents=contents))["records"]
        assert call.turns.taken > turns
        leaving: Any = FakeCall(patience=3)
        with pytest.raises(ConnectionResetError):
            await read(
                leaving, content, most=5_000, contents=Contents(leaving, "t", Choices("auto", "msgpack"))
            )


async def test_record_beyond_all_limits_is_cut_where_records_are_decoded() -> None:
    """Without a decoder it is refused; with one its first bytes are shown, and the size of the whole."""
    call: Any = FakeCall()
    contents = Contents(call, "t", Choices("auto", "auto"))
    answer = await read(call, batch_of(b"x" * (MAX_RECORD_BYTES + 1), b"y"), contents=contents)
    large, small = (each["value"] for each in answer["records"])
    assert (large["size"], large["is_cut"], len(large["data"])) == (
        MAX_RECORD_BYTES + 1,
        True,
        DECODED_MAX_BYTES,
    )
    assert (small["data"], small["decoder"]) == ("y", "text")


async def test_search_looks_at_each_record_in_turns() -> None:
    """What does not match is passed over, and the next page begins behind it."""
    content = batch_of(*[b"v%d" % number for number in range(2_000)])
    call: Any = FakeCall()
    contents, wanted = Contents(call, "t", Choices("auto", "auto")), Filter(Texts("", "V1999", "", ""))
    answer = await read(call, content, contents=contents, filter=wanted)
    assert (offsets(answer), answer["next_offset"], call.turns.taken > 20) == ([1999], 2000, True)
    cut = await read(call, content, contents=contents, filter=wanted, end=1999)
    assert (offsets(cut), cut["next_offset"]) == ([], 1999)
