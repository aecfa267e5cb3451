"""The invariants of a simulated cluster at every moment, checked from outside while it runs.

No check may affect the world: no chance, no faults, no time. So a run is the same however often it is checked. Findings
go to `failures`; events go to the chronicle, if there is a chronicle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, changed_partitions
from raftlog.metadata.snapshot import encode_image
from raftlog.metadata.usage import usage_of
from raftlog_chaos.replica_watch import PartitionTruth, ReplicaWatch

if TYPE_CHECKING:
    from raftlog.node import Node
    from raftlog.quorum.driver import Driver
    from raftlog_chaos.chronicle import Chronicle
    from raftlog_chaos.simulator.hosts import Host, Process

LOOK_STEPS: Final = 4
"""Steps of nodes from one look at the acting node to the next; 1 while a chronicle is kept."""


class Violations(list[str]):
    """The violations; each new violation also goes into the chronicle."""

    chronicle: Chronicle | None = None

    def append(self, text: str) -> None:
        super().append(text)
        if self.chronicle is not None:
            self.chronicle.note("", "violated", text)


class NodeWatch:
    """One life of a node, as seen from outside."""

    def __init__(self, host: Host, node_id: int, node: Node) -> None:
        self.host = host
        self.node_id = node_id
        self.name = host.name
        self.node = node
        self.image = EMPTY_IMAGE
        self.replicas: dict[object, ReplicaWatch] = {}
        """By the `Partition` object, which lives as long as this replica in this life."""
        self.driver: Driver | None = None
        self.led_term = -1
        self.ending_term = -1
        """The quorum's term when it was first seen to be ending."""
        self.committed = 0


class Invariants:
    """Watches the nodes of a cluster: `began`, then `stepped` after each step of theirs, `ended` before a crash."""

    def __init__(self, failures: Violations, chronicle: Chronicle | None = None) -> None:
        self.failures = failures
        self.chronicle = chronicle
        self._every = LOOK_STEPS if chronicle is None else 1
        self._steps = 0
        self._watches: dict[str, NodeWatch] = {}
        self._images: dict[int, bytes] = {}
        """Encoded metadata images by their offset, as the first node had them."""
        self.newest_image = EMPTY_IMAGE
        """The newest image that any node ever had."""
        self._controllers: dict[int, int] = {}
        self._epoch_controllers: dict[int, int] = {}
        self._entries: dict[int, tuple[int, int]] = {}
        """Committed entries of the metadata log by index: (term, checksum)."""
        self._truths: dict[tuple[object, int], PartitionTruth] = {}

    # -- life ---------------------------------------------------------------------------------------------------

    def began(self, host: Host, node_id: int, node: Node) -> Callable[[MetadataImage], None]:
        """Watch a new life of a node; returns what to call with each image that it applies."""
        watch = NodeWatch(host, node_id, node)
        self._watches[watch.name] = watch
        return lambda image: self._take_image(watch, image)

    def excuse(self, topic: str) -> None:
        """Permit the loss of records of a topic: more of its replicas were damaged than a cluster can survive."""
        for truth in self._truths.values():
            if truth.name.topic == topic:
                truth.excuse()

    def ended(self, name: str, *, midway: bool = False) -> None:
        """Look once more at a node that is about to die: everything that it has announced still holds.

        Not if it dies `midway` through a callback, where half of what belongs together is done.
        """
        watch = self._watches.pop(name, None)
        if watch is not None and not midway:
            self._look(watch)
            self._look_at_groups(watch)

    def stepped(self, process: Process) -> None:
        """Check a process after every so many callbacks of its loop."""
        watch = self._watches.get(process.name)
        if watch is not None:
            self._steps += 1
            if self._steps % self._every == 0:
                self._look(watch)

    def look_at_all(self) -> None:
        for watch in self._watches.values():
            self._look(watch)
            self._look_at_groups(watch)

    # -- the data -----------------------------------------------------------------------------------------------

    def _look(self, watch: NodeWatch) -> None:
        self._look_at_quorum(watch)
        broker = watch.node.broker
        if broker is None:
            return
        replicas = watch.replicas
        for name, partition in broker.replicas.partitions.items():
            seen = replicas.get(partition)
            if seen is None:
                truth = self._truth(name, partition.topic_id)
                seen = replicas[partition] = ReplicaWatch(watch.host, partition, truth, self.chronicle)
            if seen.has_news(partition):
                for fault in seen.look():
                    self.failures.append(fault)
        if len(replicas) > len(broker.replicas.partitions):
            watch.replicas = {each: replicas[each] for each in broker.replicas.partitions.values()}

    def _look_at_groups(self, watch: NodeWatch) -> None:
        """The memory of groups is counted as it changes; weighed anew it is the same."""
        if watch.node.broker is None:
            return
        groups = watch.node.broker.coordinators
        counted, weighed = groups.memory_bytes(), groups.recount_memory_bytes()
        if counted != weighed:
            self.failures.append(
                f"node {watch.node_id}: {counted} bytes are counted of groups that weigh {weighed}"
            )

    def _truth(self, name: TopicPartition, topic_id: object) -> PartitionTruth:
        key = (topic_id, name.partition)
        if key not in self._truths:
            self._truths[key] = PartitionTruth(name)
        return self._truths[key]

    # -- the quorum ---------------------------------------------------------------------------------------------

    def _look_at_quorum(self, watch: NodeWatch) -> None:
        driver = watch.driver
        if driver is None:
            quorum = watch.node.control.quorum
            if quorum is None or not quorum.started:
                return
            driver = watch.driver = quorum.driver
        core = driver.core
        if watch.node.ending and watch.ending_term < 0:
            watch.ending_term = core.term
        if core.is_leader and core.term != watch.led_term:
            watch.led_term = core.term
            self._led(watch, core.term)
        if core.commit_index > watch.committed:
            self._compare_entries(watch, driver, core.commit_index)

    def _led(self, watch: NodeWatch, term: int) -> None:
        first = self._controllers.setdefault(term, watch.node_id)
        if self.chronicle is not None:
            self.chronicle.note(watch.name, "metadata", f"controller of term {term}")
        if 0 <= watch.ending_term < term:
            self.failures.append(f"node {watch.node_id} is ending, and was elected controller of term {term}")
        if first != watch.node_id:
            self.failures.append(f"nodes {first} and {watch.node_id} are both controllers of term {term}")

    def _compare_entries(self, watch: NodeWatch, driver: Driver, end: int) -> None:
        """The metadata log matches: what one node takes for committed at an index, every node does."""
        journal = driver.journal
        end = min(end, journal.last_index)
        start = max(watch.committed + 1, journal.first_index)
        watch.committed = max(end, watch.committed)
        if start > end:
            return
        for command, index, term in journal.entries(start, end + 1):
            entry = (term, crc32(command))
            if self._entries.setdefault(index, entry) != entry:
                self.failures.append(
                    f"node {watch.node_id} has another committed metadata entry at index {index}"
                )

    # -- the metadata -------------------------------------------------------------------------------------------

    def _take_image(self, watch: NodeWatch, image: MetadataImage) -> None:
        old, watch.image = watch.image, image
        self.newest_image = max(self.newest_image, image, key=lambda each: each.offset)
        if image.offset < old.offset or image.controller_epoch < old.controller_epoch:
            self.failures.append(f"node {watch.node_id}: metadata went back from offset {old.offset}")
        encoded = encode_image(image)
        first = self._images.setdefault(image.offset, encoded)
        if first != encoded:
            self.failures.append(f"node {watch.node_id} has other metadata at offset {image.offset}")
        if image.usage is not old.usage and image.usage != usage_of(image):
            self.failures.append(f"node {watch.node_id} miscounts its metadata at offset {image.offset}")
        if first is not encoded:
            return
        controller = self._epoch_controllers.setdefault(image.controller_epoch, image.controller_id)
        if controller != image.controller_id:
            self.failures.append(f"two controllers wrote metadata of epoch {image.controller_epoch}")
        for name, topic, was, state in changed_partitions(old, image):
            if topic is not None and state is not None:
                self._judge_state(name, topic.topic_id, was, state, image)

    def _judge_state(
        self,
        name: TopicPartition,
        topic_id: object,
        was: PartitionState | None,
        state: PartitionState,
        image: MetadataImage,
    ) -> None:
        truth = self._truth(name, topic_id)
        if self.chronicle is not None:
            self._tell_state(name, was, state, image)
        if state.isr_lost or state.unclean_epoch >= 0:
            truth.excuse()
        faults = list(_faults_of(was, state, image))
        if state.leader != NO_BROKER:
            leader = truth.leaders.setdefault(state.leader_epoch, state.leader)
            if leader != state.leader:
                faults.append(f"nodes {leader} and {state.leader} both lead epoch {state.leader_epoch}")
        for fault in faults:
            self.failures.append(f"{name.topic}-{name.partition}: metadata offset {image.offset}: {fault}")

    def _tell_state(
        self, name: TopicPartition, was: PartitionState | None, state: PartitionState, image: MetadataImage
    ) -> None:
        assert self.chronicle is not None
        leader = "no leader" if state.leader == NO_BROKER else f"leader {state.leader}"
        isr = ",".join(map(str, state.isr))
        text = f"{leader} in epoch {state.leader_epoch}, ISR {isr}"
        if was is not None and was.isr != state.isr:
            text += f" (was {','.join(map(str, was.isr))})"
        self.chronicle.note(f"node{image.controller_id}", "metadata", text, where=name)


