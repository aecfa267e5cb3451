"""Idempotent retries: requests that a broker repeats after it lost a connection or a controller.

The first attempt may have been carried out, and its answer lost. A repeated creation then finds its own topic or
delegation token, since the sender chooses the id. A repeated deletion of a topic, an ACL or a user finds it missing, as
does a repeated cancellation of a reassignment. That is a success if the sender saw it exist before. All other requests
are fenced by epochs, or harmless to repeat. Only values here.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from raftlog.base.errors import (
    DelegationTokenNotFound,
    NoReassignmentInProgress,
    ResourceNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.metadata.controller_api import (
    AclDeletion,
    AclDeletions,
    AlterScramCredentials,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    ErrorReply,
    ExpireToken,
    PartitionResult,
    PartitionResults,
    PartResult,
    PartResults,
    Reply,
    Request,
    TokenTimes,
    TopicRef,
    TopicResult,
    TopicResults,
)
from raftlog.metadata.image import MetadataImage
from raftlog.security.acls import AclFilter

_NOT_THERE = frozenset({UnknownTopicId.code, UnknownTopicOrPartition.code})


def make_idempotent(request: Request, new_topic_id: Callable[[], UUID]) -> Request:
    """Return a request that may be sent more than once: new topics carry ids of the sender's choice."""
    if not isinstance(request, CreateTopics):
        return request
    topics = tuple(
        topic if topic.topic_id is not None else replace(topic, topic_id=new_topic_id())
        for topic in request.topics
    )
    return replace(request, topics=topics)


def first_attempt_reply(request: Request, reply: Reply, before: MetadataImage) -> Reply:
    """Return the reply that the first attempt would have got, by the answer to a repeated request and the image
    before.
    """
    if isinstance(request, DeleteTopics) and isinstance(reply, TopicResults):
        seen = {ref: topic for ref in request.topics if (topic := _topic(ref, before))}
        return TopicResults(tuple(_deleted(result, seen) for result in reply.results))
    if isinstance(request, ExpireToken) and isinstance(reply, ErrorReply):
        return _expired(request, reply, before)
    if isinstance(request, DeleteAcls) and isinstance(reply, AclDeletions):
        asked = zip(request.filters, reply.results, strict=True)
        return AclDeletions(tuple(_removed(each, deletion, before) for each, deletion in asked))
    if isinstance(request, AlterScramCredentials) and isinstance(reply, PartResults):
        return _without_users(request, reply, before)
    if isinstance(reply, PartitionResults):
        return PartitionResults(tuple(_cancelled(result, before) for result in reply.results))
    return reply


def _expired(request: ExpireToken, reply: ErrorReply, before: MetadataImage) -> Reply:
    token = before.tokens.get(request.token_id)
    if reply.error_code != DelegationTokenNotFound.code or token is None or request.period_ms >= 0:
        return reply
    return TokenTimes(token.issued_ms, -1, token.max_ms)


def _cancelled(result: PartitionResult, before: MetadataImage) -> PartitionResult:
    state = before.partition(result.topic, result.partition)
    if result.error_code != NoReassignmentInProgress.code or state is None or not state.is_reassigned:
        return result
    return PartitionResult(result.topic, result.partition)


def _removed(asked: AclFilter, deletion: AclDeletion, before: MetadataImage) -> AclDeletion:
    """Return a deletion with every ACL that matched before the first attempt: any attempt may have removed it."""
    seen = (acl for acl in before.acls if asked.matches(acl))
    return AclDeletion(tuple(dict.fromkeys((*deletion.matches, *seen))))


def _without_users(request: AlterScramCredentials, reply: PartResults, before: MetadataImage) -> PartResults:
    users: dict[str, bool] = {}
    for each in request.alterations:
        was_there = each.credential is not None or (each.user, each.mechanism) in before.scram
        users[each.user] = users.get(each.user, True) and was_there
    return PartResults(
        tuple(
            PartResult() if seen and result.error_code == ResourceNotFound.code else result
            for seen, result in zip(users.values(), reply.results, strict=True)
        )
    )


def _topic(ref: TopicRef, image: MetadataImage) -> tuple[str, UUID] | None:
    name = image.topic_names.get(ref.topic_id) if ref.topic_id is not None else ref.name
    topic = None if name is None else image.topics.get(name)
    return None if topic is None else (topic.name, topic.topic_id)


def _deleted(result: TopicResult, seen: dict[TopicRef, tuple[str, UUID]]) -> TopicResult:
    found = seen.get(TopicRef(result.name, result.topic_id))
    if result.error_code not in _NOT_THERE or found is None:
        return result
    return TopicResult(*found)
