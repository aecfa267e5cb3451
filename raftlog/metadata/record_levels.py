"""The metadata records that a cluster may write, by its level of raftlog.metadata.version.

A node must never write a record that another node does not know. A kind of record that came after 0.2.0 has its level
here, and so must a new field of an older kind. It is written once the level is finalized, which all nodes must support.
`tests/metadata/test_record_levels.py` lists what each level knows, and fails for a record without a level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from raftlog.base.errors import InvalidUpdateVersion, UnsupportedVersion
from raftlog.metadata.controller_api import UpdateFeatures
from raftlog.metadata.features import (
    NEWEST_METADATA_LEVEL,
    RAFTLOG_METADATA_VERSION,
    finalized_level,
    unsupported_by_broker,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import (
    AclCreated,
    AclRemoved,
    BrokerChanged,
    BrokerRegistered,
    ClientQuotaChanged,
    DecommissionChanged,
    FeatureChanged,
    PartitionChanged,
    Record,
    ScramCredentialChanged,
    TokenChanged,
    TokenRemoved,
    VoterRegistered,
)

RECORDS_SINCE: Final[Mapping[type, int]] = MappingProxyType(
    {
        AclCreated: 1,
        AclRemoved: 1,
        ClientQuotaChanged: 1,
        ScramCredentialChanged: 1,
        TokenChanged: 1,
        TokenRemoved: 1,
        VoterRegistered: 2,
        DecommissionChanged: 3,
    }
)
"""The levels of records. Other records are written at each level."""

FIELDS_SINCE: Final[Mapping[type, Mapping[str, int]]] = MappingProxyType(
    {
        BrokerRegistered: {"disk_lost": 3},
        BrokerChanged: {"disk_lost": 3},
        PartitionChanged: {"eligible": 3},
    }
)
"""The levels of fields that older kinds of records have got; None where a record does not use the field."""


def check_records(image: MetadataImage, records: Iterable[Record]) -> None:
    """Raise UnsupportedVersion if the cluster's level does not allow some of the records yet."""
    level = finalized_level(image, RAFTLOG_METADATA_VERSION)
    if level < NEWEST_METADATA_LEVEL:
        for each in records:
            if type(each) is FeatureChanged and each.name == RAFTLOG_METADATA_VERSION:
                level = each.level
            check_level(level, RECORDS_SINCE.get(type(each), 0))
            for field, needed in FIELDS_SINCE.get(type(each), {}).items():
                check_level(level, 0 if getattr(each, field) is None else needed)


def check_feature_levels(image: MetadataImage, request: UpdateFeatures) -> None:
    """Raise InvalidUpdateVersion for a level of the metadata that a registered broker does not support."""
    for each in request.updates:
        if each.name == RAFTLOG_METADATA_VERSION:
            reason = unsupported_by_broker(image, each.name, each.level)
            if reason is not None:
                raise InvalidUpdateVersion(f"invalid level {each.level} of feature {each.name!r}: {reason}")


def check_level(level: int, needed: int) -> None:
    """Raise UnsupportedVersion if a level of raftlog.metadata.version is lower than needed."""
    if level < needed:
        raise UnsupportedVersion(
            f"the cluster's {RAFTLOG_METADATA_VERSION} is {level}, and this needs {needed}: once all nodes run a "
            "release that supports it, finalize the upgrade with `raftlog cluster upgrade`"
        )
