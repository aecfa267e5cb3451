"""Bugs of voters that change: sets in force too early or too late, lost sets, and votes that no longer count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from raftlog.quorum.channel import Channel, dial
from raftlog.quorum.client import ControllerClient
from raftlog.quorum.core import RaftCore
from raftlog.quorum.driver import Driver
from raftlog.quorum.journal import Journal
from raftlog.quorum.known_voters import KnownVoters
from raftlog.quorum.observer import Observer
from raftlog.quorum.own_move import OwnMove
from raftlog.quorum.pysyncobj_adapter import PySyncObjAdapter
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.raft_links import RaftLinks
from raftlog.quorum.rpc import RpcClient
from raftlog.quorum.voter_proposal import VoterProposal
from raftlog.quorum.voter_requests import VoterRequests
from raftlog.quorum.voter_set import VoterSet
from raftlog.quorum.voters_record import Voter, VotersRecord
from raftlog_chaos.scenarios.voters_change import voters_change
from tests.planted.plant import Plant


def count_by_the_old_set(patch: pytest.MonkeyPatch) -> None:
    """A set is in force once it is committed, not once it is appended."""

    def committed(journal: Journal) -> VotersRecord | None:
        found = [record for index, record in journal._voters if index <= journal._commit_index]
        return found[-1] if found else None

    set_commit_index = Journal.setRaftCommitIndex

    def commit(journal: Journal, raftCommitIndex: int) -> None:
        before = committed(journal)
        set_commit_index(journal, raftCommitIndex)
        if committed(journal) is not before:
            journal.on_voters()

    patch.setattr(Journal, "voters", property(committed))
    patch.setattr(Journal, "setRaftCommitIndex", commit)


def _propose_at_once(core: RaftCore, command: bytes) -> int:
    index = core.journal.last_index + 1
    core.journal.add(command, index, core.term)
    return index


def change_before_own_commit(patch: pytest.MonkeyPatch) -> None:
    """A leader appends a set before an entry of its term is committed (the erratum of 2015)."""

    def propose(driver: Driver, make: Callable[[], VotersRecord]) -> VoterProposal:
        driver._change = VoterProposal(driver.core, make, driver._proposals.append)
        driver._schedule()
        return driver._change

    patch.setattr(VoterProposal, "waits", property(lambda proposal: False))
    patch.setattr(RaftCore, "propose_voters", _propose_at_once)
    patch.setattr(VoterRequests, "_check_leads", lambda changes: None)
    patch.setattr(Driver, "change_voters", propose)


def make_the_first_set_early(patch: pytest.MonkeyPatch) -> None:
    """A set is made when it is proposed, not when it is appended: the disk of a voter may be replaced meanwhile."""
    init = VoterProposal.__init__

    def made_now(
        proposal: VoterProposal, core: RaftCore, make: Callable[[], VotersRecord], take: Callable[[], None]
    ) -> None:
        record = make()
        init(proposal, core, lambda: record, take)

    patch.setattr(VoterProposal, "__init__", made_now)


def change_two_at_once(patch: pytest.MonkeyPatch) -> None:
    """A change does not wait for the change before it."""
    patch.setattr(Driver, "changes_voters", property(lambda driver: False))
    patch.setattr(VoterProposal, "waits", property(lambda proposal: False))
    patch.setattr(RaftCore, "propose_voters", _propose_at_once)


def forget_the_set_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot lacks the set of voters."""
    patch.setattr(Journal, "voters_at", lambda journal, index: b"")


def trust_an_id(patch: pytest.MonkeyPatch) -> None:
    """A voter with another directory keeps its vote, and its answers count."""
    patch.setattr(VoterSet, "may_grant", lambda voters, peer, asked, has_log: True)
    patch.setattr(VoterSet, "may_stand", property(lambda voters: voters.is_voter))
    patch.setattr(VoterSet, "counts", lambda voters, peer: peer in voters.peers)


def count_itself_always(patch: pytest.MonkeyPatch) -> None:
    """A leader that is no voter counts itself."""
    set_voters = PySyncObjAdapter.set_voters

    def with_itself(core: PySyncObjAdapter, peers: Iterable[int], *, votes: bool) -> None:
        set_voters(core, peers, votes=True)

    patch.setattr(PySyncObjAdapter, "set_voters", with_itself)


def count_itself_after_a_start(patch: pytest.MonkeyPatch) -> None:
    """A leader that its log's newest set lacks counts itself, until the next set."""
    make = RaftCore.__init__

    def make_with_itself(core: RaftCore, *given: Any, **more: Any) -> None:
        make(core, *given, **more)
        core.set_voters(core.voters.peers, votes=True)

    patch.setattr(RaftCore, "__init__", make_with_itself)


def keep_a_truncated_set(patch: pytest.MonkeyPatch) -> None:
    """A set stays in force after its entry was truncated."""
    truncate = Journal.truncate_from

    def without_notice(journal: Journal, index: int) -> None:
        notify, journal.on_voters = journal.on_voters, lambda: None
        truncate(journal, index)
        journal.on_voters = notify

    patch.setattr(Journal, "truncate_from", without_notice)


