"""ShareAcknowledge 1-2: a member of a share group says what became of the records that it holds (KIP-932, 1222).

It responds once the acknowledgements are written, each partition with its own error.
"""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, InvalidShareSessionEpoch
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_requests import (
    FIRST_EPOCH,
    NamedLeaders,
    acknowledge,
    by_topic,
    follow_session,
    lock_ms,
    share_records_api,
)
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.sharing.share_sessions import SharedPartition

API_KEY: Final = ApiKey.SHARE_ACKNOWLEDGE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all acknowledgements are written or refused."""
    check_share_version(broker.image())
    if message.share_session_epoch == FIRST_EPOCH:
        raise InvalidShareSessionEpoch("ShareAcknowledge opens no share session")
    follow_session(broker, request, message)
    outcomes = await acknowledge(broker, request, message)
    make, leaders = response_builders(API_KEY, request.api_version), NamedLeaders(broker, request)

    def part(partition: SharedPartition) -> Any:
        error = outcomes[partition]
        error_code = NONE if error is None else error.code
        return make.PartitionData(
            partition_index=partition[1],
            error_code=error_code,
            error_message=None if error is None else error.message,
            current_leader=leaders.fields(partition, error_code),
        )

    topics = await by_topic(broker, outcomes)
    return build_response(
        API_KEY,
        request.api_version,
        acquisition_lock_timeout=lock_ms(broker, message.group_id),
        responses=(
            make.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=(part(each) for each in parts))
            for topic_id, parts in topics.items()
        ),
        node_endpoints=leaders.endpoints(),
    )


API: Final = share_records_api(API_KEY, handle)
