"""Features: cluster-wide behaviour by levels that all its brokers must support (KIP-584).

A broker registers the levels that it supports. The initial level is in force until UpdateFeatures changes it; the image
holds only changed levels. Clients read both in ApiVersions.

`raftlog.metadata.version` is about nodes, not clients: a node writes and sends only what all nodes know at its level.
Apache Kafka's metadata.version cannot serve here, since its numbers are those of Kafka's releases, and tools read them
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from raftlog.base.errors import UnsupportedVersion
from raftlog.metadata.image import BrokerState, MetadataImage, SupportedFeature

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
KRAFT_VERSION: Final = "kraft.version"
SHARE_VERSION: Final = "share.version"
RAFTLOG_METADATA_VERSION: Final = "raftlog.metadata.version"
CLIENT_RULES: Final = "raftlog.client.rules"
CLIENT_CERTIFICATES: Final = "raftlog.client.certificates"
"""The demands of a broker on clients, as it registers them: 1 if it has an authorizer, 1 if a listener of it demands
certificates. A controller without the broker role uses them. They are hidden from clients, and no request changes them.
"""


class Feature(NamedTuple):
    """One feature: the levels that this release supports, and the initial level of a new cluster.

    `initial` must stay the same in later releases: it would change in clusters that never set it.
    """

    name: str
    lowest: int
    highest: int
    initial: int


FEATURES: Final = (
    # Apache Kafka's numbers for 4.0-IV3 to 4.3-IV0. raftlog writes the same metadata records at all of them.
    Feature(METADATA_VERSION, 25, 30, 30),
    # KIP-848: at level 0 there are no consumer groups of the new protocol.
    Feature(GROUP_VERSION, 0, 1, 1),
    # KIP-890: the level that clients speak. Java's producer begins with Produce 12, EndTxn 5, TxnOffsetCommit 5 at 2.
    Feature(TRANSACTION_VERSION, 0, 2, 2),
    # KIP-932: at level 0 there are no share groups, and from 2 on dead letters (KIP-1191). A new cluster has level 2.
    Feature(SHARE_VERSION, 0, 2, 0),
    # KIP-853: at level 1 the voters are a record of the metadata log, and can change.
    Feature(KRAFT_VERSION, 0, 1, 0),
    # What each level adds is in `record_levels`. A new cluster begins at the highest; clusters of 0.2.0 have none.
    Feature(RAFTLOG_METADATA_VERSION, 0, 3, 0),
)

KAFKAS_ALONE: Final[Mapping[str, int]] = MappingProxyType(
    {
        KRAFT_VERSION: 1,
        "eligible.leader.replicas.version": 1,
        "streams.version": 1,
    }
)
"""Features that releases of Apache Kafka set, and that raftlog lacks, or sets only by themselves. `kafka-features
upgrade --release-version` asks for them together with `metadata.version`, and would fail otherwise.
"""

SUPPORTED_FEATURES: Final = tuple(SupportedFeature(each.name, each.lowest, each.highest) for each in FEATURES)
"""The features that a broker of this release registers."""

NEWEST_METADATA_LEVEL: Final = FEATURES[-1].highest

VOTERS_CHANGE: Final = 3
"""The level of RAFTLOG_METADATA_VERSION that KRAFT_VERSION 1 needs: all nodes read sets of voters."""

KEEPS_UNREGISTERED: Final = 3
"""The level of RAFTLOG_METADATA_VERSION at which an image keeps whole registrations of unregistered brokers."""

DEAD_LETTERS: Final = 2
"""The level of SHARE_VERSION since which share groups have dead letters (KIP-1191)."""

FOLLOWERS_SERVE: Final = 3
"""The level of RAFTLOG_METADATA_VERSION that the first release with followers that serve consumers supports."""

_INITIAL: Final = {each.name: each.initial for each in FEATURES}


def finalized_level(image: MetadataImage, name: str) -> int:
    """Return the finalized level of a feature; 0 for an unknown feature."""
    level = image.features.get(name)
    return _INITIAL.get(name, 0) if level is None else level


def check_group_version(image: MetadataImage) -> None:
    """Raise UnsupportedVersion where consumer groups of the new protocol are off (KIP-848)."""
    level = finalized_level(image, GROUP_VERSION)
    if level < 1:
        raise UnsupportedVersion(f"{GROUP_VERSION} is {level}: groups of the consumer protocol are disabled")


def check_share_version(image: MetadataImage) -> None:
    """Raise UnsupportedVersion where share groups are off (KIP-932)."""
    level = finalized_level(image, SHARE_VERSION)
    if level < 1:
        raise UnsupportedVersion(f"{SHARE_VERSION} is {level}: share groups are disabled")


def unsupported_reason(features: tuple[SupportedFeature, ...], name: str, level: int) -> str | None:
    """Return the end of a sentence with the reason why `features` lack a level, or None if they support it."""
    found = next((each for each in features if each.name == name), None)
    if found is None:
        return f"does not support {name}"
    if not found.lowest <= level <= found.highest:
        return f"supports levels {found.lowest} to {found.highest} of {name}"
    return None


def serves_consumers_as_follower(broker: BrokerState) -> bool:
    """Return whether a broker's release has followers that serve consumers: 0.4.0, or later (KIP-392)."""
    return any(
        each.name == RAFTLOG_METADATA_VERSION and each.highest >= FOLLOWERS_SERVE for each in broker.features
    )


def unsupported_by_broker(image: MetadataImage, name: str, level: int) -> str | None:
    """Return a sentence, without its end, that names a registered broker which lacks a level, or None."""
    for broker in image.brokers.values():
        reason = unsupported_reason(broker.features, name, level)
        if reason is not None:
            return f"broker {broker.broker_id} {reason}"
    return None


class UnsupportedMetadata(ValueError):
    """The cluster's metadata is a newer release's, or a much older release's; the message says what to do."""


def check_levels(features: tuple[SupportedFeature, ...], image: MetadataImage) -> None:
    """Raise UnsupportedMetadata if `features` do not support metadata of an image's level.

    Levels of other features concern brokers only, and a later record may have lowered them. A broker that lacks a
    finalized level cannot register.
    """
    level = image.features.get(RAFTLOG_METADATA_VERSION)
    reason = None if level is None else unsupported_reason(features, RAFTLOG_METADATA_VERSION, level)
    if reason is not None:
        raise UnsupportedMetadata(
            f"the cluster's {RAFTLOG_METADATA_VERSION} is {level}, but this release {reason}: install the cluster's"
            " release"
        )


def client_demands(*, rules: bool, certificates: bool) -> tuple[SupportedFeature, ...]:
    """Return the features by which a broker registers its demands on clients. Nodes of every release keep them."""
    levels = {CLIENT_RULES: int(rules), CLIENT_CERTIFICATES: int(certificates)}
    return tuple(SupportedFeature(name, level, level) for name, level in levels.items())


def have_rules(image: MetadataImage) -> bool:
    """Return whether ACLs are enforced in this cluster: some exist, or a broker has an authorizer."""
    return bool(image.acls) or any(_registered(each, CLIENT_RULES) for each in image.brokers.values())


def may_demand_certificate(broker: BrokerState) -> bool:
    """Return whether a client may need a certificate at a TLS listener of a broker; True if it registered no
    demands.
    """
    return _registered(broker, CLIENT_CERTIFICATES) != 0


def _registered(broker: BrokerState, name: str) -> int | None:
    return next((each.highest for each in broker.features if each.name == name), None)
