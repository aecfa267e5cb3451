"""ElectLeaders 0-2: preferred and, from version 1, unclean elections (KIP-183, KIP-460)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.asking import ask, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.requests import PREFERRED, ElectionResult, ElectionResults, ElectLeaders
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.ELECT_LEADERS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller elect; asked for all partitions, it tells only of those that needed it."""
    partitions = None
    if message.topic_partitions is not None:
        partitions = tuple(
            dict.fromkeys(
                (each.topic, index) for each in message.topic_partitions for index in each.partitions
            )
        )
    election_type = getattr(message, "election_type", PREFERRED)
    code = 0
    try:
        election = ElectLeaders(election_type, partitions)
        reply = await ask(broker, election, ElectionResults, timeout_ms=message.timeout)
        results = reply.results
    except KafkaError as error:
        code = error.code
        results = tuple(
            ElectionResult(topic, index, error.code, error.message) for topic, index in partitions or ()
        )
    return _response(request.api_version, code, results)


def _response(version: int, code: int, results: tuple[ElectionResult, ...]) -> Any:
    make = response_shapes(API_KEY, version)
    by_topic: dict[str, list[Any]] = {}
    for each in results:
        by_topic.setdefault(each.topic, []).append(
            make.PartitionResult(
                partition_id=each.partition,
                error_code=each.error_code,
                error_message=shown(each.error_message),
            )
        )
    return make.ElectLeadersResponse(
        throttle_time=0,
        error_code=code,
        replica_election_results=tuple(
            make.ReplicaElectionResult(topic=topic, partition_result=tuple(found))
            for topic, found in by_topic.items()
        ),
    )
