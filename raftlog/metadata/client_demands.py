"""The demands that brokers make on clients, as each registers them: a controller that is no broker judges by them.

They are levels among the features of a registration (KIP-584), so that nodes of every release keep them. No client
sees them, and nobody can change them.
"""

from __future__ import annotations

from typing import Final

from raftlog.metadata.image import BrokerState, MetadataImage, SupportedFeature

RULES: Final = "raftlog.client.rules"
"""Level 1: the broker has an authorizer, so rules say what a client may do."""

CERTIFICATES: Final = "raftlog.client.certificates"
"""Level 1: a listener of the broker demands a client's certificate."""


def demands(*, rules: bool, certificates: bool) -> tuple[SupportedFeature, ...]:
    """Return the features by which a broker registers its demands."""
    levels = {RULES: int(rules), CERTIFICATES: int(certificates)}
    return tuple(SupportedFeature(name, level, level) for name, level in levels.items())


def have_rules(image: MetadataImage) -> bool:
    """Return whether rules decide in this cluster: there are some, or a broker has an authorizer."""
    return bool(image.acls) or any(_level(each, RULES) for each in image.brokers.values())


def may_demand_certificate(broker: BrokerState) -> bool:
    """Return whether a client may need a certificate at a TLS listener of a broker; True if it registered nothing."""
    return _level(broker, CERTIFICATES) != 0


def _level(broker: BrokerState, name: str) -> int | None:
    return next((each.highest for each in broker.features if each.name == name), None)
