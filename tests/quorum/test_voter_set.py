"""Claims about which directories vote (KIP-853's ReplicaKey): candidates, votes granted, and votes counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import pytest

from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.quorum.handshake_messages import Introduced
from raftlog.quorum.voter_set import UNRECORDED, VoterSet
from raftlog.quorum.voters_record import Voter, voters_record

OWN, SECOND, THIRD, NEW = (UUID(int=each) for each in (1, 2, 3, 9))
RECORDED = {1: OWN, 2: SECOND, 3: THIRD}


class Asked(NamedTuple):
    """A request for a vote."""

    directory_id: bytes = b""
    forming: bool = False
    voters: tuple[int, ...] = ()


def voters(
    recorded: Mapping[int, UUID] | None, *, directory_id: UUID = OWN, barred: str | None = None
) -> VoterSet:
    """Return voter 1 of three, as its metadata names the directories; None: it names no cluster."""
    return VoterSet(1, (2, 3), directory_id=directory_id, recorded=lambda: recorded, barred=barred)


def linked(recorded: Mapping[int, UUID] | None, **directories: UUID) -> VoterSet:
    """Return voter 1, linked with `two` and `three`."""
    found = voters(recorded)
    found.linked = {{"two": 2, "three": 3}[name]: each for name, each in directories.items()}
    return found


# -- standing for leader


def test_a_voter_stands_once_its_own_metadata_names_its_directory() -> None:
    """A voter with a new disk has neither the entries nor the vote of its former disk."""
    assert voters(RECORDED).may_stand
    assert not voters(RECORDED, directory_id=NEW).may_stand


def test_a_voter_counts_by_its_number_where_no_directory_is_recorded() -> None:
    """Below level 2 of raftlog.metadata.version, and for a voter that is not recorded yet."""
    assert voters({}).may_stand
    assert voters({2: SECOND}, directory_id=NEW).may_stand


def test_only_a_forming_voter_that_is_not_barred_stands() -> None:
    """A voter with partitions of a cluster in its folder must not help to form another."""
    assert voters(None).may_stand
    assert not voters(None, barred="it holds partitions").may_stand
    assert voters(RECORDED, barred="it holds partitions").may_stand, "it has the metadata"


def test_an_older_copy_neither_stands_nor_forms_a_cluster() -> None:
    """It goes on under another id, and what it lacks may be the name of the cluster."""
    for recorded in (RECORDED, None):
        found = voters(recorded)
        found.distrust(NEW)
        assert not found.may_stand
        assert not found.may_grant(2, Asked(forming=True), has_log=True)


def test_the_first_leader_needs_all_votes_and_a_later_one_most() -> None:
    """Two empty disks must not form a cluster beside the cluster that the third voter's metadata names."""
    assert voters(None).votes_needed == 3
    assert voters({}).votes_needed == voters(RECORDED).votes_needed == 2


@pytest.mark.parametrize("peers", [(), (2,), (2, 4)])
def test_a_voter_whose_config_lacks_a_recorded_voter_does_not_stand(peers: tuple[int, ...]) -> None:
    """A majority of the shorter list may miss one of the recorded voters: there would be two leaders."""
    found = VoterSet(1, peers, directory_id=OWN, recorded=lambda: RECORDED)
    assert found.left_out == sorted({2, 3} - set(peers))
    assert not found.may_stand
    reason = found.why_no_leader()
    assert reason is not None and "controller.quorum.voters" in reason and "[1, 2, 3]" in reason


def test_a_config_with_more_voters_than_are_recorded_needs_all_votes() -> None:
    """Majorities of the longer and of the former list may have no voter in common: there would be two leaders."""
    found = voters({1: OWN, 2: SECOND})
    assert found.left_out == [] and found.may_stand
    assert found.newly_listed == [3] and found.votes_needed == 3
    reason = found.why_no_leader()
    assert reason is not None and "lists [3]" in reason and "[1, 2, 3]" in reason
    assert voters({}).newly_listed == voters(None).newly_listed == voters(RECORDED).newly_listed == []


