"""The end of a proposed set of voters on a leader."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.base.errors import NotController
from raftlog.quorum.voter_proposal import VoterProposal
from raftlog.quorum.voters_record import Voter, VotersRecord


class _Core:
    """What a proposal sees of a leader's log."""

    is_leader = True
    term = 1
    applied_index = commit_index = last_index = 7

    @property
    def journal(self) -> _Core:
        return self

    def propose_voters(self, _command: bytes) -> int:
        self.last_index += 1
        return self.last_index


async def test_a_proposal_ends_with_the_term_in_which_it_was_made() -> None:
    """The lead may be lost and won again between two rounds. Another entry may be committed at its index since."""
    core = _Core()
    record = VotersRecord([Voter(1, bytes(range(16)), "n1", 9093)])
    proposal = VoterProposal(core, lambda: record, lambda: None)  # type: ignore[arg-type]
    proposal.append_if_due()
    assert proposal.appended.done() and not proposal.committed.done()
    core.term, core.commit_index = 3, 8
    proposal.end_if_committed()
    with pytest.raises(NotController):
        await asyncio.wait_for(proposal.committed, 1)
