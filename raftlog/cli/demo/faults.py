"""The demo's faults while records flow: kill -9 a leader, kill -9 the controller, pause a follower."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raftlog.cli.demo.stream import HUNG_MS, Stream
from raftlog.testing.cluster import Cluster
from raftlog.testing.probe import PartitionView

ENOUGH_NODES = 3
"""With fewer nodes all are needed, so a killed node is restarted at once and none is paused."""
QUIET_S = 0.5
"""Between two faults, so that their gaps do not run into each other."""

LED = f"a partition that it led (the client waits {HUNG_MS // 1000} s at most)"


class Outage(NamedTuple):
    """One fault, and the longest time that any partition's records went unacknowledged around it."""

    event: str
    gap_s: float


class FaultScript:
    """Runs the faults in sequence. `say` gets each event as it happens."""

    def __init__(self, cluster: Cluster, stream: Stream, *, topic: str, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._stream = stream
        self._topic = topic
        self._say = say
        self.outages: list[Outage] = []

    def run(self) -> None:
        """Run all faults. Raise ClusterError if the cluster does not recover from a fault."""
        self._wait(lambda: self._stream.every_partition_acked_since(0), "records flow")
        leader = self._partitions()[0].leader
        self._kill(leader, f"the leader of {self._topic}-0")
        controller = self._cluster.controller_id()
        if controller is not None:
            self._kill(controller, "the active controller")
        if len(self._cluster.nodes) >= ENOUGH_NODES:
            self._pause_a_follower()
        time.sleep(QUIET_S)

    def _kill(self, node_id: int, role: str) -> None:
        event = f"kill -9 of node {node_id}, {role}"
        began = time.monotonic()
        self._say(event)
        self._cluster.kill(node_id)
        if len(self._cluster.nodes) < ENOUGH_NODES:
            self._cluster.restart(node_id)
        self._wait(lambda: self._led_by_the_living() and self._resumed(), f"records flow after {event}")
        self._note(event, began)
        if not self._cluster.nodes[node_id].running:
            self._cluster.restart(node_id)
        self._wait(self._isr_is_full, f"node {node_id} is back in every ISR")
        self._say(f"  node {node_id} is back in every ISR")
        time.sleep(QUIET_S)

    def _pause_a_follower(self) -> None:
        partitions = self._partitions()
        partition = partitions[0]
        spared = {partition.leader, self._cluster.controller_id()}
        follower = next(each for each in partition.replicas if each not in spared)
        led = [number for number, each in sorted(partitions.items()) if each.leader == follower]
        event = f"pause of node {follower}, a follower of {self._topic}-0"
        if led:
            event += f" and the leader of {', '.join(f'{self._topic}-{each}' for each in led)}"
        began = time.monotonic()
        self._say(event)
        self._cluster.pause(follower)
        self._wait(lambda: follower not in self._partitions()[0].isr, f"the ISR loses node {follower}")
        self._say(f"  the ISR shrank after {time.monotonic() - began:.1f} s")
        self._wait(lambda: self._led_by_the_living() and self._resumed(), f"records flow after {event}")
        self._note(event, began, led=led)
        self._cluster.resume(follower)
        resumed = time.monotonic()
        self._wait(self._isr_is_full, f"the ISR regains node {follower}")
        self._say(f"  the ISR expanded again {time.monotonic() - resumed:.1f} s after the node went on")

    def _note(self, event: str, began: float, *, led: Sequence[int] = ()) -> None:
        """Note the gap around a fault. `led`: what a paused node led, which the client leaves only after a while."""
        ended = time.monotonic()
        self.outages.append(Outage(event, self._stream.longest_gap_s(began, ended)))
        for which, partitions in (("a partition", self._partitions().keys() - led), (LED, led)):
            if partitions:
                gap_ms = self._stream.longest_gap_s(began, ended, partitions) * 1000
                self._say(f"  longest gap between two acknowledgements of {which}: {gap_ms:.0f} ms")

    # --- conditions

    def _partitions(self) -> dict[int, PartitionView]:
        """Return the topic's partitions as any client sees them, once a node answers."""
        found: dict[int, PartitionView] = {}

        def answered() -> bool:
            found.update(self._cluster.partitions(self._topic))
            return bool(found)

        self._cluster.wait_until(answered, f"a node describes {self._topic}")
        return found

    def _led_by_the_living(self) -> bool:
        living = self._cluster.running_ids()
        return all(each.leader in living for each in self._partitions().values())

    def _resumed(self) -> bool:
        moment = time.monotonic()
        self._wait(
            lambda: self._stream.every_partition_acked_since(moment), "every partition is acknowledged"
        )
        return True

    def _isr_is_full(self) -> bool:
        return all(set(each.isr) == set(each.replicas) for each in self._partitions().values())

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        self._cluster.wait_until(holds, what, seen=lambda: self._cluster.partitions(self._topic))