def test_a_vote_for_a_candidate_with_a_longer_list_needs_that_list() -> None:
    """Whichever directory the candidate names: a voter with the former list may elect another leader."""
    for asked in (Asked(OWN.bytes, voters=(1, 2, 3)), Asked(UNRECORDED, voters=(1, 2, 3))):
        assert voters(RECORDED).may_grant(2, asked, has_log=True)
        former = VoterSet(1, (2,), directory_id=OWN, recorded=lambda: {1: OWN, 2: SECOND})
        assert not former.may_grant(2, asked, has_log=True)
    assert VoterSet(1, (3, 2), recorded=lambda: {2: SECOND}).yields_to(3) is False, "all agree on the lowest"


def test_the_voters_of_the_log_count_whatever_the_config_lists() -> None:
    """From kraft.version 1 on, as in Kafka (KIP-853)."""
    found = VoterSet(1, directory_id=OWN, recorded=lambda: RECORDED)
    found.adopt(voters_record(Voter(each, directory.bytes, "", 0) for each, directory in RECORDED.items()))
    assert found.may_stand and found.votes_needed == 2 and found.peers == (2, 3)
    found.adopt(None)
    assert not found.may_stand, "the set was truncated"


# -- granting votes


def test_a_request_names_the_directory_that_the_sender_has_recorded() -> None:
    """As Kafka's VoterDirectoryId."""
    assert voters(RECORDED).claim(2) == (SECOND.bytes, False, ())
    assert voters({1: OWN}).claim(2) == (UNRECORDED, False, (1, 2, 3))
    assert voters({}).claim(2) == (b"", False, ())
    assert voters(None).claim(2) == (b"", True, ())


def test_a_vote_is_granted_only_to_a_candidate_that_names_this_directory() -> None:
    """Kafka: INVALID_VOTER_KEY."""
    for recorded in (RECORDED, {}, None):
        assert voters(recorded).may_grant(2, Asked(OWN.bytes), has_log=False)
        assert not voters(recorded).may_grant(2, Asked(SECOND.bytes), has_log=True)
    assert not voters(RECORDED, directory_id=NEW).may_grant(2, Asked(OWN.bytes), has_log=True)


@pytest.mark.parametrize("directory_id", [b"", UNRECORDED])
def test_a_candidate_need_not_name_a_directory_to_get_a_vote(directory_id: bytes) -> None:
    """A candidate may not know yet that directories are recorded."""
    assert voters(RECORDED).may_grant(2, Asked(directory_id), has_log=True)
    assert not voters(RECORDED, directory_id=NEW).may_grant(2, Asked(directory_id), has_log=True)


def test_an_empty_voter_votes_only_for_a_candidate_that_forms_a_cluster_with_it() -> None:
    """A candidate of a cluster has metadata, which it lacks; a log with unknown commits suffices."""
    empty = voters(None)
    assert empty.may_grant(2, Asked(forming=True), has_log=False)
    assert not empty.may_grant(2, Asked(), has_log=False)
    assert empty.may_grant(2, Asked(), has_log=True)
    assert empty.may_grant(2, Asked(UNRECORDED), has_log=False)
    assert not voters(None, barred="it holds partitions").may_grant(2, Asked(forming=True), has_log=False)


def test_of_equal_forming_candidates_the_lowest_goes_first() -> None:
    """All must agree on the same candidate; in a cluster a majority suffices."""
    forming = VoterSet(2, (1, 3), recorded=lambda: None)
    assert forming.yields_to(1) and not forming.yields_to(3)
    assert VoterSet(2, (1, 3), recorded=dict).yields_to(3)


# -- counting


def test_only_recorded_directories_count() -> None:
    """For commits and for check quorum."""
    found = linked(RECORDED, two=SECOND, three=NEW)
    assert found.counts(2) and not found.counts(3)
    assert found.uncounted() == [3]
    assert linked({}, two=NEW).counts(2), "none is recorded"


