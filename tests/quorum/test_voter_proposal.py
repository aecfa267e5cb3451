"""The end of a proposed set of voters on a leader."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import NotController
from raftlog.quorum.voter_proposal import VoterProposal
from raftlog.quorum.voter_requests import VoterRequests
from raftlog.quorum.voters_record import Voter, VotersRecord
from tests.quorum.changing import Changing, run


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


def test_a_change_is_logged_once_it_is_committed() -> None:
    """A request without AckWhenCommitted is answered before that, and the change may yet be lost."""

    async def test(world: Changing) -> None:
        await world.begin()
        leader = await world.cluster.leader()
        hosts = world.cluster.hosts
        changes = world.cluster.nodes[leader].voter_requests
        await world.cluster.settle(b"before")
        for each in (1, 2, 3):
            if each != leader:
                world.loop.clog(hosts[each], hosts[leader])
        until = world.loop.time() + 20
        added = hosts[leader].start(changes.add(world.voter(4), until, by="User:ann", until_committed=False))
        await world.cluster.until(added.done)
        assert changes_in(logs) == []
        world.loop.heal()
        await world.cluster.settle(b"after")
        assert changes_in(logs) == [("quorum_voter_added", 4, "User:ann")]

    with capture_logs() as logs:
        run(test)


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_change_is_logged_even_if_its_request_has_timed_out(timed_out: bool) -> None:
    """Once, by the leader that commits it."""

    async def test(world: Changing) -> None:
        await world.begin()
        await world.cluster.settle(b"before")
        leader = await world.cluster.leader()
        hosts, gone = world.cluster.hosts, leader % 3 + 1
        if timed_out:
            for each in (1, 2, 3):
                if each != leader:
                    world.loop.clog(hosts[each], hosts[leader])

        async def remove(changes: VoterRequests, until: float) -> None:
            await changes.remove(gone, world.directories[gone], until, by="User:bob")

        refused = await world.ask(remove, node=leader, seconds=0.2 if timed_out else 5.0)
        assert (refused is not None) == timed_out
        world.loop.heal()
        await world.cluster.settle(b"after")
        assert changes_in(logs) == [("quorum_voter_removed", gone, "User:bob")]

    with capture_logs() as logs:
        run(test)


def changes_in(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, int, str]]:
    """The changes of voters among log lines: event, voter and principal."""
    return [
        (each["event"], each["voter_id"], each["by"])
        for each in logs
        if each["event"].startswith("quorum_voter_")
    ]
