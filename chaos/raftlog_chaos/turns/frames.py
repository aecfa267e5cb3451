"""Frames of the requests that create state on a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import RequestHeader, encode_request
from raftlog.protocol.message_builders import request_builders

CLIENT_ID = "turns"


def produce(topic: str, index: int, batch: bytes) -> bytes:
    """Return a request to write one batch."""
    make = request_builders(ApiKey.PRODUCE, 9)
    partition = make.PartitionProduceData(index=index, records=batch)
    data = make.TopicProduceData(name=topic, partition_data=(partition,))
    return _frame(
        ApiKey.PRODUCE,
        9,
        make.ProduceRequest(transactional_id=None, acks=1, timeout=30_000, topic_data=(data,)),
    )


def commit(group: str, topics: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """Return a request to commit offsets of a group without members."""
    make = request_builders(ApiKey.OFFSET_COMMIT, 8)
    asked = tuple(
        make.OffsetCommitRequestTopic(
            name=name,
            partitions=tuple(
                make.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=0,
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for index in indexes
            ),
        )
        for name, indexes in topics
    )
    message = make.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=asked
    )
    return _frame(ApiKey.OFFSET_COMMIT, 8, message)


def find_coordinator(key: str, kind: int) -> bytes:
    """Return a request for the coordinator of a group (kind 0), a transactional id (1) or a share partition (2)."""
    make = request_builders(ApiKey.FIND_COORDINATOR, 6)
    message = make.FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    return _frame(ApiKey.FIND_COORDINATOR, 6, message)


def join(group: str) -> bytes:
    """Return a request to join a classic group; version 3 takes a member without an id."""
    make = request_builders(ApiKey.JOIN_GROUP, 3)
    protocol = make.JoinGroupRequestProtocol(name="range", metadata=bytes(100))
    return _frame(
        ApiKey.JOIN_GROUP,
        3,
        make.JoinGroupRequest(
            group_id=group,
            session_timeout=1_800_000,
            rebalance_timeout=5_000,
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        ),
    )


def heartbeat(group: str, member_id: str, topic: str) -> bytes:
    """Return the request by which a member joins a consumer group (KIP-848)."""
    make = request_builders(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    return _frame(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        make.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout=300_000,
            subscribed_topic_names=(topic,),
            topic_partitions=(),
        ),
    )


def begin_transactions(transactional_id: str) -> bytes:
    """Return a request for the producer id of a transactional id."""
    make = request_builders(ApiKey.INIT_PRODUCER_ID, 4)
    message = make.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout=900_000)
    return _frame(ApiKey.INIT_PRODUCER_ID, 4, message)


def _frame(api_key: int, version: int, message: Any) -> bytes:
    return encode_request(RequestHeader(api_key, version, 1, CLIENT_ID), message)
