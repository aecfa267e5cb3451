"""Authorization: whether a request's sender may do what it requests.

A broker that is authenticated by the cluster secret may do everything, and so may this broker itself. Handlers check
ACLs first and look up afterwards, so that a response does not reveal what exists.
`tests/broker/handlers/test_rights.py` has a row for each handler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.config.tls import demands_certificate
from raftlog.base.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.consumer.topic_regex_resolver import Viewer
from raftlog.metadata.features import client_demands
from raftlog.metadata.image import MetadataImage, SupportedFeature
from raftlog.metadata.persistent_map import changed_keys
from raftlog.security.acls import (
    ADMIN_API,
    CLUSTER_NAME,
    OPERATIONS,
    BrokersOnly,
    Demanded,
    Needs,
    Operation,
    ResourceType,
)

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.broker.network.connection import Connection
    from raftlog.broker.partition_lookup import TopicKey
    from raftlog.security.authorizer import Authorizer

CLUSTER: Final = ResourceType.CLUSTER
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

_REFUSALS: Final[dict[ResourceType, type[KafkaError]]] = {
    TOPIC: TopicAuthorizationFailed,
    GROUP: GroupAuthorizationFailed,
    CLUSTER: ClusterAuthorizationFailed,
    TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.USER: DelegationTokenAuthorizationFailed,
}


def demand_needed(broker: BrokerContext, needs: Needs, request: RequestContext, message: Any) -> None:
    """Raise the error of the first right that the sender lacks for the request as a whole."""
    if isinstance(needs, BrokersOnly) and request.peer_broker_id is None:
        raise ClusterAuthorizationFailed("only brokers may send this request")
    if broker.authorizer is None or not isinstance(needs, Demanded):
        return
    for right in needs.rights:
        name = (getattr(message, right.field) or "") if right.field else CLUSTER_NAME
        demand(broker, request, right.operation, right.resource_type, name)


def make_authorizer(config: NodeConfig) -> Authorizer | None:
    """Return an authorizer without ACLs, or None if none is configured."""
    if not config.authorizer_class_name:
        return None
    from raftlog.security.authorizer import Authorizer

    return Authorizer(
        super_users=(*config.super_users, ADMIN_API), allow_if_no_rule=config.allow_everyone_if_no_acl_found
    )


def client_demands_of(config: NodeConfig) -> tuple[SupportedFeature, ...]:
    """Return the client requirements that a broker registers: its ACLs, and certificates at its listeners."""
    listeners = {each.name for each in config.listeners} - set(config.controller_listener_names)
    certificates = any(demands_certificate(config.tls, each) for each in listeners)
    return client_demands(rules=bool(config.authorizer_class_name), certificates=certificates)


def follow_rules(authorizer: Authorizer | None, old: MetadataImage, new: MetadataImage) -> None:
    """Apply the ACLs of the newest image, before the image is announced."""
    if authorizer is not None and old.acls is not new.acls:
        changed = tuple(changed_keys(old.acls, new.acls))
        authorizer.change(
            added=(acl for acl in changed if acl in new.acls),
            removed=(acl for acl in changed if acl not in new.acls),
        )


def may(
    broker: BrokerContext,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    log_if_denied: bool = False,
) -> bool:
    """Return whether a request's sender may do something with a resource.

    With `log_if_denied`, a denial goes to the audit log, since the sender named the resource.
    """
    authorizer = broker.authorizer
    if authorizer is None or request.has_all_rights:
        return True
    allowed = _allows(authorizer, request, operation, resource_type, name)
    if log_if_denied and not allowed:
        note_denial(broker, request, operation, resource_type, (name,))
    return allowed


def note_denial(
    broker: BrokerContext,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    names: Collection[str],
) -> None:
    """Record in the audit log that the sender may not do that with some resources, if there are any."""
    if names:
        broker.audit.denied(request.api_key, operation, resource_type, names, **request.sender)


def refusal(resource_type: ResourceType) -> KafkaError:
    """Return the error for a resource that the sender may not use. Its message does not reveal whether it exists."""
    # Kafka's words; librdkafka shows "(null)" for an error without a message
    return _REFUSALS[resource_type](
        f"{resource_type.name.capitalize().replace('_', ' ')} authorization failed."
    )


def demand(
    broker: BrokerContext,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> None:
    """Raise the error of the resource's type if the sender may not do that."""
    if not may(broker, request, operation, resource_type, name, log_if_denied=True):
        raise refusal(resource_type)


