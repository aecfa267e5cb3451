"""Claims about requests that are sent again because their first answer was lost."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from raftlog.base.errors import (
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DuplicateVoter,
    ElectionNotNeeded,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    ResourceNotFound,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
    VoterNotFound,
)
from raftlog.controller.requests import first_attempt_reply, make_idempotent
from raftlog.metadata.controller_api import (
    PREFERRED,
    UNCLEAN,
    AclDeletion,
    AclDeletions,
    AddVoter,
    AlterReassignments,
    AlterScramCredentials,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    Done,
    ElectionResult,
    ElectionResults,
    ElectLeaders,
    ErrorReply,
    ExpireToken,
    NewTopic,
    PartitionResult,
    PartitionResults,
    PartResult,
    PartResults,
    Reassignment,
    RemoveVoter,
    ScramAlteration,
    TokenTimes,
    TopicRef,
    TopicResult,
    TopicResults,
    UnregisterBroker,
    decode_request,
    encode,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken

SEEN = MetadataImage(
    topics={"t": TopicState("t", UUID(int=7), ())},
    topic_names={UUID(int=7): "t"},
)
BY_NAME, BY_ID, UNSEEN = TopicRef("t"), TopicRef(None, UUID(int=7)), TopicRef("never")


def test_new_topics_get_ids_before_they_are_asked_for() -> None:
    """The same bytes are sent again, so the same ids; an id that was chosen already stays."""
    numbers = count(1)
    request = CreateTopics((NewTopic("a"), NewTopic("b", topic_id=UUID(int=9)), NewTopic("c")))
    made = make_idempotent(request, lambda: UUID(int=next(numbers)))
    assert isinstance(made, CreateTopics)
    assert [each.topic_id for each in made.topics] == [UUID(int=1), UUID(int=9), UUID(int=2)]
    assert decode_request(encode(made)) == made
    other = UnregisterBroker(3)
    assert make_idempotent(other, UUID) is other


def test_deleting_again_what_was_there_before_is_success() -> None:
    """By name and by id; the response equals the lost response."""
    request = DeleteTopics((BY_NAME, BY_ID, UNSEEN))
    reply = TopicResults(
        (
            TopicResult("t", None, UnknownTopicOrPartition.code, "gone"),
            TopicResult(None, UUID(int=7), UnknownTopicId.code, "gone"),
            TopicResult("never", None, UnknownTopicOrPartition.code, "gone"),
        )
    )
    told = first_attempt_reply(request, reply, SEEN)
    assert isinstance(told, TopicResults)
    assert told.results[:2] == (TopicResult("t", UUID(int=7)),) * 2
    assert told.results[2] == reply.results[2]


@pytest.mark.parametrize("request_type", [AddVoter, RemoveVoter])
@pytest.mark.parametrize("is_done", [True, False])
def test_changing_a_voter_again_is_success_if_that_very_change_is_there(
    request_type: type[AddVoter] | type[RemoveVoter], is_done: bool
) -> None:
    """A voter of that id with another directory is still in the way."""
    place = ("four", 9093) if request_type is AddVoter else ()
    request = request_type(4, UUID(int=4), *place)
    code = DuplicateVoter.code if request_type is AddVoter else VoterNotFound.code
    reply = ErrorReply(code, "the reason", is_done)
    assert first_attempt_reply(request, reply, SEEN) == (Done() if is_done else reply)


def test_cancelling_again_what_was_under_way_is_success() -> None:
    """A listener that saw no reassignment gets NO_REASSIGNMENT_IN_PROGRESS."""
    moving = PartitionState((1, 2), (1,), 1, adding_replicas=(2,))
    topic = TopicState("t", UUID(int=7), (moving, PartitionState((1,), (1,), 1)))
    seen = MetadataImage(topics={"t": topic}, topic_names={UUID(int=7): "t"})
    request = AlterReassignments((Reassignment("t", 0, None), Reassignment("t", 1, None)))
    none = [PartitionResult("t", index, NoReassignmentInProgress.code, "none") for index in (0, 1)]
    told = first_attempt_reply(request, PartitionResults(tuple(none)), seen)
    assert told == PartitionResults((PartitionResult("t", 0), none[1]))


@pytest.mark.parametrize(
    ("election_type", "needed"),
    [
        (PREFERRED, PartitionState((1, 2), (1, 2), 2)),
        (UNCLEAN, PartitionState((1, 2), (1,), -1)),
        (UNCLEAN, PartitionState((1, 2), (1,), 1, isr_lost=True)),
    ],
)
def test_electing_again_a_leader_that_was_needed_is_success(
    election_type: int, needed: PartitionState
) -> None:
    """A partition that needed no election before is still an error."""
    topic = TopicState("t", UUID(int=7), (needed, PartitionState((1, 2), (1, 2), 1)))
    seen = MetadataImage(topics={"t": topic}, topic_names={UUID(int=7): "t"})
    request = ElectLeaders(election_type, (("t", 0), ("t", 1), ("gone", 0)))
    none = [
        ElectionResult(name, index, ElectionNotNeeded.code, None) for name, index in request.partitions or ()
    ]
    told = first_attempt_reply(request, ElectionResults(tuple(none)), seen)
    assert told == ElectionResults((ElectionResult("t", 0), *none[1:]))
    every = ElectLeaders(election_type, None)
    still_failing = ElectionResult("u", 0, PreferredLeaderNotAvailable.code, "it is down")
    told = first_attempt_reply(every, ElectionResults((still_failing,)), seen)
    assert told == ElectionResults((still_failing, ElectionResult("t", 0)))


def test_removing_again_a_rule_or_a_user_that_was_there_is_success() -> None:
    """ACLs that matched before are listed, and gone; a user that never existed is still an error."""
    rule = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
    kept = ScramCredential(b"salt", 4096, b"stored", b"server")
    seen = MetadataImage(acls={rule: True}, scram={("a", "SCRAM-SHA-256"): kept})
    asked = AclFilter(ResourceType.ANY, None, PatternType.ANY, "User:a", None, Operation.ANY, Permission.ANY)
    nothing = AclDeletions((AclDeletion(()), AclDeletion(())))
    request = DeleteAcls((asked, asked._replace(principal="User:b")))
    told = first_attempt_reply(request, nothing, seen)
    assert told == AclDeletions((AclDeletion((rule,)), AclDeletion(())))
    gone = PartResult(ResourceNotFound.code, "there is no such credential")
    removal = AlterScramCredentials(
        tuple(ScramAlteration(user, "SCRAM-SHA-256", None) for user in ("a", "b"))
    )
    assert first_attempt_reply(removal, PartResults((gone, gone)), seen) == PartResults((PartResult(), gone))


def test_other_failures_of_a_repeated_request_are_failures() -> None:
    """Only a missing topic may be the first request's own work."""
    reply = TopicResults((TopicResult("t", None, TopicDeletionDisabled.code),))
    assert first_attempt_reply(DeleteTopics((BY_NAME,)), reply, SEEN) == reply
    created = TopicResults((TopicResult("t", None, UnknownTopicOrPartition.code),))
    assert first_attempt_reply(UnregisterBroker(1), created, SEEN) is created


def test_a_token_that_was_there_before_is_ended_once() -> None:
    """The first request removed it; a token that never existed, or was not to end at once, is still an error."""
    token = DelegationToken("id", "User:al", "User:al", (), 1, 2, 3)
    before = MetadataImage(tokens={"id": token})
    gone = ErrorReply(DelegationTokenNotFound.code, "gone")
    now, never, later = (ExpireToken(*each) for each in (("id", "p", -1), ("never", "p", -1), ("id", "p", 9)))
    assert first_attempt_reply(now, gone, before) == TokenTimes(1, -1, 3)
    assert first_attempt_reply(never, gone, before) is gone
    assert first_attempt_reply(later, gone, before) is gone
    refused = ErrorReply(DelegationTokenOwnerMismatch.code)
    assert first_attempt_reply(now, refused, before) is refused
