"""`raftlog cluster rebalance`: balances where replicas and leaders are, by reassignments; works with any Kafka."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from raftlog.cli import exits
from raftlog.cli.balance_plan import BrokerRoom, PartitionKey, Placed, Step, plan
from raftlog.cli.broker import log_dirs_of
from raftlog.cli.exits import Failure
from raftlog.cli.move_throttle import remove_throttles, throttle
from raftlog.cli.partition import reassign
from raftlog.cli.partition_view import ongoing_moves, partitions_in
from raftlog.cli.target import Target, code_of, words_of
from raftlog.protocol.apis import ApiKey

PAUSE_S: Final = 0.3
PREFERRED: Final = 0


def plan_of(target: Target) -> list[Step]:
    """Return the moves that balance the cluster. Raise Failure while partitions move, since they would count twice."""
    if moving := ongoing_moves(target):
        raise Failure(
            f"{len(moving)} partitions are moving: wait until raftlog partition reassignments shows none",
            exits.UNHEALTHY,
        )
    sizes: dict[PartitionKey, int] = {}
    rooms = []
    for broker in target.brokers():
        used = total = 0
        for folder in log_dirs_of(target, broker.broker_id):
            total_bytes, usable_bytes = (
                getattr(folder, each, -1) for each in ("total_bytes", "usable_bytes")
            )
            if min(total_bytes, usable_bytes) >= 0:
                total, used = total + total_bytes, used + total_bytes - usable_bytes
            for topic in folder.topics:
                for each in topic.partitions:
                    key = topic.name, each.partition_index
                    sizes[key] = max(sizes.get(key, 0), each.partition_size)
        rooms.append(BrokerRoom(broker.broker_id, broker.rack, used, total))
    return plan(
        rooms,
        {
            (each.topic, each.number): Placed(each.replicas, sizes.get((each.topic, each.number), 0))
            for each in partitions_in(target.metadata())
        },
    )


@dataclass
class Rebalance:
    """Carries a plan out. `at_once`: partitions that move at a time; `rate`: bytes a second and broker, 0: no limit."""

    target: Target
    at_once: int
    rate: int

    def run(self, steps: list[Step]) -> int:
        """Move the partitions, some at a time, then have the new first replicas elected; return the exit code."""
        waiting, moving, code = deque(steps), set[PartitionKey](), exits.OK
        topics = {step.key[0] for step in steps if step.added_bytes}
        done = 0
        try:
            while waiting or moving:
                batch = [waiting.popleft() for _ in range(min(len(waiting), self.at_once - len(moving)))]
                code = self._begin(batch) or code
                moving |= {step.key for step in batch}
                left = moving & ongoing_moves(self.target).keys()
                done += len(moving) - len(left)
                if moving != left or batch:
                    print(f"{done} of {len(steps)} partitions moved", file=sys.stderr, flush=True)
                moving = left
                if moving:
                    time.sleep(PAUSE_S)
        finally:
            if self.rate and topics:
                remove_throttles(self.target, topics)
        self.target.ask(
            ApiKey.ELECT_LEADERS,
            lambda make: make.ElectLeadersRequest(
                election_type=PREFERRED, topic_partitions=None, timeout=int(self.target.timeout_s * 1000)
            ),
            needs="ALTER",
        )
        return code

    def _begin(self, batch: list[Step]) -> int:
        copied = [step for step in batch if step.added_bytes]
        if self.rate and copied:
            receivers = {each for step in copied for each in step.after}
            throttle(self.target, {step.key: step.before for step in copied}, receivers, self.rate)
        code = exits.OK
        for key, error in reassign(self.target, {step.key: list(step.after) for step in batch}):
            if error is not None:
                print(f"raftlog: {key[0]} {key[1]}: {words_of(error, 'ALTER')}", file=sys.stderr)
                code = code_of(error)
        return code
