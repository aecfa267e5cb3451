"""DescribeCluster 0-2: the cluster as brokers, or as controllers (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, MismatchedEndpointType, UnsupportedEndpointType
from raftlog.base.types import NO_BROKER
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.metadata_view import NOT_ASKED, BrokersView
from raftlog.broker.rights import CLUSTER, operations
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import NoRights

API_KEY: Final = ApiKey.DESCRIBE_CLUSTER

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image: brokers on a broker's listener, controllers on a controller's."""
    make = response_builders(API_KEY, request.api_version)
    endpoint_type = getattr(message, "endpoint_type", BROKERS)
    if endpoint_type != (CONTROLLERS if request.to_controller else BROKERS):
        mismatched = endpoint_type in (BROKERS, CONTROLLERS)
        listener = "the controller's listener: ask for endpoint type 2"
        if not request.to_controller:
            listener = "a broker's listener: ask for endpoint type 1"
        return make.DescribeClusterResponse(
            error_code=MismatchedEndpointType.code if mismatched else UnsupportedEndpointType.code,
            error_message=f"this is {listener}",
            endpoint_type=endpoint_type,
            controller_id=NO_BROKER,
        )
    image = broker.image()
    with_operations = message.include_cluster_authorized_operations
    allowed = operations(broker, request, CLUSTER) if with_operations else NOT_ASKED
    if request.to_controller:
        return _controllers(broker, image, make, allowed)
    view = BrokersView(image.brokers, request.listener)
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
        cluster_authorized_operations=allowed,
    )


def _controllers(broker: BrokerContext, image: MetadataImage, make: Any, allowed: int) -> Any:
    """Describe the voters.

    Any voter forwards to the active controller, so this node is a substitute while that is unreachable.
    """
    active = image.controller_id
    return make.DescribeClusterResponse(
        error_code=NONE,
        error_message=None,
        endpoint_type=CONTROLLERS,
        cluster_id=image.cluster_id,
        controller_id=active if broker.in_touch(active) else broker.config.node_id,
        brokers=tuple(
            make.DescribeClusterBroker(broker_id=each, host=host, port=port, rack=None, is_fenced=False)
            for each, (host, port) in sorted((broker.voters() or broker.config.voters).items())
        ),
        cluster_authorized_operations=allowed,
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


API: Final = Api(
    key=API_KEY, handle=handle, needs=NoRights(), max_parts=AT_ONCE, audit=NoChange(), controllers=True
)
