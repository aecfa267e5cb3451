"""The loads of a power cut: plain writers, transactions with read-process-write, groups that commit what they read, and
a share group.

Each is the stock workload with a history of its own. It goes on after a cut: on the same partitions, in the same
groups, with the same transactional ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from raftlog_chaos.history import QueueTerms, Recorder
from raftlog_chaos.power_cut.words import LoadState
from raftlog_chaos.workloads.generator import LogOptions
from raftlog_chaos.workloads.log_workload import LogWorkload, OpenPort
from raftlog_chaos.workloads.port import REQUEST_TIMEOUT_S, Kind
from raftlog_chaos.workloads.queue_workload import QueueOptions, QueuePorts, QueueWorkload
from raftlog_chaos.workloads.stock import StockPort, create_topic

TOPIC: Final = {"min.insync.replicas": "2", "segment.bytes": "16384"}
COMMON: Final[Mapping[str, Any]] = {"topic_configs": TOPIC, "writes_per_key": 2_000, "crash_every_s": 20.0}
LOADS: Final[Mapping[str, LogOptions]] = {
    "plain": LogOptions(prefix="plain", clients=1, writers=2, readers=0, rate=60.0, **COMMON),
    "transactions": LogOptions(
        prefix="transactions", clients=0, writers=1, readers=0, transformers=2, txn=True, rate=30.0, **COMMON
    ),
    "groups": LogOptions(
        prefix="groups", clients=0, writers=1, readers=2, members=2, subscribe=True, rate=60.0, **COMMON
    ),
    "queue": LogOptions(
        prefix="queue",
        clients=0,
        writers=1,
        readers=0,
        keys=2,
        partitions=2,
        rate=20.0,
        **{**COMMON, "writes_per_key": 1_000_000},
    ),
}
QUEUE_TERMS: Final = QueueTerms(lock_s=5.0, limit=10, stale_s=5.0)
"""A boot takes longer than `stale_s`, so a settled record that comes back after a cut was lost."""
QUEUE: Final = QueueOptions(
    group="queue-workers", keys=("queue0-0", "queue0-1"), workers=2, terms=QUEUE_TERMS, crash_every_s=20.0
)
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "4096",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "4096",
    "group.share.record.lock.duration.ms": f"{QUEUE_TERMS.lock_s * 1000:g}",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(QUEUE_TERMS.limit),
    "group.share.min.session.timeout.ms": "15000",
    "group.share.session.timeout.ms": "15000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.segment.bytes": "4096",
    "share.coordinator.state.topic.prune.interval.ms": "2000",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}
"""The nodes' settings: segments roll, coordinators' logs are compacted, and checkpoints are written all the time.

Share group members that died in the cut may hold a partition alone. Their sessions end before the wait for its records
does.
"""
BETWEEN_SNAPSHOTS: Final = "metadata.log.max.record.bytes.between.snapshots"
BYTES_BETWEEN_SNAPSHOTS: Final = ("2000", "2000", "20971520")
"""A random choice for each disk: a journal that is rewritten all the time, or a journal that only grows, as by
default."""

CHANGED_TOPIC: Final = "changed"
SETTING: Final = "retention.ms"
LEAST: Final = 1_000_000_000
"""The setting's value is this and the number of its change."""

NoteCommit = Callable[[str, Mapping[str, int]], object]


class NotingPort(StockPort):
    """A stock client that reports each acknowledged commit of its group, before it goes on."""

    note: NoteCommit
    _group = ""

    async def subscribe(self, topics: Any, group: str) -> None:
        self._group = group
        await super().subscribe(topics, group)

    async def commit(self) -> None:
        offsets = dict(self._uncommitted)
        await super().commit()
        if offsets:
            self.note(self._group, offsets)


class NotingPorts:
    """Opens ports with recorded commits; see StockPorts."""

    def __init__(self, settings: Mapping[str, Any], note: NoteCommit) -> None:
        self._settings = settings
        self._note = note
        self.left_behind: list[str] = []

    def __call__(self, process: int, kind: Kind) -> NotingPort:
        port = NotingPort(self._settings, process, kind, self.left_behind)
        port.note = self._note
        return port


class ChangedSetting:
    """A setting of a topic that is changed all the time, which writes to the metadata. Its calls block."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        self._settings = dict(settings)
        self._admin = AdminClient(self._settings)
        self._topic = NewTopic(CHANGED_TOPIC, num_partitions=1, replication_factor=3)

    def create(self) -> None:
        """Create the topic, if it is not there. Raises Definite."""
        create_topic(self._settings, self._topic)

    def change(self, number: int) -> bool:
        """Change the setting; return whether that was acknowledged."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

        entry = ConfigEntry(SETTING, str(LEAST + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", CHANGED_TOPIC, incremental_configs=[entry])
        (done,) = self._admin.incremental_alter_configs(
            [resource], request_timeout=REQUEST_TIMEOUT_S
        ).values()
        try:
            done.result()
        except KafkaException:
            return False
        return True

    def number(self) -> tuple[int, None] | tuple[None, str]:
        """Return the number of the change that is in force; or why that cannot be said now."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        asked = ConfigResource("topic", CHANGED_TOPIC)
        (found,) = self._admin.describe_configs([asked], request_timeout=REQUEST_TIMEOUT_S).values()
        try:
            return int(found.result()[SETTING].value) - LEAST, None
        except KafkaException as error:
            return None, str(error)


def resume(
    name: str, state: LoadState, recorder: Recorder, open_port: OpenPort, chance: random.Random
) -> LogWorkload:
    """Return a load that goes on where the power failed."""
    return _resumed(LOADS[name], state, recorder, open_port, chance)


def reader_of(
    name: str, state: LoadState, recorder: Recorder, open_port: OpenPort, chance: random.Random
) -> LogWorkload:
    """Return a load for the final phase: it processes the remaining input, and reads everything, without new writes."""
    options = replace(LOADS[name], clients=0, writers=0, readers=0, final_readers=1)
    return _resumed(options, state, recorder, open_port, chance)


def _resumed(
    options: LogOptions, state: LoadState, recorder: Recorder, open_port: OpenPort, chance: random.Random
) -> LogWorkload:
    load = LogWorkload(recorder, open_port, chance, options)
    load.resume(state.written, state.acked)
    return load


def queue_of(name: str, recorder: Recorder, ports: QueuePorts, chance: random.Random) -> QueueWorkload | None:
    """Return the workers that consume what a load writes; None for other loads than the queue's."""
    return QueueWorkload(recorder, ports, chance, QUEUE) if name == "queue" else None


def identities(name: str) -> list[str]:
    """Return the transactional ids of a load's processes: the next owner of an id ends its open transaction."""
    options = LOADS[name]
    return (
        [f"{options.prefix}-id-{number}" for number in range(len(options.kinds))]
        if options.transactional
        else []
    )
