"""Cluster metadata as rows for people and programs. Passwords and SCRAM verifiers are left out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig, settings_of
from raftlog.base.types import NO_BROKER, encode_uuid
from raftlog.metadata.image import Endpoint, MetadataImage, TopicState
from raftlog.metadata.metadata_records import ConfigChanged, Record
from raftlog.security.scram import ScramCredential

HIDDEN: Final = "[hidden]"

Sections = Mapping[str, list[dict[str, Any]]]


def sections_of(image: MetadataImage) -> Sections:
    """Return all that a cluster agreed on: by kind of thing, a row for each."""
    return {
        "cluster": [
            {
                "cluster_id": image.cluster_id,
                "metadata_offset": image.offset,
                "controller": image.controller_id,
                "controller_epoch": image.controller_epoch,
                "next_producer_id": image.next_producer_id,
            }
        ],
        "features": [{"feature": name, "level": level} for name, level in sorted(image.features.items())],
        "voters": [
            {"voter": voter_id, "directory_id": encode_uuid(directory_id)}
            for voter_id, directory_id in sorted(image.voters.items())
        ],
        "decommissions": [
            {"broker": broker_id, "replace_with": None if other == NO_BROKER else other}
            for broker_id, other in sorted(image.decommissions.items())
        ],
        "brokers": _brokers(image),
        "topics": [_topic(each) for _, each in sorted(image.topics.items())],
        "partitions": [row for _, each in sorted(image.topics.items()) for row in _partitions(each)],
        "configs": [
            {"of": kind, "name": name, "config": key, "value": shown_config(key, value)}
            for (kind, name), values in sorted(image.configs.items())
            for key, value in sorted(values.items())
        ],
        "quotas": [
            {"entity": [list(part) for part in entity], "quota": name, "value": value}
            for entity, values in sorted(image.quotas.items(), key=str)
            for name, value in sorted(values.items())
        ],
        "users": [
            {"user": user, "mechanism": mechanism, "iterations": credential.iterations}
            for (user, mechanism), credential in sorted(image.scram.items(), key=lambda item: item[0])
        ],
        "acls": [plain(each) for each in sorted(image.acls, key=str)],
        "tokens": [plain(each) for _, each in sorted(image.tokens.items())],
        "unregistered": [
            {"broker": broker_id, "log_dirs": [encode_uuid(each) for each in broker.directory_ids]}
            for broker_id, broker in sorted(image.unregistered.items())
        ],
    }


def _brokers(image: MetadataImage) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker_id,
            "epoch": each.broker_epoch,
            "state": "fenced" if each.fenced else "stopping" if each.in_controlled_shutdown else "active",
            "rack": each.rack,
            "endpoints": [_address(endpoint) for endpoint in each.endpoints],
            "log_dirs": [encode_uuid(directory) for directory in each.directory_ids],
        }
        for broker_id, each in sorted(image.brokers.items())
    ]


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"


def _topic(topic: TopicState) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": encode_uuid(topic.topic_id),
        "partitions": len(topic.partitions),
    }


def _partitions(topic: TopicState) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": number,
            "leader": each.leader,
            "leader_epoch": each.leader_epoch,
            "partition_epoch": each.partition_epoch,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
            "eligible": list(each.eligible),
        }
        for number, each in enumerate(topic.partitions)
    ]


def record_row(record: Record) -> dict[str, Any]:
    """Return one record with its kind and its fields."""
    row = {"type": type(record).__name__, **plain(record)}
    if isinstance(record, ConfigChanged) and record.value is not None:
        row["value"] = shown_config(record.key, record.value)
    return row


def plain(value: Any) -> Any:
    """Return a value as JSON has it. Bytes are hidden: all that metadata has are what passwords are checked by."""
    if isinstance(value, ScramCredential):
        return {"iterations": value.iterations}
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, UUID):
        return encode_uuid(value)
    if isinstance(value, Enum):
        return value.name
    return HIDDEN if isinstance(value, bytes) else value


def shown_config(name: str, value: str) -> str:
    """Return a config's value, unless it is a password, of one listener (listener.name.x.y) too."""
    is_password = any(f".{name}".endswith(f".{each}") for each in _passwords())
    return HIDDEN if is_password else value


@cache
def _passwords() -> frozenset[str]:
    return frozenset(name for name, (_, row) in settings_of(NodeConfig).items() if row.sensitive)
