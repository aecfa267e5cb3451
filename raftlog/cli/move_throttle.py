"""Moving partitions slowly (KIP-73): the throttled replicas, their rate, and the end of the throttle.

Lists are topic configs, rates are broker configs. Only replicas that catch up are throttled, never those in sync. A
rate without a list has no effect, and neither has a list without a rate.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from raftlog.cli import exits
from raftlog.cli.effective_settings import alter_settings
from raftlog.cli.exits import Failure
from raftlog.cli.partition_view import ongoing_moves
from raftlog.cli.target import Target

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS: Final = "leader.replication.throttled.replicas"
RECEIVERS: Final = "follower.replication.throttled.replicas"
UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
MOST: Final = 2**63 - 1

PartitionKey = tuple[str, int]


def read_rate(text: str) -> int:
    """Return bytes a second: a whole number, with kB, MB or GB behind it where one likes. Raises Failure."""
    found = re.fullmatch(r"([0-9]{1,19}) ?([A-Za-z]*?)(?:/s)?", text.strip())
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or not 0 < int(found[1]) * unit <= MOST:
        raise Failure(
            f"--throttle {text}: must be bytes per second, such as 500000, 500kB or 10MB", exits.USAGE
        )
    return int(found[1]) * unit


def throttle(
    target: Target, origins: Mapping[PartitionKey, Collection[int]], to: Collection[int], rate: int
) -> None:
    """Hold back the moves of partitions from their brokers to others, before they begin. Raises Failure."""
    senders: defaultdict[str, list[str]] = defaultdict(list)
    receivers: defaultdict[str, list[str]] = defaultdict(list)
    for (topic, number), brokers in origins.items():
        senders[topic] += [f"{number}:{each}" for each in brokers]
        receivers[topic] += [f"{number}:{each}" for each in to if each not in brokers]
    there = {int(each.broker_id) for each in target.brokers()}
    for broker in sorted({*to, *(each for brokers in origins.values() for each in brokers)} & there):
        alter_settings(target, "broker", str(broker), dict.fromkeys(RATES, str(rate)))
    for topic in senders:
        lists = {SENDERS: ",".join(senders[topic]), RECEIVERS: ",".join(receivers[topic])}
        alter_settings(
            target, "topic", topic, {name: each for name, each in lists.items() if each}, append=True
        )


def remove_throttles(target: Target, topics: Iterable[str]) -> bool:
    """Remove the throttle of these topics; return whether the brokers' rates were removed too. Raise Failure.

    The rates stay while any partition is moved: they may throttle it.
    """
    for topic in topics:
        alter_settings(target, "topic", topic, {SENDERS: None, RECEIVERS: None})
    if ongoing_moves(target):
        return False
    for broker in target.brokers():
        alter_settings(target, "broker", str(broker.broker_id), dict.fromkeys(RATES))
    return True
