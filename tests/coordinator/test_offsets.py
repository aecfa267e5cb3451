"""Committed offsets: who may commit, what is kept, and what a new coordinator knows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import (
    IllegalGeneration,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.coordinator.group import DEAD, EMPTY, CommittedOffset
from raftlog.coordinator.requests import OffsetCommit
from tests.coordinator.journals import Answers, Bench


def test_a_member_commits_and_its_text_comes_back() -> None:
    """Offset, leader epoch and metadata survive the round trip (Tansu lost the metadata)."""
    bench = Bench()
    member_id, generation = bench.stable_member()
    assert bench.commit_offset(42, member_id=member_id, generation=generation, metadata="wörds") == (0,)
    assert bench.read().offsets == {("t", 0): CommittedOffset(42, 3, "wörds", bench.now_ms)}
    bench.commit_offset(41, member_id=member_id, generation=generation)
    bench.fail_over()
    assert bench.read().offsets[("t", 0)].offset == 41


def test_assign_only_consumers_commit_with_generation_minus_one() -> None:
    """Without members a group takes commits from outside (simple consumers, admin tools)."""
    bench = Bench()
    assert bench.commit_offset(7) == (0,)
    assert (bench.read().state, bench.read().offsets[("t", 0)].offset) == (EMPTY, 7)
    bench.fail_over()
    assert (bench.read().state, bench.read().offsets[("t", 0)].offset) == (EMPTY, 7)


def test_who_is_not_in_the_generation_may_not_commit() -> None:
    """The errors of Apache Kafka's validateOffsetCommit, and nothing is written."""
    bench = Bench()
    assert isinstance(bench.commit_offset(1, member_id="x", generation=1), IllegalGeneration)
    member_id = bench.join().member_id
    generation = bench.join(member_id).generation
    refused = bench.commit_offset(1, member_id=member_id, generation=generation)
    assert isinstance(refused, RebalanceInProgress)
    bench.sync(member_id, generation)
    written = len(bench.batches)
    assert isinstance(bench.commit_offset(1), UnknownMemberId)
    assert isinstance(bench.commit_offset(1, member_id="x", generation=generation), UnknownMemberId)
    assert isinstance(bench.commit_offset(1, member_id=member_id, generation=0), IllegalGeneration)
    assert isinstance(bench.commit_offset(1, member_id=member_id), IllegalGeneration)
    assert len(bench.batches) == written


def test_one_text_too_long_refuses_one_commit() -> None:
    """OFFSET_METADATA_TOO_LARGE counts bytes (offset.metadata.max.bytes 4096); the others are kept."""
    bench = Bench()
    texts = ("a" * 4096, "é" * 2049, "")
    commits = tuple(
        OffsetCommit("t", index, CommittedOffset(1, -1, text)) for index, text in enumerate(texts)
    )
    assert bench.commit_offset(0, commits=commits) == (0, OffsetMetadataTooLarge.code, 0)
    assert sorted(partition for _, partition in bench.read().offsets) == [0, 2]


def test_a_group_nobody_wrote_about_is_dead_and_not_remembered() -> None:
    """Reading an unknown group answers at once and leaves nothing behind."""
    bench = Bench()
    assert (bench.read("unknown").exists, bench.read("unknown").state) == (False, DEAD)
    assert bench.ask(bench.coordinator.read_all) == ()


def test_offsets_of_deleted_topics_go() -> None:
    """Tombstones for them are in the journal; other topics' offsets stay."""
    bench = Bench()
    commits = tuple(OffsetCommit(topic, 0, CommittedOffset(1)) for topic in ("gone", "kept"))
    bench.commit_offset(0, commits=commits)
    bench.coordinator.forget_topics(frozenset({"gone"}))
    bench.commit()
    assert list(bench.read().offsets) == [("kept", 0)]
    assert list(bench.replayed()["g"].offsets) == [("kept", 0)]


def test_commits_of_one_group_wait_and_are_answered_together() -> None:
    """A commit is answered at the high watermark, and read_all waits for it too."""
    bench = Bench(autocommit=False)
    assert bench.commit_offset(1) is None
    assert bench.commit_offset(2, group_id="h") is None
    everything = Answers()
    bench.coordinator.read_all(everything)
    assert everything == []
    bench.commit()
    assert [group.group_id for group in everything[0]] == ["g", "h"]


_steps = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from("gh"), st.integers(0, 3), st.integers(0, 99)),
    st.tuples(st.just("join")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("time"), st.integers(1, 8)),
    st.tuples(st.just("forget"), st.sampled_from("tu")),
    st.tuples(st.just("fail_over")),
)


def _take(bench: Bench, member: list[Any], step: tuple[Any, ...]) -> None:
    match step:
        case ("commit", group_id, partition, offset):
            commits = (OffsetCommit("tu"[offset % 2], partition, CommittedOffset(offset)),)
            bench.commit_offset(0, group_id=group_id, commits=commits)
        case ("join",):
            joined = bench.join(may_require_member_id=False)
            if hasattr(joined, "generation"):
                member[:] = [joined.member_id, joined.generation]
        case ("sync",) if member:
            bench.sync(*member)
        case ("leave",) if member:
            bench.leave(member[0])
        case ("time", seconds):
            bench.now += seconds
            bench.coordinator.tick(now=bench.now, now_ms=bench.now_ms)
            bench.commit()
        case ("forget", topic):
            bench.coordinator.forget_topics(frozenset({topic}))
            bench.commit()
        case ("fail_over",):
            bench.fail_over()


@given(st.lists(_steps, max_size=30))
def test_replay_gives_what_was_answered(steps: list[tuple[Any, ...]]) -> None:
    """After any history, reading the journal back gives every group exactly as its coordinator knew it."""
    bench = Bench()
    member: list[Any] = []
    for step in steps:
        _take(bench, member, step)
    known = {group.group_id: group for group in bench.ask(bench.coordinator.read_all)}
    replayed = bench.replayed()
    rebalancing = {group_id for group_id, group in known.items() if group.preparing}
    assert replayed.keys() - rebalancing == known.keys() - rebalancing
    assert all(replayed[each] == known[each] for each in known.keys() - rebalancing)