def _faults_of_move(was: PartitionState, state: PartitionState) -> list[str]:
    """Replicas go only when all that stay are in sync, or when what was added is given up again (KIP-455)."""
    gone = set(was.replicas) - set(state.replicas)
    came = set(state.replicas) - set(was.replicas)
    faults = []
    if came - set(state.adding_replicas):
        faults.append(f"replicas {sorted(came)} came without being added: {state}")
    if (
        gone
        and not set(state.replicas) <= set(state.isr)
        and set(state.replicas) != set(was.original_replicas)
    ):
        faults.append(
            f"replicas {sorted(gone)} went while those that stay are not in sync: {was}, then {state}"
        )
    return faults


def _faults_of(was: PartitionState | None, state: PartitionState, image: MetadataImage) -> list[str]:
    """Return what is wrong with a partition's state, by itself and after the previous state."""
    faults = []
    if not state.isr or not set(state.isr) <= set(state.replicas):
        faults.append(f"the ISR is {state.isr}, the replicas {state.replicas}")
    if state.leader != NO_BROKER and state.leader not in state.isr:
        faults.append(f"leader {state.leader} is not in the ISR {state.isr}")
    if state.leader != NO_BROKER and image.brokers[state.leader].fenced:
        faults.append(f"leader {state.leader} is fenced")
    if was is not None:
        faults += _faults_of_move(was, state)
        before = (was.leader_epoch, was.partition_epoch)
        after = (state.leader_epoch, state.partition_epoch)
        if after[0] < before[0] or after[1] <= before[1]:
            faults.append(f"(leader epoch, partition epoch) went from {before} to {after}")
        if was.leader != state.leader and after[0] == before[0]:
            faults.append(f"the leader changed from {was.leader} to {state.leader} within epoch {after[0]}")
    return faults
