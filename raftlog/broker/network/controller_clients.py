"""Kafka clients of the controllers' listener (KIP-919): who gets in. Their requests are judged by `rights`.

There are no logins on that listener, so a client gets in by a certificate that the listener demands, or where
`raftlog.controller.anonymous.clients` says so. It gets in only as far as the cluster's brokers would let it in: a node
that is no broker has no settings of theirs, so it goes by what brokers have registered and by the rules there are.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.config_broker import NodeConfig
from raftlog.base.config_security import SASL_PROTOCOLS
from raftlog.base.config_tls import TLS_PROTOCOLS
from raftlog.broker.context import BrokerContext
from raftlog.metadata.image import MetadataImage

SETTING: Final = "raftlog.controller.anonymous.clients"

_NO_WAY_IN: Final = (
    f"Kafka clients need a certificate (listener.name.CONTROLLER.ssl.client.auth=required), or {SETTING}=true"
)
_OUT_OF_TOUCH: Final = "this node has not heard from the active controller, so it knows no users and no rules"
_NO_AUTHORIZER: Final = (
    "the cluster has rules, and this node has no authorizer: set authorizer.class.name and super.users as on "
    "brokers"
)
_LOGINS: Final = (
    "clients log in or show certificates at the brokers: demand certificates here, or set authorizer.class.name as on "
    "brokers"
)


def why_refused(broker: BrokerContext) -> str | None:
    """Return why no Kafka client may use the controllers' listener now, with advice for an operator; None if it may."""
    config, image = broker.config, broker.image()
    has_certificate = _demands_certificate(config, config.controller_listener_names[0])
    if not (has_certificate or config.controller_anonymous_clients):
        return _NO_WAY_IN
    if not broker.in_touch(image.controller_id):
        return _OUT_OF_TOUCH
    if broker.authorizer is not None:
        return None
    if image.acls:
        return _NO_AUTHORIZER
    if not has_certificate and _strangers_are_refused(config, image):
        return _LOGINS
    return None


def _demands_certificate(config: NodeConfig, listener: str) -> bool:
    tls = config.tls.get(listener)
    return tls is not None and tls.ssl_client_auth == "required"


def _strangers_are_refused(config: NodeConfig, image: MetadataImage) -> bool:
    """Whether a client needs a login or a certificate at some listener of brokers, as far as this node can tell.

    Brokers do not register whether their TLS demands certificates, so it counts as if it did, but for this node's own.
    """
    if config.logins or any(_demands_certificate(config, each) for each in config.tls):
        return True
    own = set() if "broker" not in config.roles else {each.name for each in config.listeners}
    protocols = {
        each.security_protocol
        for broker in image.brokers.values()
        for each in broker.endpoints
        if each.listener not in own
    }
    return bool(protocols & (SASL_PROTOCOLS | set(TLS_PROTOCOLS)))
