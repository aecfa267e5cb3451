"""DescribeCluster 0-2: the cluster's brokers on the client's listener (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, MismatchedEndpointType, UnsupportedEndpointType
from raftlog.base.types import NO_BROKER
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.metadata_view import CLUSTER_OPERATIONS, NO_OPERATIONS, BrokersView
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DESCRIBE_CLUSTER

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer from the newest image."""
    make = response_shapes(API_KEY, request.api_version)
    endpoint_type = getattr(message, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        mismatched = endpoint_type == CONTROLLERS
        return make.DescribeClusterResponse(
            error_code=MismatchedEndpointType.code if mismatched else UnsupportedEndpointType.code,
            error_message="this is a broker's listener: ask for endpoint type 1",
            endpoint_type=endpoint_type,
            controller_id=NO_BROKER,
        )
    image = broker.image()
    view = BrokersView(image.brokers, request.listener)
    with_operations = message.include_cluster_authorized_operations
    return make.DescribeClusterResponse(
        error_code=NONE,
        error_message=None,
        endpoint_type=endpoint_type,
        cluster_id=image.cluster_id,
        controller_id=view.controller_id(broker, image),
        brokers=tuple(
            _brokers(
                image, request, view, make, with_fenced=getattr(message, "include_fenced_brokers", False)
            )
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NO_OPERATIONS,
    )


def _brokers(
    image: MetadataImage, request: RequestContext, view: BrokersView, make: Any, *, with_fenced: bool
) -> list[Any]:
    found = []
    for broker_id in sorted(image.brokers if with_fenced else view.reachable):
        state = image.brokers[broker_id]
        endpoint = state.endpoint(request.listener)
        if endpoint is not None:
            found.append(
                make.DescribeClusterBroker(
                    broker_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=state.rack,
                    is_fenced=state.fenced,
                )
            )
    return found
