"""ShareFetch 1-2: a member of a share group gets records, and says what became of others (KIP-932, 1206, 1222).

Acknowledgements come first, and then the member acquires records: of the partitions of its share session, waiting for
them as Fetch does. A response has the partitions with records, with acknowledgements, and with errors. The response
that opens a session has all.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, Final

from raftlog.base.errors import NONE, InvalidRequest, ShareSessionLimitReached, ShareSessionNotFound
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_reader import RECORD_LIMIT, Found, ShareReader
from raftlog.broker.handlers.shared.share_requests import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NamedLeaders,
    Outcomes,
    acknowledge,
    by_topic,
    follow_session,
    lock_ms,
    named_partitions,
    session_key,
    share_records_api,
)
from raftlog.broker.long_work.turns import each_part
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.sharing.share_sessions import SharedPartition, ShareSession

API_KEY: Final = ApiKey.SHARE_FETCH

HELD_BACK_MS: Final = 60_000
"""How long a member that finds no room for a session waits at most, so that it does not ask again at once. Otherwise it
waits as for records, like in Apache Kafka."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once acknowledgements are written, and there are records or the time is up."""
    check_share_version(broker.image())
    renews = getattr(message, "is_renew_ack", False)
    if renews and (message.max_bytes or message.min_bytes or message.max_records or message.max_wait):
        raise InvalidRequest("a request that renews locks fetches no records")
    group_id = message.group_id
    try:
        session = _session(broker, request, message)
        if not 0 <= getattr(message, "share_acquire_mode", 0) <= RECORD_LIMIT:
            raise InvalidRequest("the acquire mode is unknown")
        await _update(broker, session, message)
    except ShareSessionLimitReached:
        await asyncio.sleep(min(max(0, message.max_wait), HELD_BACK_MS) / 1_000)
        raise
    outcomes = await acknowledge(broker, request, message)
    found: dict[SharedPartition, Found] = {}
    if not renews and message.share_session_epoch != FINAL_EPOCH:
        reader = ShareReader(broker, request, session, message)
        is_first = message.share_session_epoch == FIRST_EPOCH
        del message  # it may be large, and the wait long
        found = await reader.read()
        if is_first and reader.takes_records:
            await each_part(broker.env, session.partitions, lambda each: found.setdefault(each, Found()))
    return await _response(broker, request, group_id, outcomes, found)


def _session(broker: BrokerContext, request: RequestContext, message: Any) -> ShareSession:
    """Open or continue the session of a request."""
    if not request.is_awaited:
        raise ShareSessionNotFound("the connection was closed")  # its sessions have ended already
    if message.share_session_epoch != FIRST_EPOCH:
        return follow_session(broker, request, message)
    acknowledges = any(each.acknowledgement_batches for _, each in named_partitions(message))
    led, key = broker.share_partitions, session_key(message)
    session = led.sessions.open(key, request.connection, acknowledges=acknowledges)
    led.record.opened(key.member_id, request.client_id or "", request.peer_host)
    return session


async def _update(broker: BrokerContext, session: ShareSession, message: Any) -> None:
    """Remove the session's partitions that a request forgets, and add those that it names."""
    sessions, forgotten = broker.share_partitions.sessions, set[SharedPartition]()

    def forget(partition: SharedPartition) -> None:
        forgotten.add(partition)
        sessions.forget(session, partition)

    def add(partition: SharedPartition) -> None:
        if partition not in forgotten:
            sessions.add(session, partition)

    await each_part(
        broker.env,
        ((topic.topic_id, index) for topic in message.forgotten_topics_data for index in topic.partitions),
        forget,
    )
    named = ((topic_id, each.partition_index) for topic_id, each in named_partitions(message))
    await each_part(broker.env, named, add)


async def _response(
    broker: BrokerContext,
    request: RequestContext,
    group_id: str,
    outcomes: Outcomes,
    found: dict[SharedPartition, Found],
) -> Any:
    make, nothing = response_builders(API_KEY, request.api_version), Found()
    leaders = NamedLeaders(broker, request)

    def part(partition: SharedPartition) -> Any:
        each, refused = found.get(partition, nothing), outcomes.get(partition)
        codes = [NONE if error is None else error.code for error in (each.error, refused)]
        return make.PartitionData(
            partition_index=partition[1],
            error_code=codes[0],
            error_message=None if each.error is None else each.error.message,
            acknowledge_error_code=codes[1],
            acknowledge_error_message=None if refused is None else refused.message,
            current_leader=leaders.fields(partition, codes[0] or codes[1]),
            records=each.records,
            acquired_records=tuple(
                make.AcquiredRecords(
                    first_offset=it.first_offset, last_offset=it.last_offset, delivery_count=it.delivery_count
                )
                for it in each.acquired
            ),
        )

    topics = await by_topic(broker, chain(outcomes, found))
    return build_response(
        API_KEY,
        request.api_version,
        acquisition_lock_timeout=lock_ms(broker, group_id),
        responses=(
            make.ShareFetchableTopicResponse(topic_id=topic_id, partitions=(part(each) for each in parts))
            for topic_id, parts in topics.items()
        ),
        node_endpoints=leaders.endpoints(),
    )


API: Final = share_records_api(API_KEY, handle)
