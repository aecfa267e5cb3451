"""Brokers, and the replicas that each holds."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.admin.errors import not_found
from raftlog.admin.kafka_rest.partitions import Replica, ReplicaList, replica_at
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    Related,
    image_of,
    item,
    page_of,
)
from raftlog.admin.route import FILTERED, NO_RIGHTS, TOPIC, Call, Route
from raftlog.metadata.image import BrokerState, MetadataImage
from raftlog.security.acls import Operation


class Broker(msgspec.Struct, kw_only=True):
    """A registered broker. `is_fenced`: it leads nothing, since it is away or not ready."""

    kind: str = "KafkaBroker"
    metadata: ItemMetadata
    cluster_id: str
    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    is_fenced: bool
    configs: Related
    partition_replicas: Related


class BrokerList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaBrokerList"
    metadata: ListMetadata
    data: list[Broker]


def broker_of(call: Call, image: MetadataImage) -> BrokerState:
    """Return the path's broker. Raises ApiError 404."""
    found = image.brokers.get(call.path["broker_id"])
    if found is None:
        raise not_found(f"broker {call.path['broker_id']}")
    return found


async def list_brokers(call: Call) -> BrokerList:
    image = image_of(call)
    shown, metadata = page_of(call, sorted(image.brokers), "clusters", image.cluster_id, "brokers")
    return BrokerList(metadata=metadata, data=[_broker(call, image, image.brokers[each]) for each in shown])


async def get_broker(call: Call) -> Broker:
    image = image_of(call)
    return _broker(call, image, broker_of(call, image))


def _broker(call: Call, image: MetadataImage, state: BrokerState) -> Broker:
    endpoint = state.endpoint(call.node.config.inter_broker_listener_name)
    own = ("brokers", state.broker_id)
    base = ("clusters", image.cluster_id, *own)
    return Broker(
        metadata=item(call, image, *own, broker=state.broker_id),
        cluster_id=image.cluster_id,
        broker_id=state.broker_id,
        host=None if endpoint is None else endpoint.host,
        port=None if endpoint is None else endpoint.port,
        rack=state.rack,
        is_fenced=state.fenced,
        configs=Related(call.link(*base, "configs")),
        partition_replicas=Related(call.link(*base, "partition-replicas")),
    )


async def list_broker_replicas(call: Call) -> ReplicaList:
    """The replicas of one broker."""
    image = image_of(call)
    broker_id = broker_of(call, image).broker_id
    found = [
        (topic, index)
        for topic in sorted(await call.among(Operation.DESCRIBE, TOPIC, image.topics))
        for index, state in enumerate(image.topics[topic].partitions)
        if broker_id in state.replicas
    ]
    parts = ("clusters", image.cluster_id, "brokers", broker_id, "partition-replicas")
    shown, metadata = page_of(call, found, *parts)
    data: list[Replica] = [replica_at(call, image, topic, index, broker_id) for topic, index in shown]
    return ReplicaList(metadata=metadata, data=data)


BASE: Final = "/v3/clusters/{cluster_id}/brokers"
ROUTES: Final = (
    Route("GET", BASE, list_brokers, "List the brokers", BrokerList, query=Page, rights=NO_RIGHTS),
    Route("GET", f"{BASE}/{{broker_id:int}}", get_broker, "Describe a broker", Broker, rights=NO_RIGHTS),
    Route(
        "GET",
        f"{BASE}/{{broker_id:int}}/partition-replicas",
        list_broker_replicas,
        "List the replicas that a broker holds",
        ReplicaList,
        query=Page,
        rights=FILTERED,
    ),
)
