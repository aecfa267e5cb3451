"""Every config of Kafka's brokers: what it is, takes and refuses, for one broker and for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog_chaos.conformance import kafka_configs
from raftlog_chaos.conformance.config_questions import (
    BROKER,
    DEFAULT_SOURCE,
    DELETE,
    SET,
    Config,
    alter,
    entry,
    own_id,
    replaced,
    rows,
    shown,
    values,
)
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session


def describe_broker(s: Session, name: str) -> None:
    """Observe what a broker's config is, whatever this broker has it set to."""
    found = shown(entry(s, BROKER, own_id(s), name))
    if isinstance(found, dict):
        mark = f" from {DEFAULT_SOURCE}"
        found["synonyms"] = [each for each in found["synonyms"] if each.endswith(mark)]
        del found["value"], found["config_source"]
    s.observe("described", found)


@history(rows(kafka_configs.READ_ONLY))
def fixed(s: Session, config: Config) -> None:
    """A broker's config that is fixed while it runs is not altered, neither for one broker nor for all."""
    describe_broker(s, config.name)
    for resource in (own_id(s), ""):
        s.observe(
            "one broker" if resource else "all brokers",
            {
                "set": alter(s, BROKER, resource, (config.name, SET, "1"), validate_only=True),
                "delete": alter(s, BROKER, resource, (config.name, DELETE, None), validate_only=True),
            },
        )


@history({name: config for name, config in rows(kafka_configs.BROKER).items() if name != "listeners"})
def changeable(s: Session, config: Config) -> None:
    """A broker's config takes values of its type and range, for all brokers, or for a single broker."""
    describe_broker(s, config.name)
    for resource in (own_id(s), ""):
        values(s, BROKER, resource, config)
    replaced(s, BROKER, own_id(s), config)


LIVES: Final[Mapping[str, str]] = {
    "log.retention.ms": "86400001",
    "log.retention.bytes": "1000000000",
    "log.segment.bytes": "10485761",
    "log.cleanup.policy": "compact,delete",
    "log.cleaner.threads": "2",
    "log.cleaner.backoff.ms": "101",
    "log.flush.interval.ms": "100000",
    "log.roll.ms": "86400001",
    "log.message.timestamp.type": "LogAppendTime",
    "log.message.timestamp.after.max.ms": "3600001",
    "log.preallocate": "true",
    "log.index.interval.bytes": "4097",
    "message.max.bytes": "1048589",
    "max.connections": "10000",
    "max.connections.per.ip": "10000",
    "max.connections.per.ip.overrides": "10.0.0.1:5",
    "max.connection.creation.rate": "10000",
    "min.insync.replicas": "1",
    "num.io.threads": "9",
    "num.network.threads": "4",
    "num.replica.fetchers": "2",
    "background.threads": "9",
    "producer.id.expiration.ms": "86400001",
    "unclean.leader.election.enable": "true",
    "compression.type": "zstd",
}


@history({f"{name} {whose}": (name, whose) for name in LIVES for whose in ("of one", "of all")})
def life(s: Session, row: tuple[str, str]) -> None:
    """A broker's config that is changed holds for one broker or all, and topics without their own follow it."""
    name, whose = row
    resource = own_id(s) if whose == "of one" else ""
    before = entry(s, BROKER, own_id(s), name).get("value")
    s.observe("set", alter(s, BROKER, resource, (name, SET, LIVES[name])))
    try:
        s.wait("it holds", lambda: entry(s, BROKER, own_id(s), name).get("value") == LIVES[name])
        s.observe("described", shown(entry(s, BROKER, own_id(s), name)))
        s.observe("the resource", shown(entry(s, BROKER, resource, name)))
    finally:
        s.observe("delete", alter(s, BROKER, resource, (name, DELETE, None)))
    s.wait("it holds no more", lambda: entry(s, BROKER, own_id(s), name).get("value") == before)