def refused_topic(connection: Connection, operation: Operation, topic: TopicKey) -> str | None:
    """Return the name of a topic, given by name or id, if a connection may not do something with it, otherwise None.

    An unknown id reveals no topic: the error for it is the same for every client.
    """
    broker = connection.server.broker
    authorizer = broker.authorizer
    if authorizer is None or connection.broker_id is not None:
        return None
    name = topic if isinstance(topic, str) else broker.image().topic_names.get(topic)
    if name is None or authorizer.allows(connection.principal, connection.peer_host, operation, TOPIC, name):
        return None
    return name


def connection_may(connection: Connection, operation: Operation, topic: TopicKey) -> bool:
    """Return whether a connection may do something with a topic; a denial goes to the audit log."""
    name = refused_topic(connection, operation, topic)
    if name is not None:
        note_refusal(connection, operation, TOPIC, (name,))
    return name is None


def note_refusal(
    connection: Connection, operation: Operation, resource_type: ResourceType, names: Collection[str]
) -> None:
    """Record in the audit log that a connection may not do that with some resources."""
    connection.server.broker.audit.denied(
        connection.api_key,
        operation,
        resource_type,
        names,
        principal=connection.principal,
        address=connection.peer_host,
        listener=connection.listener,
    )


def demand_transactional_id(connection: Connection, transactional_id: str) -> None:
    """Raise TransactionalIdAuthorizationFailed if the client may not write in such transactions."""
    authorizer = connection.server.broker.authorizer
    if authorizer is None or connection.broker_id is not None:
        return
    principal, host = connection.principal, connection.peer_host
    if not authorizer.allows(principal, host, Operation.WRITE, TRANSACTIONAL_ID, transactional_id):
        note_refusal(connection, Operation.WRITE, TRANSACTIONAL_ID, (transactional_id,))
        raise refusal(TRANSACTIONAL_ID)


async def among(
    broker: BrokerContext,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    log_if_denied: bool = False,
) -> frozenset[str]:
    """Return the resources with which the sender may do something; `log_if_denied` as in `may`.

    It yields the loop between batches. If ACLs change meanwhile, the change applies to the remaining names only.
    """
    wanted = frozenset(names)
    authorizer = broker.authorizer
    if authorizer is None or request.has_all_rights:
        return wanted
    ask = partial(_allows, authorizer, request, operation, resource_type)
    answers = await each_part(broker.env, wanted, ask)
    allowed = frozenset(name for name, is_allowed in zip(wanted, answers, strict=True) if is_allowed)
    if log_if_denied:
        note_denial(broker, request, operation, resource_type, wanted - allowed)
    return allowed


def viewer(broker: BrokerContext, request: RequestContext) -> Viewer | None:
    """Return the sender as a viewer.

    Its rights decide which topics a group's regular expressions match. None matches all topics.
    """
    if broker.authorizer is None or request.has_all_rights:
        return None
    return Viewer(request.principal, request.peer_host)


def may_any(
    broker: BrokerContext, request: RequestContext, operation: Operation, resource_type: ResourceType
) -> bool:
    """Return whether the sender may do something with any resource of a type (KIP-679)."""
    authorizer = broker.authorizer
    if authorizer is None or request.has_all_rights:
        return True
    return authorizer.allows_any(request.principal, request.peer_host, operation, resource_type)


def operations(
    broker: BrokerContext, request: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Return what the sender may do with a resource, a bit for each operation's number (KIP-430).

    0 without the right to describe it.
    """
    authorizer = broker.authorizer
    allowed = [
        operation
        for operation in OPERATIONS[resource_type]
        if authorizer is None
        or request.has_all_rights
        or _allows(authorizer, request, operation, resource_type, name)
    ]
    return sum(1 << operation for operation in allowed) if Operation.DESCRIBE in allowed else 0


def _allows(
    authorizer: Authorizer,
    request: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Return whether the ACLs allow it. At the controllers' listener allow.everyone.if.no.acl.found does not count.

    Clients connect there without a login, and may request users and ACLs.
    """
    asked = request.principal, request.peer_host, operation, resource_type, name
    return authorizer.verdict(*asked).is_by_rule if request.to_controller else authorizer.allows(*asked)
