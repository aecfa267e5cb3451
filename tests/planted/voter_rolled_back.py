"""Bugs around a voter with a metadata folder that went back in time, and around killed voters that pass for such."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.quorum import incarnations
from raftlog.quorum.channel import Channel
from raftlog.quorum.driver import Driver
from raftlog.quorum.incarnations import HeardVoters, Incarnations
from raftlog.quorum.raft_links import RaftLinks
from raftlog_chaos.scenarios.voter_rolled_back import voter_rolled_back
from tests.planted.plant import Plant


def ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """A directory with the right id is trusted."""
    patch.setattr(Driver, "went_back", lambda driver, heard: False)


def only_say_it(patch: pytest.MonkeyPatch) -> None:
    """The older copy is logged, and votes on under its id."""
    patch.setattr(Incarnations, "renew", lambda own: None)


def write_no_incarnation(patch: pytest.MonkeyPatch) -> None:
    """Each process begins a new history: a restart passes for an older copy."""
    patch.setattr(Incarnations, "_write", lambda own: None)


def name_the_last_process_only(patch: pytest.MonkeyPatch) -> None:
    """An older copy that was started again has a higher number than any that was heard."""
    patch.setattr(incarnations, "MAX_INCARNATIONS", 1)


def forget_what_was_heard(patch: pytest.MonkeyPatch) -> None:
    """A voter knows the others' incarnations in memory only."""
    patch.setattr(HeardVoters, "write", lambda heard, content: None)


def hear_messages_only(patch: pytest.MonkeyPatch) -> None:
    """Followers, which are silent to each other, never hear of each other's incarnations."""
    add = RaftLinks._add

    def add_heard(links: RaftLinks, channel: Channel) -> None:
        add(links, channel)
        links._unheard.clear()

    patch.setattr(RaftLinks, "_add", add_heard)


def count_without_memory(patch: pytest.MonkeyPatch) -> None:
    """A leader forgets how far it had counted a voter's log."""
    patch.setattr(Driver, "_note_counted", lambda driver, peer: None)


def believe_the_first_introduction(patch: pytest.MonkeyPatch) -> None:
    """A link with a handshake under way when a voter found out counts for the former directory."""

    def newest(channel: Channel) -> bytes:
        voter = channel.identity.voter
        return b"" if voter is None else voter.incarnation

    patch.setattr(Channel, "introduced_as", property(newest, lambda _channel, _said: None), raising=False)


row = partial(Plant, scenario=voter_rolled_back, seconds=20.0)

PLANTS = [
    row(
        "older-voter-trusted", "older copy of a voter", plant=ask_nobody, note="elects one that lacks commits"
    ),
    row("older-voter-only-logged", "older copy of a voter", plant=only_say_it, note="it votes on"),
    row(
        "voter-history-unwritten",
        "killed voter",
        plant=write_no_incarnation,
        note="no voter is left to elect",
    ),
    row("voter-history-of-one", "older copy started again", plant=name_the_last_process_only),
    row("heard-not-written", "older copy of a voter", plant=forget_what_was_heard, note="a restart forgets"),
    row("followers-unheard", "older copy of a voter", plant=hear_messages_only, note="only leaders know"),
    row("introduced-as-before", "older copy of a voter", plant=believe_the_first_introduction),
    row("counted-log-forgotten", "copy of the same process", plant=count_without_memory),
]
