"""Brokers, and the replicas that each holds."""

from __future__ import annotations

from functools import partial
from itertools import chain
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
from raftlog.base.turns import each_part
from raftlog.metadata.image import BrokerState, MetadataImage
from raftlog.security.acls import Operation


class Broker(msgspec.Struct, kw_only=True):
    """A registered broker. `is_fenced`: it has no leaderships, since it is down or not ready."""

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
    """Return the brokers in the order of their ids."""
    image = image_of(call)
    shown, metadata = page_of(call, sorted(image.brokers), "clusters", image.cluster_id, "brokers")
    found = (image.brokers[each] for each in shown)
    return BrokerList(metadata=metadata, data=await each_part(call, found, partial(_broker, call, image)))


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
    """Return the replicas of one broker."""
    image = image_of(call)
    broker_id = broker_of(call, image).broker_id
    names = sorted(await call.among(Operation.DESCRIBE, TOPIC, image.topics))

    def held(topic: str) -> list[tuple[str, int]]:
        states = image.topics[topic].partitions
        return [(topic, index) for index, state in enumerate(states) if broker_id in state.replicas]

    found = list(chain.from_iterable(await each_part(call, names, held)))
    parts = ("clusters", image.cluster_id, "brokers", broker_id, "partition-replicas")
    shown, metadata = page_of(call, found, *parts)

    def replica(where: tuple[str, int]) -> Replica:
        return replica_at(call, image, *where, broker_id)

    return ReplicaList(metadata=metadata, data=await each_part(call, shown, replica))


BASE: Final = "/v3/clusters/{cluster_id}/brokers"
ROUTES: Final = (
    Route("GET", BASE, list_brokers, "List the brokers", query=Page, rights=NO_RIGHTS),
    Route("GET", f"{BASE}/{{broker_id:int}}", get_broker, "Describe a broker", rights=NO_RIGHTS),
    Route(
        "GET",
        f"{BASE}/{{broker_id:int}}/partition-replicas",
        list_broker_replicas,
        "List the replicas that a broker holds",
        query=Page,
        rights=FILTERED,
    ),
)
