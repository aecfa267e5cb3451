"""Bugs around the Raft core: each removes a filter or rule that `raftlog.quorum` puts around it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from raftlog.quorum.core import RaftCore
from raftlog.quorum.messages import AppendEntries, AppendEntriesResponse, Message, SnapshotChunk
from raftlog.quorum.observer_feed import ObserverFeed
from raftlog_chaos.scenarios.quorum import quorum_storm
from raftlog_chaos.scenarios.quorum_choreography import quorum_late_answers, quorum_rivals
from tests.planted.plant import Plant

SECONDS = 6.0


def _append_entries(core: RaftCore, peer: int, message: AppendEntries, commit_index: int) -> None:
    core.receive(
        peer,
        type="append_entries",
        term=message.term,
        commit_index=commit_index,
        entries=message.entries,
        prevLogIdx=message.prev_index,
        prevLogTerm=message.prev_term,
    )


def truncate_always(patch: pytest.MonkeyPatch) -> None:
    """Every append_entries deletes what comes after its first entry, matching or not."""

    def on_append_entries(core: RaftCore, peer: int, message: AppendEntries) -> None:
        if message.term >= core.term:
            end = message.prev_index + len(message.entries)
            core._truncation_allowed = True
            _append_entries(core, peer, message, min(message.commit_index, end))
            core._truncation_allowed = False

    patch.setattr(RaftCore, "_on_append_entries", on_append_entries)


def commit_beyond_the_message(patch: pytest.MonkeyPatch) -> None:
    """A follower commits what the leader committed, as far as its own log goes."""
    on_append_entries = RaftCore._on_append_entries

    def uncapped(core: RaftCore, peer: int, message: AppendEntries) -> None:
        passed = core.receive

        def pass_on(peer: int, **fields: Any) -> None:
            passed(peer, **{**fields, "commit_index": message.commit_index})

        core.receive = pass_on  # type: ignore[method-assign]
        try:
            on_append_entries(core, peer, message)
        finally:
            core.receive = passed  # type: ignore[method-assign]

    patch.setattr(RaftCore, "_on_append_entries", uncapped)


def commit_by_a_chunk(patch: pytest.MonkeyPatch) -> None:
    """A part of a snapshot commits the follower's own log as far as the snapshot goes."""
    deliver = RaftCore.on_message

    def deliver_chunk(core: RaftCore, peer: int, message: Message) -> float | None:
        if isinstance(message, SnapshotChunk) and message.term >= core.term:
            core.receive(peer, type="append_entries", term=message.term, commit_index=message.index)
        return deliver(core, peer, message)

    patch.setattr(RaftCore, "on_message", deliver_chunk)


def believe_late_answers(patch: pytest.MonkeyPatch) -> None:
    """A response to a message of an earlier term counts in this term."""
    on_next_index = RaftCore._on_next_index

    def whatever_term(core: RaftCore, peer: int, message: AppendEntriesResponse) -> None:
        if message.term < core.term:
            message = AppendEntriesResponse(core.term, message.next_index, message.reset, message.success)
        on_next_index(core, peer, message)

    patch.setattr(RaftCore, "_on_next_index", whatever_term)


def fall_back_by_one(patch: pytest.MonkeyPatch) -> None:
    """A follower that does not match asks for what the core's two resets ask for, which undo each other."""

    def outbound_next_index(core: RaftCore, message: dict[str, Any]) -> Message:
        return AppendEntriesResponse(
            core.term, message["next_node_idx"], message["reset"], message["success"]
        )

    patch.setattr(RaftCore, "_outbound_next_index", outbound_next_index)


def commit_old_terms_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Raft §5.4.2, figure 8: an entry of an earlier term counts as committed once a majority holds it."""
    tick = RaftCore.tick

    def count_and_tick(core: RaftCore) -> None:
        if core.is_leader:
            ranks = sorted([core.journal.last_index, *map(core.match_index, core._nodes)], reverse=True)
            core.commit_index = max(core.commit_index, ranks[len(ranks) // 2])
        tick(core)

    patch.setattr(RaftCore, "tick", count_and_tick)


def feed_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A voter streams its whole log to observers."""

    push = ObserverFeed._push

    def push_all(self: ObserverFeed, follower: Any) -> None:
        push(self, follower)
        last = self._driver.journal.last_index
        if (
            follower.next_index is not None
            and self._driver.journal.first_index <= follower.next_index <= last
        ):
            self._send_batches(follower, last)

    patch.setattr(ObserverFeed, "_push", push_all)


late = partial(Plant, scenario=quorum_late_answers, seconds=12.0)
rivals = partial(Plant, scenario=quorum_rivals, seconds=12.0)
storm = partial(Plant, scenario=quorum_storm, seconds=SECONDS)

PLANTS = [
    storm(
        "truncation-filter-off",
        "P4 truncation",
        plant=truncate_always,
        note="a late message deletes what was acknowledged",
    ),
    late(
        "stale-answer-counts",
        "P5 answers",
        plant=believe_late_answers,
        note="what was cut since counts as held",
    ),
    storm("back-off-filter-off", "liveness", plant=fall_back_by_one, note="a stale tail is never replaced"),
    rivals(
        "old-term-committed-by-counting", "Raft §5.4.2", plant=commit_old_terms_by_counting, note="figure 8"
    ),
    storm(
        "commit-cap-off", "Raft §5.3", plant=commit_beyond_the_message, note="an unverified tail is applied"
    ),
    storm(
        "snapshot-commit-filter-off", "Raft §7", plant=commit_by_a_chunk, note="an unverified tail is applied"
    ),
    storm(
        "observer-fed-uncommitted",
        "observers",
        plant=feed_what_is_not_committed,
        note="what an election takes back was shown",
    ),
]
