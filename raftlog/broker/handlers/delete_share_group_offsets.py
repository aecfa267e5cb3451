"""DeleteShareGroupOffsets 0: delete a share group's offsets of whole topics, while it has no members (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import NONE, KafkaError, UnknownTopicOrPartition
from raftlog.base.turns import in_slices
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.audited_changes import named
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.group_share_states import Outcomes
from raftlog.broker.handlers.shared.share_changes import carry_out
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.share.share_offsets import DeleteShareOffsets, ShareStateChange
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DELETE_SHARE_GROUP_OFFSETS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per topic once its states are deleted."""
    image = broker.image()
    check_share_version(image)
    names = {each.topic_name: None async for each in in_slices(broker.env, message.topics)}
    allowed = await among(broker, request, Operation.READ, TOPIC, names, log_if_denied=True)
    known = {
        name: topic.topic_id
        async for name in in_slices(broker.env, names)
        if name in allowed and (topic := image.topics.get(name)) is not None
    }
    change: ShareStateChange = await broker.groups.ask(
        GroupCoordinator.delete_share_offsets,
        DeleteShareOffsets(message.group_id, frozenset(known.values())),
    )
    errors = _errors(change, await carry_out(broker, change) if change else {})
    make = response_builders(API_KEY, request.api_version)

    def topics() -> Iterator[Any]:
        missing = UnknownTopicOrPartition("there is no offset to delete")
        for name in names:
            topic_id = known.get(name)
            error: KafkaError | None = missing if name in allowed else refusal(TOPIC)
            if topic_id in change.deleted:
                error = errors.get(topic_id)
            yield make.DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic_id if topic_id in change.deleted else None,
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )

    return make.DeleteShareGroupOffsetsResponse(error_code=NONE, throttle_time=0, responses=topics())


def _errors(change: ShareStateChange, outcomes: Outcomes) -> Mapping[UUID | None, KafkaError]:
    """Return an error of each topic with a state that could not be deleted."""
    return {key.topic_id: each for key, each in outcomes.items() if isinstance(each, KafkaError)}


def _outcomes(message: Any, response: Any) -> Iterator[Outcome]:
    yield message.group_id, response.error_code
    yield from named(response.responses, "topic_name")


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded(
        (Right(Operation.DELETE, ResourceType.GROUP, "group_id"),),
        by_part=(Right(Operation.READ, ResourceType.TOPIC),),
    ),
    max_parts=IN_TURNS,
    audit=Change(_outcomes, audits_message=True),
    controllers=False,
)
