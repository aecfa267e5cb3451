"""Metrics of share groups (KIP-932): raftlog's own names, and Kafka's.

Series are bounded: by the number of groups that a leader counts by themselves (`raftlog.sharing.delivery_history`), and
by MOST_SERIES. A share partition is here while its leader has it in memory: from its first member until it is idle and
others need the room. The lag is by the share coordinators, which also know groups without members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from raftlog.admin.exposition import SKIPPED, Family, histogram, labelled, labels, single
from raftlog.admin.facts import DeliveryCountFacts, ShareLag, SharePartitionFacts
from raftlog.admin.scrape import Scrape

MOST_SERIES: Final = 1_000
"""Pairs of a group and a topic, and share partitions under Kafka's names; further ones are left out.

`raftlog_share_series_left_out` counts the pairs, `raftlog_share_partitions` all share partitions.
"""


class GroupTopic:
    """The share partitions of a group and a topic that this node leads, together."""

    def __init__(self) -> None:
        self.locks = 0
        self.oldest_lock_s = 0.0
        self.deliveries: dict[int, int] = {}

    def add(self, each: SharePartitionFacts) -> None:
        self.locks += each.locks
        self.oldest_lock_s = max(self.oldest_lock_s, each.oldest_lock_s)
        for count, records in each.deliveries.items():
            self.deliveries[count] = self.deliveries.get(count, 0) + records


def families(scrape: Scrape) -> Iterator[Family]:
    """Yield raftlog's own."""
    found = scrape.facts.shares()
    if found is None:
        return
    sums: dict[tuple[str, str], GroupTopic] = {}
    left_out: set[tuple[str, str]] = set()
    yield single(
        "raftlog_share_sessions", "gauge", "Share sessions of members with this node.", found.sessions
    )
    text = "Share partitions that this node leads and has in memory."
    yield Family(
        "raftlog_share_partitions",
        "gauge",
        text,
        _counted("raftlog_share_partitions", scrape.shares, sums, left_out),
    )
    yield from _gauges(sums)
    name = "raftlog_share_group_lag"
    text = (
        "Committed records that a share group has not done, of states coordinated here with a replica here."
    )
    yield Family(name, "gauge", text, _lags(name, scrape.share_lags, left_out))
    text = "Pairs of a share group and a topic without a lag or other series, as there are too many."
    yield Family(
        "raftlog_share_series_left_out",
        "gauge",
        text,
        (f"raftlog_share_series_left_out {len(each)}\n" for each in (left_out,)),
    )
    yield from _counters(found.groups)
    text = "How long writes of share states took, committed and on disk: what acknowledgements wait for."
    yield histogram("raftlog_share_state_write_seconds", text, [("", found.write_seconds)])


def _counted(
    name: str,
    partitions: Iterable[SharePartitionFacts],
    sums: dict[tuple[str, str], GroupTopic],
    left_out: set[tuple[str, str]],
) -> Iterator[str]:
    """Sum up the share partitions, a step for each, and yield their number."""
    count = 0
    for each in partitions:
        count += 1
        pair = each.group_id, each.topic
        if pair in sums or len(sums) < MOST_SERIES:
            sums.setdefault(pair, GroupTopic()).add(each)
        else:
            left_out.add(pair)
        yield SKIPPED
    yield f"{name} {count}\n"


def _lags(name: str, found: Iterable[ShareLag], left_out: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the sums of groups and topics, after a step for each share partition."""
    sums: dict[tuple[str, str], int] = {}
    for each in found:
        pair = each.group_id, each.topic
        if pair in sums or len(sums) < MOST_SERIES:
            sums[pair] = sums.get(pair, 0) + each.lag
        else:
            left_out.add(pair)
        yield SKIPPED
    for (group, topic), lag in sums.items():
        yield f"{name}{{{labels(group=group, topic=topic)}}} {lag}\n"


def _gauges(sums: dict[tuple[str, str], GroupTopic]) -> Iterator[Family]:
    def gauge(name: str, text: str, value: Callable[[GroupTopic], float]) -> Family:
        values = ((labels(group=group, topic=topic), value(each)) for (group, topic), each in sums.items())
        return labelled(
            f"raftlog_share_group_{name}", "gauge", f"{text}, by the partitions' leaders.", values
        )

    yield gauge("locks", "Records that members of a share group hold", lambda each: each.locks)
    text = "How long the record that is held for longest has been held, 0: none is"
    yield gauge("oldest_lock_seconds", text, lambda each: each.oldest_lock_s)
    in_flight = (
        (labels(group=group, topic=topic, deliveries=count), records)
        for (group, topic), each in sums.items()
        for count, records in sorted(each.deliveries.items())
    )
    text = "Records that were delivered and are not done, by how often they were delivered."
    yield labelled("raftlog_share_group_in_flight", "gauge", text, in_flight)


def _counters(groups: Iterable[tuple[str, DeliveryCountFacts]]) -> Iterator[Family]:
    every = list(groups)

    def counter(name: str, text: str, value: Callable[[DeliveryCountFacts], int]) -> Family:
        values = ((labels(group=group), value(each)) for group, each in every)
        return labelled(f"raftlog_share_group_{name}_total", "counter", text, values)

    yield counter("deliveries", "Records that members acquired here.", lambda each: each.acquired)
    text = "Records that members acquired here again."
    yield counter("redeliveries", text, lambda each: each.redelivered)
    text = "Records whose lock expired, as their member had not acknowledged them in time."
    yield counter("lock_timeouts", text, lambda each: each.lock_timeouts)
    text = "Records that no member gets again, as share.delivery.count.limit deliveries failed."
    yield counter("archived", text, lambda each: each.archived)
    yield counter("dead_letters", "Dead letters written to the group's topic.", lambda each: each.letters)
    text = "Attempts to write dead letters that failed; they are repeated."
    yield counter("dead_letter_failures", text, lambda each: each.failed_letters)
    text = "Records archived without a dead letter, as its topic had failed for long."
    yield counter("dead_letters_lost", text, lambda each: each.lost_letters)
    acknowledged = (
        (labels(group=group, type=kind.lower()), count)
        for group, each in every
        for kind, count in each.acknowledged.items()
    )
    text = "Records that members acknowledged here, by type; gap: offsets without a record."
    yield labelled("raftlog_share_group_acknowledged_total", "counter", text, acknowledged)


def kafka_families(scrape: Scrape) -> Iterator[Family]:
    """Yield Kafka's names (KIP-1103), as its JMX exporter has them."""
    found = scrape.facts.shares()
    if found is None:
        return
    sums: dict[str, int] = {}
    for _, each in found.groups:
        for kind, count in each.acknowledged.items():
            sums[kind] = sums.get(kind, 0) + count
    name = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    by_kind = ((labels(acktype=kind), count) for kind, count in sorted(sums.items()))
    yield labelled(name, "counter", "As Kafka's ShareGroupMetrics.", by_kind)
    name = "kafka_server_sharepartitionmetrics_inflightmessagecount"
    in_flight = (
        (labels(group=each.group_id, topic=each.topic, partition=each.partition), each.in_flight)
        for each in scrape.shares[:MOST_SERIES]
    )
    yield labelled(name, "gauge", "As Kafka's SharePartitionMetrics.", in_flight)
    name = "kafka_server_sharesessioncache_sharesessionscount"
    yield single(name, "gauge", "As Kafka's ShareSessionCache.", found.sessions)
    name = "kafka_server_sharesessioncache_sharepartitionscount"
    yield single(name, "gauge", "As Kafka's ShareSessionCache.", found.session_partitions)
