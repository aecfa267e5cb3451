"""raftlog.broker.network.request_memory: which frames are read on under a full budget: at least one always is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.memory import Account
from raftlog.broker.network.request_memory import (
    LARGE_BYTES,
    MAPPING_BYTES,
    SMALL_WINDOW_BYTES,
    SPARE_MAPPINGS,
    WINDOW_BYTES,
    FrameMappings,
    FrameRest,
    RequestMemory,
)


class ReadingConnection:
    """A connection with a part of a frame."""

    def __init__(self, memory: RequestMemory, frame: int, held: int) -> None:
        self.memory, self.frame, self.held = memory, frame, held
        self.granted = 0
        self.reads = False
        memory.acquire(held)

    def wait(self) -> None:
        self.reads = False
        self.memory.wait(self, self.frame - self.held)

    def read_on(self) -> None:
        self.reads = True

    def arrive(self, size: int) -> None:
        self.held += size
        self.memory.arrived(self, size)

    def finish(self) -> None:
        """The rest of the frame comes, and it is handled."""
        self.arrive(self.frame - self.held)
        self.memory.remove(self)
        self.memory.release(self.held)


def request_memory(limit: int) -> tuple[Account, RequestMemory]:
    account = Account("requests", limit)
    return account, RequestMemory(account)


def test_below_three_quarters_everybody_reads_whole_windows() -> None:
    """From there on small pieces, which small requests fit into."""
    _, memory = request_memory(100)
    memory.acquire(74)
    assert (memory.is_short, len(memory.window)) == (False, WINDOW_BYTES)
    memory.acquire(1)
    assert (memory.is_short, len(memory.window)) == (True, SMALL_WINDOW_BYTES)
    memory.release(1)
    assert (memory.is_short, len(memory.window)) == (False, WINDOW_BYTES)


def test_two_that_hold_half_a_frame_each_do_not_wait_for_each_other() -> None:
    """One goes on beyond the limit, though neither's rest fits; when it is through, the other does."""
    account, memory = request_memory(100)
    first, second = ReadingConnection(memory, 90, 45), ReadingConnection(memory, 90, 45)
    first.wait()
    second.wait()
    assert (first.reads, second.reads) == (True, False)
    first.arrive(20)
    assert not second.reads
    first.finish()
    assert second.reads
    second.finish()
    assert (account.used, memory.waiting) == (0, 0)


def test_a_frame_that_is_larger_than_the_whole_is_admitted_alone() -> None:
    """Else it would never come, however often its client tries."""
    account, memory = request_memory(100)
    huge = ReadingConnection(memory, 1_000, 80)
    huge.wait()
    assert huge.reads
    huge.finish()
    assert account.used == 0


def test_the_requests_that_need_least_are_granted_first_and_several_at_once() -> None:
    """A small request does not wait for earlier large requests; all grants together fit."""
    _, memory = request_memory(1_000)
    large = [ReadingConnection(memory, 10_000, 250) for _ in range(3)]
    for each in large:
        each.wait()
    small = [ReadingConnection(memory, 100, 10) for _ in range(3)]
    for each in small:
        each.wait()
    assert [each.reads for each in large] == [True, False, False], "nobody else waited then"
    large[0].finish()
    assert [each.reads for each in small] == [True] * 3
    assert [each.reads for each in large[1:]] == [False, False]
    for each in small:
        each.finish()
    assert [each.reads for each in large[1:]] == [True, False]


def test_a_large_one_waits_while_others_have_room_that_it_would_take() -> None:
    """Only the first grant may go beyond the limit."""
    _, memory = request_memory(1_000)
    busy = ReadingConnection(memory, 900, 760)
    busy.wait()
    large, small = ReadingConnection(memory, 900, 10), ReadingConnection(memory, 60, 10)
    large.wait()
    small.wait()
    assert (busy.reads, large.reads, small.reads) == (True, False, True)


