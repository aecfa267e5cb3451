"""`raftlog cluster rebalance`: balances where replicas and leaders are, by reassignments; works with any Kafka."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from raftlog.base.errors import ElectionNotNeeded
from raftlog.cli import exits
from raftlog.cli.balance_plan import BrokerRoom, Placed, Step, plan
from raftlog.cli.broker import log_dirs_of
from raftlog.cli.effective_settings import alter_settings
from raftlog.cli.exits import Failure
from raftlog.cli.leader_plan import PartitionKey
from raftlog.cli.move_throttle import RATES, RECEIVERS, SENDERS, remove_throttles
from raftlog.cli.partition import elect_leaders, reassign
from raftlog.cli.partition_view import Partition, ongoing_moves, partitions_in
from raftlog.cli.target import Target, code_of, words_of

PAUSE_S: Final = 0.3
SILENT_S: Final = 30.0
"""After this long without a completed move, those under way are named, in seconds."""
SHOWN: Final = 5


class Balance(NamedTuple):
    """The steps that balance a cluster, then elections of preferred leaders; and what cannot be balanced."""

    steps: list[Step]
    elections: list[Partition]
    """Partitions whose first replica is in sync and does not lead, and is their first replica after the steps."""
    stuck: dict[int, int]
    """How many partitions have a replica on a broker that is down, by broker: they do not move."""
    leaders: dict[PartitionKey, int]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each partition that changes, the elections last."""
        steps = [
            {
                "topic": step.key[0],
                "partition": step.key[1],
                "action": "reorder" if set(step.before) == set(step.after) else "move",
                "leader": self.leaders[step.key],
                "replicas": list(step.before),
                "to": list(step.after),
                "bytes": step.added_bytes,
            }
            for step in self.steps
        ]
        return steps + [
            {
                "topic": each.topic,
                "partition": each.number,
                "action": "elect",
                "leader": each.leader,
                "replicas": list(each.replicas),
                "to": list(each.replicas),
                "bytes": 0,
            }
            for each in self.elections
        ]

    def why_stuck(self) -> list[str]:
        """Return a line for each broker that is down and keeps partitions from being balanced."""
        return [
            f"broker {broker} is down, so the partitions with a replica there cannot move: {count}; "
            f"start it, or run `raftlog broker decommission {broker}`"
            for broker, count in sorted(self.stuck.items())
        ]


def balance_of(
    rooms: Iterable[BrokerRoom], partitions: Iterable[Partition], sizes: Mapping[PartitionKey, int]
) -> Balance:
    """Return what balances these brokers, with the bytes of each partition's largest replica."""
    rooms, partitions = list(rooms), list(partitions)
    steps = plan(
        rooms,
        {
            (each.topic, each.number): Placed(each.replicas, sizes.get((each.topic, each.number), 0))
            for each in partitions
        },
    )
    changed = {step.key for step in steps}
    live = {each.broker_id for each in rooms}
    return Balance(
        steps,
        [
            each
            for each in partitions
            if (each.topic, each.number) not in changed
            and each.leader != each.replicas[0]
            and each.replicas[0] in live.intersection(each.isr)
        ],
        dict(Counter(broker for each in partitions for broker in set(each.replicas) - live)),
        {(each.topic, each.number): each.leader for each in partitions},
    )


def plan_of(target: Target) -> Balance:
    """Return what balances the cluster. Raise Failure while partitions move, since they would count twice."""
    if moving := ongoing_moves(target):
        raise Failure(
            f"{len(moving)} partitions are being reassigned: wait until `raftlog partition reassignments` lists none",
            exits.UNHEALTHY,
        )
    sizes: dict[PartitionKey, int] = {}
    rooms = []
    for broker in target.brokers():
        used = total = 0
        folders = log_dirs_of(target, broker.broker_id)
        for folder in folders:
            total_bytes, usable_bytes = (
                getattr(folder, each, -1) for each in ("total_bytes", "usable_bytes")
            )
            if min(total_bytes, usable_bytes) >= 0:
                total, used = total + total_bytes, used + total_bytes - usable_bytes
            for topic in folder.topics:
                for each in topic.partitions:
                    key = topic.name, each.partition_index
                    sizes[key] = max(sizes.get(key, 0), each.partition_size)
        cordoned = bool(folders) and all(getattr(each, "is_cordoned", False) for each in folders)
        rooms.append(BrokerRoom(broker.broker_id, broker.rack, used, total, cordoned))
    return balance_of(rooms, partitions_in(target.metadata()), sizes)