def test_the_directories_that_voted_for_the_first_leader_count() -> None:
    """Until the metadata names them: another disk of such a voter has no entry of the new cluster."""
    forming = linked(None, two=SECOND)
    forming.note_vote(2)
    assert forming.counts(2)
    forming.linked[2] = NEW
    assert not forming.counts(2)


def test_a_leader_knows_which_directories_are_not_recorded() -> None:
    """Including its own; in a cluster that forms, the directories that voted."""
    assert linked({2: SECOND, 3: THIRD}, two=SECOND, three=NEW).unrecorded() == {1: OWN, 3: NEW}
    assert linked(RECORDED, two=SECOND, three=NO_DIRECTORY).unrecorded() == {}
    forming = linked(None, two=SECOND, three=THIRD)
    forming.note_vote(2)
    assert forming.unrecorded() == {1: OWN, 2: SECOND}


def test_a_recorded_directory_is_missed_from_its_last_link_on() -> None:
    """The link of another directory of that number does not count."""
    found = linked(RECORDED, two=SECOND, three=NEW)
    found.note_link_lost(2, 7.0)
    found.note_link_lost(3, 8.0)
    assert found.missed_since(2, led_since=1.0) == 7.0
    assert found.missed_since(3, led_since=1.0) == 1.0
    assert found.missed_since(2, led_since=9.0) == 9.0
    assert linked({}, two=NEW).missed_since(2, led_since=1.0) == float("-inf"), "there is none to wait for"


def test_a_directory_is_what_the_link_says_or_else_what_is_recorded() -> None:
    """For people: DescribeQuorum shows a directory for each voter."""
    found = linked(RECORDED, two=NEW)
    assert (found.directory_of(1), found.directory_of(2), found.directory_of(3)) == (OWN, NEW, THIRD)
    assert voters(None).directory_of(2) == NO_DIRECTORY


# -- reasons


def test_a_voter_whose_metadata_log_is_gone_is_refused() -> None:
    """Its directory still has the id with which it voted."""
    found = voters(RECORDED)
    reason = found.refusal_reason(Introduced(2, SECOND, b"", new_journal=True))
    assert reason is not None and encode_uuid(SECOND) in reason and "directory.id" in reason
    assert "remove raftlog-metadata and meta.properties.crc32c" in reason, "both have the former id"
    assert found.refusal_reason(Introduced(2, SECOND)) is None
    assert found.refusal_reason(Introduced(2, NEW, b"", new_journal=True)) is None


def test_a_voter_says_why_it_has_no_leader() -> None:
    """As far as directories explain it."""
    assert linked(RECORDED, two=SECOND).why_no_leader() is None
    assert "voters [3] have other directories" in str(linked(RECORDED, three=NEW).why_no_leader())
    assert f"{encode_uuid(NEW)} is not the one" in str(voters(RECORDED, directory_id=NEW).why_no_leader())
    assert "needs the votes of all voters" in str(voters(None).why_no_leader())
    assert voters(None, barred="it holds partitions").why_no_leader() == "it holds partitions"
    empty = voters(None)
    empty.may_grant(2, Asked(forming=False), has_log=False)
    assert "voters [2] have metadata" in str(empty.why_no_leader())
    older = voters(None)
    older.distrust(NEW)
    assert "older copy" in str(older.why_no_leader())


def test_reasons_name_the_way_back_of_a_voter_of_a_set() -> None:
    """No leader records its directory: it is removed, and added again."""
    found = linked(RECORDED, three=NEW)
    assert "once a leader has caught it up" in str(found.why_no_leader())
    found.adopt(voters_record(Voter(each, directory.bytes, "", 0) for each, directory in RECORDED.items()))
    lost = found.refusal_reason(Introduced(2, SECOND, b"", new_journal=True))
    for reason in (found.why_no_leader(), lost):
        assert reason is not None and "`raftlog quorum remove`" in reason and "caught it up" not in reason
