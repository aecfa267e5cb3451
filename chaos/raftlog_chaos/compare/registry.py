"""All systems and parts, in the order in which they are shown."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.compare.parts.bench import Part
from raftlog_chaos.compare.parts.produce import produce
from raftlog_chaos.compare.systems.kafka import Kafka, KafkaFlush
from raftlog_chaos.compare.systems.machine import Machine
from raftlog_chaos.compare.systems.raftlog import Raftlog, RaftlogOs
from raftlog_chaos.compare.systems.system import System

SYSTEMS: Final[dict[str, type[System]]] = {
    each.key: each for each in (Raftlog, RaftlogOs, Kafka, KafkaFlush, Machine)
}

PARTS: Final[dict[str, Part]] = {
    each.name: each for each in (Part("produce", "Produce, replication factor 3", produce, short=True),)
}