def leave_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A voter stands no more once a set without it is in its log, although no other voter may have that set."""
    patch.setattr(RaftCore, "completes_removal", property(lambda core: False))


def forget_the_known_voters(patch: pytest.MonkeyPatch) -> None:
    """A node without a vote starts with the voters of its config alone."""
    patch.setattr(KnownVoters, "read", lambda known: {})


def believe_old_sets(patch: pytest.MonkeyPatch) -> None:
    """A node that reads an old set of voters leaves the voter that sent it."""
    take = Observer._take_voters

    def take_and_leave(observer: Observer, command: bytes) -> None:
        take(observer, command)
        observer._listed.clear()
        channel = observer._channel
        if channel is not None and channel.peer_id not in observer.voters:
            channel.close("it is no voter any more")

    patch.setattr(Observer, "_take_voters", take_and_leave)


def dial_the_old_address(patch: pytest.MonkeyPatch) -> None:
    """A voter that has moved is dialled at the address of an old set alone, although linked nodes know the new one."""
    address = RaftLinks._address
    patch.setattr(RaftLinks, "_address", lambda links, peer, attempt=0: address(links, peer))


def move_in_the_set_before(patch: pytest.MonkeyPatch) -> None:
    """A move changes the set as it was before the leader dialled the new address."""
    find, found = VoterRequests._set_of, dict[object, VotersRecord]()

    def find_once(changes: VoterRequests, voter_id: int, directory_id: UUID) -> VotersRecord:
        return found.setdefault(asyncio.current_task(), find(changes, voter_id, directory_id))

    patch.setattr(VoterRequests, "_set_of", find_once)


def hold_up_other_changes(patch: pytest.MonkeyPatch) -> None:
    """A change waits its turn, also behind a node that cannot be reached."""
    change, turns = VoterRequests._change, dict[VoterRequests, asyncio.Lock]()

    async def change_in_turn(requests: VoterRequests, *given: Any, **more: Any) -> None:
        async with turns.setdefault(requests, asyncio.Lock()):
            await change(requests, *given, **more)

    patch.setattr(VoterRequests, "_change", change_in_turn)


def need_a_majority_of_the_former_set(patch: pytest.MonkeyPatch) -> None:
    """A removal waits for a majority of the voters at its beginning, and removed voters that are linked count."""
    until_majority = VoterRequests._until_majority

    async def until_former(
        requests: VoterRequests, next_set: Callable[[], VotersRecord], request: Any
    ) -> None:
        former = next_set()
        await until_majority(requests, lambda: former, request)

    patch.setattr(VoterRequests, "_until_majority", until_former)


async def _believe(requests: VoterRequests, voter: Voter) -> None:
    """Every address is right."""


def believe_every_address(patch: pytest.MonkeyPatch) -> None:
    """A leader does not try the address of a voter before it appends a set with it."""
    patch.setattr(VoterRequests, "_why_unreached", _believe)


def ask_no_successor(patch: pytest.MonkeyPatch) -> None:
    """A leader that has moved leads on, and no other node can put its new address into the set."""
    look = OwnMove.look

    async def look_as_follower(moves: OwnMove) -> None:
        if not moves._quorum.leading:
            await look(moves)

    patch.setattr(OwnMove, "look", look_as_follower)


def believe_an_uncommitted_move(patch: pytest.MonkeyPatch) -> None:
    """A voter asks a new leader for its new address only if its log lacks that before it follows the leader."""
    patch.setattr(Quorum, "may_have_moved", property(lambda quorum: quorum.own_move is not None))


def forget_the_config_once_settled(patch: pytest.MonkeyPatch) -> None:
    """A node without a vote that has read a set dials the addresses of that set alone."""
    settle = Observer._settle_on_voters

    def settle_and_forget(observer: Observer, channel: Channel) -> None:
        settle(observer, channel)
        if channel.peer_id in observer.voters:
            observer._listed.clear()

    patch.setattr(Observer, "_settle_on_voters", settle_and_forget)


def ask_at_the_address_of_the_set(patch: pytest.MonkeyPatch) -> None:
    """A request to a leader that has moved goes to the address of the set alone, where the leader is not any more."""

    async def dial_by_the_set(client: ControllerClient, target: int) -> RpcClient:
        address = client._follows.voters[target]
        channel = await dial(client._follows.identity, client._kind, address, expect=target)
        client._close_all_but(target)
        caller = client._callers[target] = RpcClient(channel)
        return caller

    patch.setattr(ControllerClient, "_dial", dial_by_the_set)


def trust_the_set_alone(patch: pytest.MonkeyPatch) -> None:
    """A voter without any link dials the addresses of its set, and never those of its config."""
    patch.setattr(RaftLinks, "_is_alone", False)


def take_any_link_for_a_voters(patch: pytest.MonkeyPatch) -> None:
    """A voter dials the addresses of its config only without any link, also to nodes that do not vote."""
    patch.setattr(RaftLinks, "_lacks_links", property(lambda links: not links._channels))


row = partial(Plant, scenario=voters_change, seconds=20.0)

PLANTS = [
    row(
        "old-set-counts", "KIP-853 in force when appended", plant=count_by_the_old_set, note="two majorities"
    ),
    row(
        "change-before-own-commit",
        "Raft erratum of 2015",
        plant=change_before_own_commit,
        note="two sets without a common majority",
    ),
    row(
        "two-changes-at-once", "KIP-853 one at a time", plant=change_two_at_once, note="sets two voters apart"
    ),
    row(
        "first-set-early",
        "KIP-853 replaced disk",
        plant=make_the_first_set_early,
        note="the set names a lost disk",
    ),
    row(
        "snapshot-without-voters",
        "KIP-853 snapshot",
        plant=forget_the_set_in_snapshots,
        note="back to the config",
    ),
    row("voter-by-id-alone", "KIP-853 lost vote", plant=trust_an_id, note="an empty disk counts"),
    row(
        "removed-leader-counts",
        "Raft thesis 4.2.2",
        plant=count_itself_always,
        note="commits with a minority",
        test="tests/quorum/test_voter_requests.py::test_a_leader_outside_of_the_set_does_not_count_itself",
    ),
    row(
        "restarted-leader-counts",
        "Raft thesis 4.2.2",
        plant=count_itself_after_a_start,
        note="commits with a minority",
        test="tests/quorum/test_voter_requests.py::"
        "test_a_leader_outside_of_the_set_does_not_count_itself_after_a_restart",
    ),
    row(
        "truncated-set-stays",
        "KIP-853 truncation",
        plant=keep_a_truncated_set,
        note="counts by a set of no leader",
        test="tests/quorum/test_voters_record.py::test_the_newest_set_is_in_force_once_appended",
    ),
    row(
        "known-voters-forgotten",
        "KIP-853 bootstrap",
        plant=forget_the_known_voters,
        note="a stale config finds no voter",
    ),
    row(
        "old-set-believed",
        "KIP-853 observer",
        plant=believe_old_sets,
        note="it dials voters that are gone",
        test="tests/quorum/test_voter_requests.py::test_old_sets_in_the_log_lead_no_observer_astray",
    ),
    row(
        "moved-voter-lost",
        "KIP-853 UpdateRaftVoter",
        plant=dial_the_old_address,
        note="no link to a leader",
        test="tests/quorum/test_voter_moves.py::test_a_node_with_an_old_set_finds_a_leader_that_has_moved",
    ),
    row(
        "config-not-dialled-alone",
        "KIP-853 UpdateRaftVoter",
        plant=trust_the_set_alone,
        note="no leader after all voters have moved",
    ),
    row(
        "any-link-counts",
        "KIP-853 UpdateRaftVoter",
        plant=take_any_link_for_a_voters,
        note="no leader after all voters have moved beside other controllers",
        test="tests/quorum/test_voter_moves.py::"
        "test_voters_that_all_moved_find_each_other_beside_controllers_that_do_not_vote",
    ),
    row(
        "move-in-the-set-before",
        "KIP-853 UpdateRaftVoter",
        plant=move_in_the_set_before,
        note="a voter that another leader added is lost",
        test="tests/quorum/test_voter_moves.py::test_a_move_keeps_voters_that_another_leader_added_meanwhile",
    ),
    row(
        "unreached-holds-up-changes",
        "KIP-853 one at a time",
        plant=hold_up_other_changes,
        note="no change while an auto join waits",
    ),
    row(
        "majority-of-the-former-set",
        "KIP-853 one at a time",
        plant=need_a_majority_of_the_former_set,
        note="the leader's next set has no majority",
        test="tests/quorum/test_voter_requests.py::"
        "test_a_removal_needs_a_majority_of_the_voters_that_remain_after_other_changes",
    ),
    row(
        "address-not-tried",
        "KIP-853 AddVoterHandler",
        plant=believe_every_address,
        note="the set names another node's address",
    ),
    row(
        "moved-leader-stays",
        "KIP-853 UpdateRaftVoter",
        plant=ask_no_successor,
        note="a leader's new address is never known",
    ),
    row(
        "uncommitted-move-believed",
        "KIP-853 UpdateRaftVoter",
        plant=believe_an_uncommitted_move,
        note="a truncated new address is asked for no more",
        test="tests/quorum/test_voter_moves.py::"
        "test_a_moved_voter_asks_again_if_the_set_with_its_address_is_truncated",
    ),
    row(
        "config-forgotten-once-settled",
        "KIP-853 UpdateRaftVoter",
        plant=forget_the_config_once_settled,
        note="an observer of voters that all moved",
    ),
    row(
        "leader-asked-at-former-address",
        "KIP-853 UpdateRaftVoter",
        plant=ask_at_the_address_of_the_set,
        note="no voter's move is asked for",
    ),
    row(
        "removed-leader-leaves", "Raft thesis 4.2.2", plant=leave_before_the_commit, note="no leader for ever"
    ),
]
