"""Frames of chance: the same for the same seed, most of them understood, and of every API and version."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import islice
from uuid import UUID

from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog_chaos.fuzz.decoding import decode
from raftlog_chaos.fuzz.draw import KnownValues
from raftlog_chaos.fuzz.frames import HARMFUL, SERVED, Frames, mutants

FRAMES = 4_000


def some(seed: str, count: int = FRAMES, **options: frozenset[int]) -> list[bytes]:
    frames = Frames(seed, **options)
    return [frame.data for frame in islice(iter(frames.next, None), count)]


def header(data: bytes) -> tuple[int, int]:
    """The API and version that a frame says it is of; (-1, -1): it is too short."""
    return struct.unpack_from(">hh", data, 4) if len(data) >= 8 else (-1, -1)


def test_the_same_seed_gives_the_same_frames():
    """A finding can be had again."""
    assert some("7", 300) == some("7", 300)
    assert some("7", 300) != some("8", 300)


def test_most_frames_are_understood_and_many_are_not():
    """Only understood frames reach a handler; the others test the refusals."""
    found = Counter(decode(data) for data in some("1"))
    assert 0.5 < found["understood"] / FRAMES < 0.9
    assert found["refused"] > FRAMES / 20
    assert found["no schema"] and found["no frame"]


def test_every_version_of_every_api_comes_up():
    """APIs that are served, and APIs that are not."""
    seen = {header(data) for data in some("1", 3 * FRAMES)}
    assert not {each for each in SERVED if each[0] not in HARMFUL} - seen
    assert any(key in APIS and key not in served() for key, _ in seen)


def test_apis_can_be_left_out():
    """A live run spares the brokers' own configs."""
    alter = {33, 44}
    drawn = [data for data in some("1", FRAMES, without=frozenset(alter)) if decode(data) == "understood"]
    # a mutation of the first bytes may still turn a frame into another
    assert sum(header(data)[0] in alter for data in drawn) < FRAMES / 200


def test_mutants_differ_from_their_frame_and_mostly_keep_their_length_true():
    """Else nearly all of them would be cut off at the next frame."""
    frames = Frames("3")
    data = next(each.data for each in iter(frames.next, None) if len(each.data) > 40)
    made = mutants(data, frames.rng, 200)
    assert sum(each != data for each in made) > 190
    assert sum(struct.unpack_from(">i", each)[0] == len(each) - 4 for each in made) > 180


def test_values_from_answers_are_sent_again():
    """A group's member or a transaction's producer is reached only by the id that the broker gave out."""
    known = KnownValues()
    known.learn(build_response(22, 4, error_code=0, producer_id=4_711, producer_epoch=3))
    assert known.of("producer_id") is not None
    frames = Frames("5", known)
    data = b"".join(frame.data for frame in islice(iter(frames.next, None), FRAMES))
    assert data.count(struct.pack(">q", 4_711)) > 10


def test_other_peoples_topics_are_not_learned():
    """In a live run they are the bystanders', also where an assignment names them by their ids alone."""
    known, ours, theirs = KnownValues(), UUID(int=1), UUID(int=2)
    topic = response_builders(3, 12).MetadataResponseTopic
    assigned = response_builders(68, 0)

    def assign(*ids: UUID) -> None:
        topics = tuple(assigned.TopicPartitions(topic_id=each, partitions=(0,)) for each in ids)
        known.learn(build_response(68, 0, assignment=assigned.Assignment(topic_partitions=topics)))

    assign(ours, theirs)
    assert known.of("topic_id") is None
    known.learn(
        build_response(
            3, 12, topics=(topic(name="bystanders", topic_id=theirs), topic(name="fuzz-0", topic_id=ours))
        )
    )
    assign(ours, theirs)
    assert set(known.of("topic_id") or ()) == {ours}