def print_verdict(balance: Balance) -> int:
    """Print whether the cluster is balanced, and what cannot move; return the exit code."""
    for line in balance.why_stuck():
        print(f"raftlog: {line}", file=sys.stderr)
    if balance.stuck:
        return exits.UNHEALTHY
    if not (balance.steps or balance.elections):
        print("the cluster is balanced", file=sys.stderr)
    return exits.OK


@dataclass
class Rebalance:
    """Carries a plan out. `at_once`: partitions that move at a time; `rate`: bytes a second and broker, 0: no limit."""

    target: Target
    at_once: int
    rate: int

    def run(self, balance: Balance) -> int:
        """Move the partitions, some at a time, then have the first replicas elected; return the exit code."""
        code = self._reassign(balance.steps) if balance.steps else exits.OK
        if balance.steps or balance.elections:
            code = self._elect() or code
        return print_verdict(balance) or code

    def _reassign(self, steps: list[Step]) -> int:
        topics = sorted({step.key[0] for step in steps if step.added_bytes})
        self._throttle(topics)
        try:
            code = self._move(steps)
        except BaseException:
            if self.rate and topics:
                print("throttled until: raftlog partition unthrottle", *topics, file=sys.stderr)
            raise
        if self.rate:
            remove_throttles(self.target, self.target.topics().keys() & topics)
        return code

    def _elect(self) -> int:
        """Have the first replica of every partition elected, and print how many were; return the exit code."""
        code, elected = exits.OK, 0
        for (topic, number), error in elect_leaders(self.target):
            if error is None:
                elected += 1
            elif not isinstance(error, ElectionNotNeeded):
                print(f"raftlog: {topic} {number}: {words_of(error, 'ALTER')}", file=sys.stderr)
                code = code_of(error)
        print(f"preferred leaders elected: {elected}", file=sys.stderr)
        return code

    def _throttle(self, topics: list[str]) -> None:
        """Throttle every replica of these topics that catches up."""
        if not (self.rate and topics):
            return
        for broker in self.target.brokers():
            alter_settings(self.target, "broker", str(broker.broker_id), dict.fromkeys(RATES, str(self.rate)))
        for topic in topics:
            alter_settings(self.target, "topic", topic, dict.fromkeys((SENDERS, RECEIVERS), "*"))

    def _move(self, steps: list[Step]) -> int:
        waiting, moving, code = deque(steps), set[PartitionKey](), exits.OK
        done = 0
        moved_at = time.monotonic()
        while waiting or moving:
            batch = [waiting.popleft() for _ in range(min(len(waiting), self.at_once - len(moving)))]
            begun = self._begin(batch) if batch else {}
            code = max((code, *begun.values()))
            moving |= {key for key, failed in begun.items() if not failed}
            left = moving & ongoing_moves(self.target).keys()
            done += len(moving) - len(left)
            if moving != left or batch:
                moved_at = time.monotonic()
                print(f"{done} of {len(steps)} partitions moved", file=sys.stderr, flush=True)
            elif time.monotonic() > moved_at + SILENT_S:
                moved_at = time.monotonic()
                names = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:SHOWN])
                print(
                    f"still moving: {names}; are all their brokers in service?", file=sys.stderr, flush=True
                )
            moving = left
            if moving:
                time.sleep(PAUSE_S)
        return code

    def _begin(self, batch: list[Step]) -> dict[PartitionKey, int]:
        """Begin moves; return for each whether it was refused. One that changed since it was planned is left out."""
        there = {(each.topic, each.number): each.replicas for each in partitions_in(self.target.metadata())}
        wanted = {step.key: list(step.after) for step in batch if there.get(step.key) == step.before}
        for step in batch:
            if step.key not in wanted:
                print(f"{step.key[0]} {step.key[1]} is left out: it changed meanwhile", file=sys.stderr)
        outcome: dict[PartitionKey, int] = {}
        for key, error in reassign(self.target, wanted) if wanted else ():
            outcome[key] = exits.OK if error is None else code_of(error)
            if error is not None:
                print(f"raftlog: {key[0]} {key[1]}: {words_of(error, 'ALTER')}", file=sys.stderr)
        return outcome
