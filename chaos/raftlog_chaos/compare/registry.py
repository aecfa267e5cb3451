"""All systems and parts, in the order in which they are shown."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.compare.parts import consume, failure, growth, latency, rest
from raftlog_chaos.compare.parts.bench import Part
from raftlog_chaos.compare.parts.produce import produce
from raftlog_chaos.compare.parts.queue import queue
from raftlog_chaos.compare.systems.kafka import Kafka, KafkaFlush
from raftlog_chaos.compare.systems.machine import Machine
from raftlog_chaos.compare.systems.nats import Nats
from raftlog_chaos.compare.systems.rabbitmq import RabbitMq
from raftlog_chaos.compare.systems.raftlog import Raftlog, RaftlogOs
from raftlog_chaos.compare.systems.redis import Redis
from raftlog_chaos.compare.systems.secured import KafkaSaslTls, KafkaTls, RaftlogSaslTls, RaftlogTls
from raftlog_chaos.compare.systems.system import System

SYSTEMS: Final[dict[str, type[System]]] = {
    each.key: each
    for each in (
        Raftlog,
        RaftlogOs,
        RaftlogTls,
        RaftlogSaslTls,
        Kafka,
        KafkaFlush,
        KafkaTls,
        KafkaSaslTls,
        Nats,
        Redis,
        RabbitMq,
        Machine,
    )
}

PARTS: Final[dict[str, Part]] = {
    each.name: each
    for each in (
        Part("ready", "Start and rest", rest.ready, short=True, cold=True),
        Part(
            "produce",
            "Producers as fast as possible, six partitions, replication factor 3, acks=all",
            produce,
            short=True,
        ),
        Part("consume", "Consumers as fast as possible, 1 KB", consume.consume),
        Part("both", "Producers and consumers at once, 1 KB", consume.both),
        Part("latency", "Small requests at steady rates, 100 B, acks=all", latency.latency, short=True),
        Part("queue", "Queues: ten workers, 1 KB, six partitions, replication factor 3", queue),
        Part("memory", "Memory", rest.memory, short=True),
        Part("producers", "Many producers", latency.producers, once=True),
        Part("connections", "Idle connections", rest.connections, once=True),
        Part(
            "slow-disk",
            "Slow disks, 100 B, acks=all at 1,000 records a second",
            latency.slow_disk,
            once=True,
            alone=True,
        ),
        Part("gaps", "Failures", failure.gaps, once=True),
        Part("recovery", "Restart after a crash of all nodes", failure.recovery, once=True, alone=True),
        Part("partitions", "More partitions", growth.partitions, once=True, alone=True),
        Part("brokers", "More brokers", growth.brokers, once=True, alone=True),
    )
}
