"""Measures how a system grows: with partitions on three brokers, and with brokers. Only for systems with
Kafka's protocol.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

from raftlog.testing.ports import LOOPBACK
from raftlog.testing.probe import view_topic
from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load, usage_of
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.system import Failed, Refused, wait_for

PARTITIONS: Final = (10, 100, 1_000, 10_000)
TOPIC_PARTITIONS: Final = 1_000
"""The partitions of the largest topic. More partitions are several topics."""
BROKERS: Final = (1, 3, 5, 9)
SPREAD: Final = 18
"""Partitions of the topic that brokers of any number share."""
IDLE_S: Final = 3.0
LOOKS: Final = 5
LOOKS_AT_REST: Final = 8
SETTLED: Final = 0.8
"""A node is at rest if it uses more than this part of what it used a moment before."""
FAILOVER_S: Final = 60.0


def partitions(bench: Bench) -> Iterator[Sample]:
    """Yield what 10 to 10,000 partitions cost: creation, Metadata, CPU at rest, and the failover of a broker."""
    _need_brokers(bench)
    with bench.open(3) as (system, _):
        assert isinstance(system, KafkaWire)
        topics: list[str] = []
        reached = 0
        for count in PARTITIONS:
            try:
                began = time.monotonic()
                topics = _create(system, count)
            except (Failed, Refused) as error:
                bench.note(str(error))
                break
            reached = count
            yield Sample(f"{count:,} partitions created and in sync", time.monotonic() - began, "s", "less")
            yield Sample(f"{count:,} partitions, Metadata", _metadata_ms(system, topics), "ms", "less")
            yield Sample(f"{count:,} partitions, CPU at rest, a node", _idle_percent(system), "%", "less")
        if reached:
            yield Sample(f"{reached:,} partitions, failover", _failover_s(system, topics), "s", "less")


def _create(system: KafkaWire, count: int) -> list[str]:
    """Create topics with that many partitions together; Kafka refuses to create all of them in one request."""
    size = min(count, TOPIC_PARTITIONS)
    topics = [f"partitions-{count}-{number}" for number in range(count // size)]
    for topic in topics:
        system.create_topic(topic, size)
    return topics


def _need_brokers(bench: Bench) -> None:
    if not isinstance(bench.system, KafkaWire):
        raise Refused("it has nothing that grows in the same way")


def _metadata_ms(system: KafkaWire, topics: Sequence[str]) -> float:
    """Return the median time in which a node answers for all of these topics, one request each."""
    port = next(iter(system.ports.values()))
    taken = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        for topic in topics:
            view_topic(LOOPBACK, port, topic)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def _idle_percent(system: KafkaWire) -> float:
    """Return a node's CPU once it no longer falls: what was just created is still written and opened for a while."""
    least = _percent(system)
    for _ in range(LOOKS_AT_REST):
        percent = _percent(system)
        has_settled, least = percent > SETTLED * least, min(percent, least)
        if has_settled:
            break
    return least


def _percent(system: KafkaWire) -> float:
    pids = system.check_alive()
    before = usage_of(pids, system.folder)
    time.sleep(IDLE_S)
    used = usage_of(pids, system.folder).since(before)
    system.check_alive()
    return 100 * used.cpu_s / IDLE_S / len(pids)


def _failover_s(system: KafkaWire, topics: Sequence[str]) -> float:
    """Return the seconds from a kill -9 until no partition is led by its victim."""
    victim = system.leader_of(topics[0])
    system.kill(victim)

    def taken_over(topic: str) -> bool:
        found = system.partitions(topic).values()
        return bool(found) and all(each.leader not in (victim, -1) for each in found)

    return wait_for(
        lambda: all(map(taken_over, topics)), "all partitions have another leader", timeout_s=FAILOVER_S
    )


def brokers(bench: Bench) -> Iterator[Sample]:
    """Yield time to ready and throughput of 1 to 9 brokers."""
    _need_brokers(bench)
    for count in BROKERS:
        name = f"{count} broker{'s' if count > 1 else ''}"
        try:
            with bench.open(count) as (system, ready_s):
                yield Sample(f"{name} ready", ready_s, "s", "less")
                load = Load(kind="produce", topic="brokers", partitions=SPREAD, seconds=bench.scale.seconds)
                system.run(load)
                yield Sample(f"{name}, 1 KB produced", system.run(load).megabytes_per_s, "MB/s", "more")
        except Failed as error:
            bench.note(f"{name}: {error}")
