"""Claims about JSON objects in sequence: slow senders cause no more work than fast senders, and time out."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.admin.errors import ApiError
from raftlog.admin.json_stream import AT_ONCE, CUT_AT_ONCE, Objects, rounds
from raftlog.admin.json_text import FLOATS_AT_ONCE, read_json
from raftlog.admin.limits import Limits
from raftlog.base.memory import Account
from raftlog_chaos.simulator.loop import Run, SimLoop, simulate
from tests.kit.examples import examples


class Numbered(msgspec.Struct, forbid_unknown_fields=True):
    """An object with a number, and with whatever else."""

    n: int
    data: msgspec.Raw = msgspec.Raw(b"null")


class Dripping:
    """A body of which a piece arrives every so many seconds; for ever where `then` says so.

    `at_once`: it is there already whenever it is asked for, since the reader takes that long.
    """

    def __init__(
        self, pieces: list[bytes], every_s: float = 0.0, *, then: bytes = b"", at_once: bool = False
    ) -> None:
        self._pieces = list(pieces)
        self._every_s = every_s
        self._then = then
        self._at_once = at_once

    async def readany(self) -> bytes:
        if self._at_once:
            cast(SimLoop, asyncio.get_running_loop()).spend(self._every_s)
        elif self._every_s:
            await asyncio.sleep(self._every_s)
        return self._pieces.pop(0) if self._pieces else self._then


ROOM = Account("bodies", 1 << 30)


def read(body: Dripping, limits: Limits | None = None, bodies: Account | None = None) -> Run[list[Any]]:
    """Return all rounds, in virtual time."""

    async def scenario(_: object) -> list[Any]:
        arriving = rounds(body, Numbered, limits or Limits(), bodies or ROOM, of=Turns())
        return [list(each) async for each in arriving]

    return simulate(scenario)


class Turns:
    """A loop without other work; it counts the turns that were taken."""

    def __init__(self) -> None:
        self.taken = 0

    @property
    def turns(self) -> Turns:
        return self

    async def next(self) -> None:
        self.taken += 1


def read_body(text: bytes, turns: Turns | None = None) -> Numbered:
    """Return a body that is an object with a number."""
    found = asyncio.run(read_json(text, Numbered, what="body", of=turns or Turns()))
    assert isinstance(found, Numbered)
    return found


def fault(found: Any) -> tuple[int, str]:
    assert isinstance(found, ApiError)
    return found.status, str(found)


texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@settings(max_examples=examples(60))
@given(st.lists(st.dictionaries(st.text(st.characters(codec="utf-8")), texts)), st.integers(1, 9))
def test_objects_are_cut_where_they_end_however_they_arrive(objects: list[Any], size: int) -> None:
    """Brackets and quotes in strings, escapes and characters in two pieces: none of them ends an object."""
    body = b" \n".join(json.dumps(each, ensure_ascii=bool(size % 2)).encode() for each in objects)
    cutter = Objects(1 << 20, ROOM)
    found = [each for at in range(0, len(body), size) for each in cutter.feed(body[at : at + size])]
    assert [json.loads(each) for each in found] == objects
    assert (cutter.fault, cutter.cut_off) == (None, False)


def test_record_that_drips_is_looked_at_once() -> None:
    """The last pieces of a record cost no more than its first pieces; a parser that restarted each time took 15 times
    as long.
    """
    record = b'{"n": 1, "data": "' + b"x" * (1 << 16) + b'"}'
    pieces = [record[at : at + 16] for at in range(0, len(record), 16)]
    share = len(pieces) // 8

    def growth() -> float:
        cutter = Objects(1 << 20, ROOM)
        first_s = cpu_s_of_feeding(cutter, pieces[:share])
        cpu_s_of_feeding(cutter, pieces[share:-share])
        last_s = cpu_s_of_feeding(cutter, pieces[-share:-1])
        assert cutter.feed(pieces[-1]) == [record]
        return last_s / first_s

    assert min(growth() for _ in range(5)) < 5, "of five one is not held up by a garbage collection"


def cpu_s_of_feeding(cutter: Objects, pieces: list[bytes]) -> float:
    began_s = time.process_time()
    assert not [found for each in pieces for found in cutter.feed(each)]
    return time.process_time() - began_s


def test_record_that_does_not_end_is_given_up_in_time() -> None:
    """Only a whole record extends the time limit, bytes do not."""
    run = read(
        Dripping([b'{"n": 1}', b'{"n": 2, "data": "'], 1.0, then=b"x"), Limits(chunk_s=15, stream_s=600)
    )
    assert run.result[0] == [Numbered(1)]
    assert fault(run.result[1][0]) == (408, "no record arrived for 15 s")
    assert len(run.result) == 2
    assert run.seconds == pytest.approx(1 + 15, abs=0.1)


@pytest.mark.parametrize("at_once", [False, True])
def test_stream_that_does_not_end_is_ended(at_once: bool) -> None:
    """Other clients need the connection too, however well this client behaves. A connection without competitors is no
    exception.
    """
    body = Dripping([], 14.0, then=b'{"n": 1}', at_once=at_once)
    run = read(body, Limits(chunk_s=15, stream_s=60))
    assert fault(run.result[-1][0]) == (408, "a stream of records may last 60 s: send the rest in another")
    assert all(each == [Numbered(1)] for each in run.result[:-1])
    assert len(run.result) - 1 in (4, 5)
    assert at_once or run.seconds == pytest.approx(
        60, abs=0.1
    )  # what was spent is none of the loop's own time


def test_stream_whose_place_is_needed_ends_with_the_reason() -> None:
    """It ends at once, not at its timeout: reading the content raises the reason."""

    class Displaced(Dripping):
        async def readany(self) -> bytes:
            if not self._pieces:
                raise ApiError(429, "a newer one took this place")
            return await super().readany()

    run = read(Displaced([b'{"n": 1}{"n": 2', b"3}"]))
    assert run.result[:2] == [[Numbered(1)], [Numbered(23)]]
    assert fault(run.result[2][0]) == (429, "a newer one took this place")
    assert len(run.result) == 3
    assert run.seconds == pytest.approx(0, abs=0.1)


def test_record_that_is_too_large_is_refused_before_it_ends() -> None:
    """The line that it announces is never kept; those before it are written."""
    run = read(
        Dripping([b'{"n": 1} {"data": "', b"x" * 60, b"x" * 60], then=b"x" * 60), Limits(record_bytes=100)
    )
    assert run.result[0] == [Numbered(1)]
    assert fault(run.result[1][0]) == (413, "a record may have 100 bytes of JSON at most")
    whole = read(Dripping([b'{"n": 1} {"data": "%s"}{"n": 3}' % (b"x" * 200)]), Limits(record_bytes=100))
    assert whole.result[0] == [Numbered(1)]
    assert [fault(each[0])[0] for each in whole.result[1:]] == [413]


@pytest.mark.parametrize(
    ("body", "status", "rule"),
    [
        (b"7", 400, "must be a JSON object, but begins with '7'"),
        (b'{"n": 1', 400, "ends in the middle"),
        (b'{"n" 1}', 400, "not JSON"),
        (b'{"n": 1, "data": "\xff"}', 400, "not UTF-8"),
        (b'{"n": 1, "data": NaN}', 400, "not JSON"),
    ],
)
def test_what_is_no_json_ends_the_stream(body: bytes, status: int, rule: str) -> None:
    """The start of the next record cannot be found. The records before it count."""
    run = read(Dripping([b'{"n": 1}{"n": "one"}' + body + b'{"n": 9}' * (body[-1:] == b"}")]))
    found = [each for given in run.result for each in given]
    assert found[0] == Numbered(1)
    assert fault(found[1])[0] == 422
    assert fault(found[2])[0] == status
    assert rule in str(found[2])
    assert len(found) == 3


def test_many_records_are_handed_over_in_rounds() -> None:
    """The writer begins before all are read."""
    run = read(Dripping([b'{"n": 1}' * (2 * AT_ONCE + 1)]))
    assert [len(each) for each in run.result] == [AT_ONCE, AT_ONCE, 1]


@pytest.mark.parametrize("text", [b"2062.0", b"2062.000e0", b"20620E-1", b"2.062e3"])
def test_whole_number_may_be_written_with_a_fraction_of_zero(text: bytes) -> None:
    """To JSON Schema it is an integer. Values beside it keep their digits."""
    found = read_body(b'{"n": %s, "data": [1.0, "2.0"]}' % text)
    assert found.n == 2062
    assert bytes(found.data) == b'[1.0, "2.0"]'


@pytest.mark.parametrize("text", [b"2.5", b'"2"', b"true", b"1e400", b"1e30", b"1e999999999"])
def test_what_is_no_whole_number_is_refused(text: bytes) -> None:
    """Neither rounded, nor read out of a string; and no digits are made of an exponent."""
    for more in (b"", b', "m": 1.0', b', "data": 1.0'):
        with pytest.raises(ApiError) as caught:
            read_body(b'{"n": %s%s}' % (text, more))
        assert caught.value.status == 422


def test_digits_that_a_float_has_no_room_for_stay() -> None:
    """Numbers are not parsed, so that no digit is lost on the way."""
    found = read_body(b'{"n": 1, "data": 0.10000000000000000000001}')
    assert bytes(found.data) == b"0.10000000000000000000001"


@pytest.mark.parametrize(
    ("each", "turns"),
    [(b"1.5,", 1), (b"-2.0e0,", 1), (b'"2.0",', 0.05), (b"7,", 0.05), (b"[[]],", 0.001)],
)
def test_whole_numbers_are_looked_for_in_turns(each: bytes, turns: float) -> None:
    """A body of a megabyte has as many numbers and strings as fit, and other requests are answered meanwhile."""
    number, taken = 40_000, Turns()
    found = read_body(b'{"n": 2.0, "data": [%s0]}' % (each * number), taken)
    assert found.n == 2
    assert bytes(found.data) == b"[%s0]" % (each * number)
    assert taken.taken >= turns * number // FLOATS_AT_ONCE


@pytest.mark.parametrize("rest", [b'"\\' * 300_000, b'"' * 300_001, b'"a":[' + b'"\\",' * 200_000])
def test_quotes_without_an_end_behind_a_number_are_looked_at_once(rest: bytes) -> None:
    """The parser stops at the number, so that the rest may be no JSON. A search from each quote would take minutes."""
    with pytest.raises(ApiError) as caught:
        read_body(b'{"n": 2.0, ' + rest)
    assert caught.value.status == 400


def test_turn_that_fails_ends_the_reading_of_a_body() -> None:
    """A client that left is not read for."""

    class NoTurns:
        @property
        def turns(self) -> NoTurns:
            return self

        async def next(self) -> None:
            raise ConnectionResetError("the client left")

    with pytest.raises(ConnectionResetError):
        asyncio.run(read_json(b'{"n": 2.0}', Numbered, what="body", of=NoTurns()))


@pytest.mark.parametrize("each", [b"[", b'""', b"{}", b'"a",'])
def test_brackets_and_quotes_of_a_stream_are_looked_at_in_turns(each: bytes) -> None:
    """Each is a step of Python's; a piece of a stream may have a quarter of a million."""
    turns = Turns()

    async def scenario(_: object) -> list[Any]:
        body = Dripping([b'{"n": 1, "data": [' + each * 50_000])
        arriving = rounds(body, Numbered, Limits(), ROOM, of=turns)
        return [found async for found in arriving]

    simulate(scenario)
    assert turns.taken >= len(each) * 50_000 // CUT_AT_ONCE


def test_an_exponent_beyond_all_numbers_is_left_alone() -> None:
    """It is data, or its type refuses it; it does not make the request crash."""
    found = read_body(b'{"n": 2.0, "data": 1e9999999999999999999}')
    assert (found.n, bytes(found.data)) == (2, b"1e9999999999999999999")


def test_what_has_arrived_of_all_streams_counts_together_until_it_is_cut_or_over() -> None:
    """A stream that holds two megabytes of one record is one thing; two hundred of them at once are another."""
    bodies = Account("bodies", 100)
    cutter = Objects(1 << 20, bodies)
    assert cutter.feed(b'{"n":1} {"n":2,"data":"' + b"v" * 50) == [b'{"n":1}']
    assert bodies.used == len(b' {"n":2,"data":"') + 50
    (first,) = read(Dripping([b'{"n":3,"data":"' + b"v" * 50]), bodies=bodies).result
    assert fault(first[0]) == (503, "bodies that are arriving may have 100 bytes together, and have them")
    cutter.close()
    assert bodies.used == 0
    read(Dripping([b'{"n":4', b'"'], every_s=20), bodies=bodies)
    assert bodies.used == 0
