"""Kafka clients of the controllers' listener (KIP-919): which clients are admitted.

Their requests are authorized by `rights`.

There are no logins on that listener, so a client gets in by a certificate that the listener demands, or where
`raftlog.controller.anonymous.clients` says so. It is admitted only if the cluster's brokers would admit it. A node
that is not a broker lacks their settings, so it uses their registrations and the ACLs.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.security import SASL_PROTOCOLS
from raftlog.base.config.tls import TLS_PROTOCOLS, demands_certificate
from raftlog.broker.context import BrokerContext
from raftlog.metadata.features import have_rules, may_demand_certificate
from raftlog.metadata.image import BrokerState, MetadataImage

SETTING: Final = "raftlog.controller.anonymous.clients"

_NO_WAY_IN: Final = (
    f"Kafka clients need a certificate (listener.name.CONTROLLER.ssl.client.auth=required), or {SETTING}=true"
)
_OUT_OF_TOUCH: Final = (
    "this node has no metadata from the active controller yet, so it knows no users and no rules"
)
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
    has_certificate = demands_certificate(config.tls, config.controller_listener_names[0])
    if not (has_certificate or config.controller_anonymous_clients):
        return _NO_WAY_IN
    if not broker.in_touch(image.controller_id):
        return _OUT_OF_TOUCH
    if broker.authorizer is not None:
        return None
    if have_rules(image):
        return _NO_AUTHORIZER
    if not has_certificate and _strangers_are_refused(config, image):
        return _LOGINS
    return None


def _strangers_are_refused(config: NodeConfig, image: MetadataImage) -> bool:
    """Return whether clients need a login or a certificate at a listener of this node, or of a registered broker."""
    if config.logins or any(demands_certificate(config.tls, each) for each in config.tls):
        return True
    return any(map(_refuses_strangers, image.brokers.values()))


def _refuses_strangers(broker: BrokerState) -> bool:
    protocols = {each.security_protocol for each in broker.endpoints}
    has_tls = bool(protocols & set(TLS_PROTOCOLS))
    return bool(protocols & SASL_PROTOCOLS) or (has_tls and may_demand_certificate(broker))
