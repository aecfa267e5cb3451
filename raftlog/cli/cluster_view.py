"""A cluster at one moment, for `raftlog status` and `raftlog top`: brokers, partitions, end offsets, groups with lag.

It is asked over Kafka's wire, so that any cluster can be looked at. A broker that does not answer is asked once for
each view; what it alone knows is missing, and `missing` says so.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.cli.broker import FENCED, broker_rows
from raftlog.cli.exits import Failure
from raftlog.cli.group import groups_of
from raftlog.cli.group_lookup import committed
from raftlog.cli.partition import offsets_at
from raftlog.cli.partition_view import Partition, partitions_in
from raftlog.cli.share_group import offsets_of
from raftlog.cli.target import Target
from raftlog.client.metadata import LATEST, PartitionKey

MOST_GROUPS: Final = 200
"""Groups whose lag is looked up in a view: each costs a request."""
MOST_PARTITIONS: Final = 5_000
"""Partitions whose end offsets are looked up in a view."""
SHARE: Final = "share"


def named_brokers(ids: Sequence[int]) -> str:
    """Return the ids of brokers as text, which "broker" tells from a count; "-" for none."""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}" if ids else "-"


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group. `lag` None: not known. A share group has none until records are acknowledged."""

    group: str
    state: str
    type: str
    lag: int | None


@dataclass(slots=True)
class ClusterView:
    """A cluster at the moment `at`, in seconds of the monotonic clock."""

    at: float
    cluster_id: str
    controller: int | None
    brokers: list[dict[str, Any]]
    partitions: list[Partition]
    ends: dict[PartitionKey, int] = field(default_factory=dict)
    """The end offsets of partitions that are not internal."""
    groups: list[GroupLine] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def fenced(self) -> list[int]:
        """The brokers that are down or cut off."""
        return [int(each["broker"]) for each in self.brokers if each["state"] == FENCED]

    @property
    def leaderless(self) -> list[Partition]:
        """The partitions that cannot be read or written."""
        return [each for each in self.partitions if each.leader < 0]

    @property
    def under_replicated(self) -> list[Partition]:
        """The partitions with replicas that are not in sync."""
        return [each for each in self.partitions if len(each.isr) < len(each.replicas)]


def look(target: Target, known_silent: Collection[int] = ()) -> ClusterView:
    """Return a view of a cluster. Raise Failure if no broker answers.

    `known_silent`: brokers that are not asked, because they are known not to answer.
    """
    about = target.describe_cluster(with_fenced=True)
    partitions = partitions_in(target.metadata())
    view = ClusterView(
        time.monotonic(),
        str(about.cluster_id),
        int(about.controller_id) if about.controller_id >= 0 else None,
        broker_rows(about, partitions),
        partitions,
    )
    silent = {*view.fenced, *known_silent}
    _add_ends(target, view, silent)
    _add_groups(target, view, silent)
    return view


def _add_ends(target: Target, view: ClusterView, silent: set[int]) -> None:
    by_leader: defaultdict[int, list[PartitionKey]] = defaultdict(list)
    for each in view.partitions[:MOST_PARTITIONS]:
        if each.leader >= 0 and each.topic not in INTERNAL_TOPICS:
            by_leader[each.leader].append((each.topic, each.number))
    view.at = time.monotonic()
    for leader, keys in sorted(by_leader.items()):
        if leader in silent:
            view.missing.append(f"offsets of broker {leader}'s partitions: it does not answer")
            continue
        try:
            view.ends |= offsets_at(target, keys, LATEST)
        except Failure as failure:
            silent.add(leader)
            view.missing.append(f"offsets of broker {leader}'s partitions: {failure}")


def _add_groups(target: Target, view: ClusterView, silent: set[int]) -> None:
    found: list[dict[str, str]] = []
    for each in view.brokers:
        broker = int(each["broker"])
        if broker in silent:
            if broker not in view.fenced:
                view.missing.append(f"groups of broker {broker}: it does not answer")
            continue
        try:
            found += groups_of(target, broker)
        except Failure as failure:
            view.missing.append(f"groups of broker {broker}: {failure}")
    for number, row in enumerate(sorted(found, key=lambda row: row["group"])):
        lag = None
        if number < MOST_GROUPS:
            try:
                lag = _lag(target, row, view.ends)
            except Failure as failure:
                view.missing.append(f"lag of a group: {failure}")
        view.groups.append(GroupLine(row["group"], row["state"], row["type"], lag))


def _lag(target: Target, row: dict[str, str], ends: dict[PartitionKey, int]) -> int | None:
    if row["type"] != SHARE:
        return lag_of(committed(target, row["group"]), ends)
    known = [lag for _, lag in offsets_of(target, row["group"]).values() if lag is not None]
    return sum(known) if known else None


def lag_of(read_to: dict[PartitionKey, int], ends: dict[PartitionKey, int]) -> int | None:
    """Return how many records a group has not read; None without a committed offset."""
    known = [max(0, ends[key] - offset) for key, offset in read_to.items() if key in ends]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second between two views, by topic and by leader; empty of the first view."""

    topics: dict[str, float]
    leaders: dict[int, float]


def rates_between(before: ClusterView | None, now: ClusterView) -> Rates:
    """Return how fast end offsets grow. A topic that was made anew begins again."""
    topics: Counter[str] = Counter()
    leaders: Counter[int] = Counter()
    if before is None or now.at <= before.at:
        return Rates({}, {})
    leader_of = {(each.topic, each.number): each.leader for each in now.partitions}
    for key, end in now.ends.items():
        grown = max(0, end - before.ends.get(key, end))
        topics[key[0]] += grown
        leaders[leader_of[key]] += grown
    elapsed_s = now.at - before.at
    return Rates(
        {topic: count / elapsed_s for topic, count in topics.items()},
        {leader: count / elapsed_s for leader, count in leaders.items()},
    )
