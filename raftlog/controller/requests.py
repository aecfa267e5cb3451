"""The requests to the controller, a row each: how one is decided, its cause, its level, and what a retry of it means.

The controller decides by these rows; every sender checks the level and reads the answer to a retry by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from raftlog.base.errors import InvalidRequest, UnknownTopicId, UnknownTopicOrPartition
from raftlog.base.machine import Decision
from raftlog.controller import alter_partition, brokers, configs, topics
from raftlog.controller.request_row import Circumstances, ControllerRequest, NewId
from raftlog.metadata.broker_requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    RegisterBroker,
)
from raftlog.metadata.causes import Cause
from raftlog.metadata.controller_api import (
    AddVoter,
    AlterConfigs,
    ByClient,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Done,
    ErrorReply,
    RemoveVoter,
    Reply,
    Request,
    TopicRef,
    TopicResult,
    TopicResults,
    UnregisterBroker,
    UpdateFeatures,
    UpdateVoter,
)
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION, VOTERS_CHANGE, finalized_level
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.mutation_charges import ChargeMutations
from raftlog.metadata.quorum_description import DescribeQuorum
from raftlog.metadata.record_levels import check_feature_levels, check_level

Causes = tuple[Cause, ...]


def _of_broker(kind: str) -> Callable[[Any], Cause]:
    return lambda request: Cause(kind, request.broker_id)


def _of_heartbeat(request: BrokerHeartbeat) -> Cause:
    if request.want_shutdown:
        kind = "shutdown"
    elif request.failed_directory_ids:
        kind = "disk_failed"
    elif request.want_fence:
        kind = "asked_to_leave"
    else:
        kind = "damage_reported" if request.damaged else "caught_up"
    return Cause(kind, request.broker_id)


def _not_decided(image: MetadataImage, request: Request, given: Circumstances) -> Decision:
    raise InvalidRequest(f"{type(request).__name__} is not a request that changes metadata")


def _decide_register(image: MetadataImage, request: RegisterBroker, given: Circumstances) -> Decision:
    in_session = given.has_valid_session(request.broker_id)
    return brokers.decide_register(image, request, in_session=in_session, **given.rules)


def _decide_update_features(image: MetadataImage, request: UpdateFeatures, given: Circumstances) -> Decision:
    from raftlog.controller.feature_updates import decide_update_features

    return decide_update_features(image, request, supported=given.features, voters=given.levels_of_voters())


_NOT_THERE: Final = frozenset({UnknownTopicId.code, UnknownTopicOrPartition.code})


def _with_topic_ids(request: CreateTopics, new_id: NewId) -> CreateTopics:
    """Return the request with an id for each topic."""
    topics = tuple(
        topic if topic.topic_id is not None else replace(topic, topic_id=new_id()) for topic in request.topics
    )
    return replace(request, topics=topics)


def _voter_changed(request: Request, reply: Reply, before: MetadataImage) -> Reply:
    """Return success if a retry finds that very voter there, or its id gone: the first attempt may have done that."""
    return Done() if isinstance(reply, ErrorReply) and reply.is_done else reply


def _topics_deleted(request: DeleteTopics, reply: Reply, before: MetadataImage) -> Reply:
    """Return success for the topics that existed before and are missing now."""
    if not isinstance(reply, TopicResults):
        return reply
    seen = {ref: topic for ref in request.topics if (topic := _topic(ref, before))}
    return TopicResults(tuple(_deleted(result, seen) for result in reply.results))


def _deleted(result: TopicResult, seen: dict[TopicRef, tuple[str, UUID]]) -> TopicResult:
    found = seen.get(TopicRef(result.name, result.topic_id))
    if result.error_code not in _NOT_THERE or found is None:
        return result
    return TopicResult(*found)


def _topic(ref: TopicRef, image: MetadataImage) -> tuple[str, UUID] | None:
    name = image.topic_names.get(ref.topic_id) if ref.topic_id is not None else ref.name
    topic = None if name is None else image.topics.get(name)
    return None if topic is None else (topic.name, topic.topic_id)


REQUESTS: Final[Mapping[type, ControllerRequest]] = {
    RegisterBroker: ControllerRequest(_decide_register, _of_broker("registered")),
    BrokerHeartbeat: ControllerRequest(
        lambda image, request, given: brokers.decide_heartbeat(
            image, request, **given.rules, reads_on=given.min_insync is not None
        ),
        _of_heartbeat,
    ),
    AlterPartition: ControllerRequest(
        lambda image, request, given: alter_partition.decide_alter_partition(
            image, request, given.availability, given.min_insync
        ),
        _of_broker("proposed"),
    ),
    AllocateProducerIds: ControllerRequest(
        lambda image, request, given: brokers.decide_allocate_producer_ids(image, request),
        None,
    ),
    CreateTopics: ControllerRequest(
        lambda image, request, given: topics.decide_create_topics(image, request, **given.placement),
        "topics_created",
        before_first=_with_topic_ids,
    ),
    DeleteTopics: ControllerRequest(
        lambda image, request, given: topics.decide_delete_topics(image, request, given.config),
        "topics_deleted",
        after_retry=_topics_deleted,
    ),
    CreatePartitions: ControllerRequest(
        lambda image, request, given: topics.decide_create_partitions(image, request, **given.placement),
        "partitions_added",
    ),
    AlterConfigs: ControllerRequest(
        lambda image, request, given: configs.decide_alter_configs(image, request, given.config),
        "configs_asked",
    ),
    UnregisterBroker: ControllerRequest(
        lambda image, request, given: brokers.decide_unregister(image, request, **given.rules),
        _of_broker("unregistered"),
        about_another=True,
    ),
    UpdateFeatures: ControllerRequest(_decide_update_features, "features_updated"),
    ChargeMutations: ControllerRequest(_not_decided, None, since=1),
    DescribeQuorum: ControllerRequest(_not_decided, None),
    AddVoter: ControllerRequest(_not_decided, None, since=VOTERS_CHANGE, after_retry=_voter_changed),
    RemoveVoter: ControllerRequest(_not_decided, None, since=VOTERS_CHANGE, after_retry=_voter_changed),
    UpdateVoter: ControllerRequest(_not_decided, None, since=VOTERS_CHANGE),
}
"""The requests that any controller gets soon; `admin_requests` has the others."""


class _Rows(dict[type, ControllerRequest]):
    """The rows of all requests; those of `admin_requests` when the first of them is looked up."""

    def __missing__(self, kind: type) -> ControllerRequest:
        from raftlog.controller.admin_requests import ADMIN_REQUESTS

        self.update(ADMIN_REQUESTS)
        return ADMIN_REQUESTS[kind]


ROWS: Final[Mapping[type, ControllerRequest]] = _Rows(REQUESTS)
"""The row of each request, by its type."""


def causes_of(request: Request) -> Causes:
    """Return why a request makes changes, if it does, and its principal."""
    of = ROWS[type(request)].cause
    if of is None:
        return ()
    cause = Cause(of) if isinstance(of, str) else of(request)
    by = request.by if isinstance(request, ByClient) else ""
    return (replace(cause, by=by) if by else cause,)


def check_request(image: MetadataImage, request: Request) -> None:
    """Raise UnsupportedVersion if the cluster's level does not allow a request yet.

    A controller of 0.2.0 would also refuse a new level, but would not name the brokers that lack it.
    """
    if isinstance(request, UpdateFeatures):
        check_feature_levels(image, request)
    if since := ROWS[type(request)].since:
        check_level(finalized_level(image, RAFTLOG_METADATA_VERSION), since)


def make_idempotent(request: Request, new_id: NewId) -> Request:
    """Return a request that may be sent more than once: what it creates has ids of the sender's choice."""
    return ROWS[type(request)].before_first(request, new_id)  # type: ignore[no-any-return]


def first_attempt_reply(request: Request, reply: Reply, before: MetadataImage) -> Reply:
    """Return the reply that the first attempt would have got, by the reply to a retry and the image before."""
    return ROWS[type(request)].after_retry(request, reply, before)
