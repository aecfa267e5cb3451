"""ElectLeaders 0-2: preferred and, from version 1, unclean elections (KIP-183, KIP-460)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audited_changes import named_partitions
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, ask_in_parts, truncate_message
from raftlog.broker.long_work.turns import grouped_by_topic, partitions_by_topic
from raftlog.metadata.controller_api import PREFERRED, ElectionResult, ElectionResults, ElectLeaders
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.ELECT_LEADERS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller elect leaders.

    A request for all partitions gets only the partitions that needed an election.
    """
    election_type = getattr(message, "election_type", PREFERRED)
    if message.topic_partitions is None:
        try:
            election = ElectLeaders(election_type, None)
            reply = await ask(broker, election, ElectionResults, timeout_ms=message.timeout)
        except KafkaError as error:
            return await _response(broker, request, error.code, [])
        return await _response(broker, request, NONE, list(reply.results))
    return await _response(broker, request, *await _elected(broker, message, election_type))


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error for the whole request and for each partition, since version 0 has only the latter."""
    make = response_builders(API_KEY, request.api_version)
    results = (
        make.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=(
                make.PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                for index in topic.partitions
            ),
        )
        for topic in message.topic_partitions or ()
    )
    return make.ElectLeadersResponse(throttle_time=0, error_code=error.code, replica_election_results=results)


async def _elected(
    broker: BrokerContext, message: Any, election_type: int
) -> tuple[int, list[ElectionResult]]:
    """Elect leaders for the requested partitions, each once.

    Return the error for all, if any, and the result of each.
    """
    asked_for = await partitions_by_topic(
        broker.env, ((topic.topic, topic.partitions) for topic in message.topic_partitions)
    )
    topic_partitions = [(name, index) for name, indexes in asked_for.items() for index in indexes]
    results: list[ElectionResult] = []
    code = NONE
    asked = ask_in_parts(
        broker,
        topic_partitions,
        lambda some: ElectLeaders(election_type, some),
        ElectionResults,
        timeout_ms=message.timeout,
    )
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            code = reply.code
            results += [ElectionResult(*tp, reply.code, reply.message) for tp in some]
        else:
            results += reply.results
    return code, results


async def _response(
    broker: BrokerContext, request: RequestContext, code: int, results: list[ElectionResult]
) -> Any:
    make = response_builders(API_KEY, request.api_version)
    by_topic = await grouped_by_topic(broker.env, results)
    responses = (
        make.ReplicaElectionResult(topic=topic, partition_result=(_partition(make, each) for each in found))
        for topic, found in by_topic.items()
    )
    return make.ElectLeadersResponse(throttle_time=0, error_code=code, replica_election_results=responses)


def _partition(make: Any, result: ElectionResult) -> Any:
    return make.PartitionResult(
        partition_id=result.partition,
        error_code=result.error_code,
        error_message=truncate_message(result.error_message),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=ALTER_CLUSTER,
    max_parts=IN_TURNS,
    audit=Change(
        lambda _, response: named_partitions(
            response.replica_election_results, "topic", "partition_result", "partition_id"
        )
    ),
    controllers=True,
)
