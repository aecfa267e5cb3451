"""Clusters: this node knows only its own."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    Related,
    image_of,
    item,
    page_of,
)
from raftlog.admin.route import NO_RIGHTS, Call, Route
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import MetadataImage


class Cluster(msgspec.Struct, kw_only=True):
    """A cluster. `controller` is null while there is none."""

    kind: str = "KafkaCluster"
    metadata: ItemMetadata
    cluster_id: str
    controller: Related | None
    brokers: Related
    topics: Related
    consumer_groups: Related
    broker_configs: Related
    partition_reassignments: Related


class ClusterList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaClusterList"
    metadata: ListMetadata
    data: list[Cluster]


async def list_clusters(call: Call) -> ClusterList:
    image = call.node.image()
    found = [_cluster(call, image)] if image.cluster_id else []
    shown, metadata = page_of(call, found, "clusters", key=attrgetter("cluster_id"))
    return ClusterList(metadata=metadata, data=list(shown))


async def get_cluster(call: Call) -> Cluster:
    return _cluster(call, image_of(call))


def _cluster(call: Call, image: MetadataImage) -> Cluster:
    if not image.cluster_id:
        raise ApiError(503, "this node has no metadata from a controller yet")

    def related(*parts: object) -> Related:
        return Related(call.link("clusters", image.cluster_id, *parts))

    return Cluster(
        metadata=item(call, image),
        cluster_id=image.cluster_id,
        controller=None if image.controller_id == NO_BROKER else related("brokers", image.controller_id),
        brokers=related("brokers"),
        topics=related("topics"),
        consumer_groups=related("consumer-groups"),
        broker_configs=related("broker-configs"),
        partition_reassignments=related("topics", "-", "partitions", "-", "reassignment"),
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v3/clusters",
        list_clusters,
        "List the clusters known here: one",
        query=Page,
        rights=NO_RIGHTS,
    ),
    Route("GET", "/v3/clusters/{cluster_id}", get_cluster, "Describe the cluster", rights=NO_RIGHTS),
)
