"""DescribeQuorum 0-2: the metadata quorum, as kafka-metadata-quorum shows it (KIP-595, KIP-836)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from raftlog.base.errors import UnknownTopicOrPartition
from raftlog.base.types import METADATA_TOPIC
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask
from raftlog.broker.long_work.turns import partitions_by_topic
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription, QuorumReplica
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DESCRIBE_CLUSTER

API_KEY: Final = ApiKey.DESCRIBE_QUORUM


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Send the request to the active controller, which is the quorum's leader."""
    make = response_builders(API_KEY, request.api_version)
    quorum = await ask(broker, DescribeQuorum(), QuorumDescription)
    topics = await partitions_by_topic(
        broker.env,
        ((topic.topic_name, (each.partition_index for each in topic.partitions)) for topic in message.topics),
    )
    return make.DescribeQuorumResponse(
        error_code=0,
        error_message=None,
        topics=(
            make.TopicData(
                topic_name=name, partitions=(_partition(make, quorum, name, index) for index in indexes)
            )
            for name, indexes in topics.items()
        ),
        nodes=_nodes(broker, make, quorum),
    )


def _partition(make: Any, quorum: QuorumDescription, topic: str, index: int) -> Any:
    if (topic, index) != (METADATA_TOPIC, 0):
        return make.PartitionData(
            partition_index=index,
            error_code=UnknownTopicOrPartition.code,
            error_message=f"the quorum has one partition, {METADATA_TOPIC}-0",
        )
    return make.PartitionData(
        partition_index=index,
        error_code=0,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=_replicas(make, quorum.voters),
        observers=_replicas(make, quorum.observers),
    )


def _replicas(make: Any, replicas: Iterable[QuorumReplica]) -> tuple[Any, ...]:
    return tuple(
        make.ReplicaState(
            replica_id=each.replica_id,
            replica_directory_id=each.directory_id,
            log_end_offset=each.log_end_offset,
            last_fetch_timestamp=each.last_fetch_ms,
            last_caught_up_timestamp=each.last_caught_up_ms,
        )
        for each in replicas
    )


def _nodes(broker: BrokerContext, make: Any, quorum: QuorumDescription) -> tuple[Any, ...]:
    config = broker.config
    addresses = quorum.addresses or config.voters  # a leader of 0.3.0 sends none
    listener = next(iter(config.controller_listener_names), "CONTROLLER")
    return tuple(
        make.Node(node_id=node_id, listeners=(make.Listener(name=listener, host=host, port=port),))
        for node_id, (host, port) in sorted(addresses.items())
    )


API: Final = Api(
    key=API_KEY, handle=handle, needs=DESCRIBE_CLUSTER, max_parts=IN_TURNS, audit=NoChange(), controllers=True
)
