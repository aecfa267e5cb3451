"""Bugs of a voter's identity: its number is trusted where its directory counts, and copies pass for the node."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.quorum import journal
from raftlog.quorum.link_claims import LinkClaims
from raftlog.quorum.raft_links import RaftLinks
from raftlog.quorum.voter_set import VoterSet
from raftlog.storage import log_directory
from raftlog_chaos.scenarios.voter_identity import voter_identity
from tests.planted.plant import Plant


def vote_with_an_empty_disk(patch: pytest.MonkeyPatch) -> None:
    """A voter grants votes whatever directory the candidate's metadata names."""
    patch.setattr(VoterSet, "may_grant", lambda voters, peer, asked, has_log: True)


def ignore_directory_ids(patch: pytest.MonkeyPatch) -> None:
    """A leader counts the answers of a number, whichever directory its hello named."""
    patch.setattr(VoterSet, "counts", lambda voters, peer: True)


def form_with_a_majority(patch: pytest.MonkeyPatch) -> None:
    """The first leader needs a majority only."""
    patch.setattr(VoterSet, "votes_needed", property(lambda voters: (len(voters.peers) + 1) // 2 + 1))


def let_newcomers_in(patch: pytest.MonkeyPatch) -> None:
    """A newly accepted link replaces the old link, whichever process is at its end."""
    patch.setattr(RaftLinks, "why_taken", lambda links, newcomer: None)


def ask_no_other_voter(patch: pytest.MonkeyPatch) -> None:
    """A link counts at once, whichever process of that voter another link has."""
    patch.setattr(LinkClaims, "ask", lambda claims, channel: claims._grant(channel))
    patch.setattr(LinkClaims, "show_links", lambda claims, peer: None)


def take_any_folder(patch: pytest.MonkeyPatch) -> None:
    """Missing lines of meta.properties are filled in, in a folder with data too."""
    patch.setattr(log_directory, "_data_in", lambda disk, path: None)
    patch.setattr(journal, "_check_owner", lambda disk, directory, directory_id: None)


def believe_any_directory_id(patch: pytest.MonkeyPatch) -> None:
    """The journal does not remember in which directory it was written."""
    patch.setattr(journal, "_check_owner", lambda disk, directory, directory_id: None)


def stand_by_a_shorter_list(patch: pytest.MonkeyPatch) -> None:
    """A voter trusts the list of its config, whichever voters its metadata names."""
    patch.setattr(VoterSet, "left_out", property(lambda voters: []))


def stand_by_a_longer_list(patch: pytest.MonkeyPatch) -> None:
    """A majority of a longer list of the config elects, whichever voters the metadata names."""
    patch.setattr(VoterSet, "newly_listed", property(lambda voters: []))


row = partial(Plant, scenario=voter_identity, seconds=20.0)

PLANTS = [
    row(
        "empty-voter-votes",
        "KIP-853 lost vote",
        plant=vote_with_an_empty_disk,
        note="elects one that lacks commits",
    ),
    row(
        "directory-id-ignored",
        "KIP-853 lost log",
        plant=ignore_directory_ids,
        note="two leaders commit at once",
    ),
    row(
        "majority-forms",
        "KIP-853 two empty disks",
        plant=form_with_a_majority,
        note="a second cluster without topics",
    ),
    row("copy-replaces-link", "KIP-853 copy of a node", plant=let_newcomers_in, note="links change for ever"),
    row("links-unasked", "KIP-853 copy of a node", plant=ask_no_other_voter, note="one voter votes twice"),
    row("properties-defaulted", "empty meta.properties", plant=take_any_folder, note="a disk passes for new"),
    row(
        "directory-id-believed",
        "foreign meta.properties",
        plant=believe_any_directory_id,
        note="a vote under a new id",
    ),
    row(
        "shorter-list-trusted",
        "edited controller.quorum.voters",
        plant=stand_by_a_shorter_list,
        note="a second leader with a majority of its own list",
    ),
    row(
        "longer-list-trusted",
        "edited controller.quorum.voters",
        plant=stand_by_a_longer_list,
        note="a second leader with a majority of the longer list",
    ),
]