def test_a_connection_that_closes_returns_its_memory() -> None:
    """Whether it waited or had a grant."""
    account, memory = request_memory(100)
    first, second, third = (ReadingConnection(memory, 90, 30) for _ in range(3))
    for each in (first, second, third):
        each.wait()
    for each in (first, second):
        memory.remove(each)
        memory.release(each.held)
    assert third.reads
    third.finish()
    assert account.used == 0


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 100)), min_size=1, max_size=30),
    st.lists(st.integers(0, 29)),
)
def test_a_frame_is_always_read_on_and_all_are_through_in_the_end(
    frames: list[tuple[int, int]], leavers: list[int]
) -> None:
    """At the end the count is zero, whatever they hold and lack, and whichever leave."""
    account, memory = request_memory(300)
    readers = [ReadingConnection(memory, frame, frame * held // 100) for frame, held in frames]
    for each in readers:
        each.wait()
    left = dict.fromkeys(readers)
    for number in leavers:
        reader = readers[number % len(readers)]
        if reader in left:
            del left[reader]
            memory.remove(reader)
            memory.release(reader.held)
    while left:
        reading = [each for each in left if each.reads]
        assert reading
        for each in reading:
            del left[each]
            each.finish()
    assert (account.used, memory.waiting) == (0, 0)


def receive(rest: FrameRest, sent: bytes, needed: int) -> None:
    """Have bytes arrive as a transport gives them: as many at once as there is room for."""
    while sent:
        room = rest.room(needed)
        size = min(len(sent), len(room))
        room[:size] = sent[:size]
        rest.size += size
        sent = sent[size:]


@given(st.lists(st.integers(1, WINDOW_BYTES) | st.just(WINDOW_BYTES), min_size=1, max_size=12), st.booleans())
def test_a_rest_is_what_was_received(sizes: list[int], announced: bool) -> None:
    """In a buffer, in a mapping, and across the change between them."""
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    whole = b"".join(pieces)
    needed = len(whole) if announced else 4
    rest = FrameRest(memoryview(pieces[0]), needed, FrameMappings())
    for piece in pieces[1:]:
        receive(rest, piece, max(needed, rest.size + len(piece)))
    assert (rest.size, bytes(rest.view())) == (len(whole), whole)


def test_the_rest_of_a_large_frame_is_not_copied_as_it_grows() -> None:
    """Twice its memory would be needed for that, and the heap would keep the hole."""
    rest = FrameRest(memoryview(bytes(100)), 10 * MAPPING_BYTES, FrameMappings())
    receive(rest, bytes(2 * LARGE_BYTES), 10 * MAPPING_BYTES)
    mapping = rest._buffer
    receive(rest, bytes(8 * MAPPING_BYTES), 10 * MAPPING_BYTES)
    assert rest._buffer is mapping


def test_nothing_behind_the_first_frame_is_received_with_it() -> None:
    """The next frames then lie in the window, where they are handled without a copy."""
    needed = LARGE_BYTES + 10
    rest = FrameRest(memoryview(bytes(LARGE_BYTES)), needed, FrameMappings())
    assert len(rest.room(needed)) == 10


def large_rest(mappings: FrameMappings) -> FrameRest:
    return FrameRest(memoryview(bytes(LARGE_BYTES)), MAPPING_BYTES, mappings)


def test_the_memory_of_a_large_frame_serves_the_next_one() -> None:
    """Fresh pages cost as much as what is written to them."""
    mappings = FrameMappings()
    rest = large_rest(mappings)
    mapping = rest._buffer
    rest.free()
    assert large_rest(mappings)._buffer is mapping


def test_referenced_memory_is_not_used_again() -> None:
    """A batch that waits to be appended lies there."""
    mappings = FrameMappings()
    rest = large_rest(mappings)
    rest.is_kept = True
    rest.free()
    assert mappings.spares == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_pages_of_frames_before_are_given_back(is_kept: bool) -> None:
    """A frame that stalls, or is kept, takes what it counts: what has arrived of it."""
    mappings = FrameMappings()
    before = FrameRest(memoryview(b"x" * MAPPING_BYTES), MAPPING_BYTES + 1, mappings)
    before.free()
    rest = large_rest(mappings)
    if is_kept:
        rest.keep()
    else:
        rest.trim()
    left = bytes(rest.room(MAPPING_BYTES))
    assert rest.view() == bytes(LARGE_BYTES)
    assert left == bytes(len(left))


def test_few_mappings_are_kept() -> None:
    """They are counted by no account."""
    mappings = FrameMappings()
    for rest in [large_rest(mappings) for _ in range(SPARE_MAPPINGS + 3)]:
        rest.free()
    huge = FrameRest(memoryview(bytes(LARGE_BYTES)), 2 * MAPPING_BYTES, FrameMappings())
    huge.free()
    assert (len(mappings.spares), huge._mappings.spares) == (SPARE_MAPPINGS, [])
