"""Three replicas, a controller and chance: in any order of events, no acknowledged record is lost or changed.

Power is lost with everything unsynced, metadata arrives late and at different times, responses of the controller get
lost, fenced brokers go on as zombies. Invariants are from Vanlightly's TLA+ models of Kafka replication:
NoCommittedRecordLost, ConsistentRead, LogMatching below the high watermark, ReplicationQuorumSuperset.
"""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlog.base.errors import KafkaError
from raftlog.metadata.broker_requests import IsrChange, IsrChangeResult
from raftlog.metadata.image import PartitionState
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LeaderRole
from tests.kit.examples import examples
from tests.replication.replica_cluster import RecordingWaiter, ReplicaNode, registration

IDS = (1, 2, 3)
LIKELY = ("work",) * 8 + ("produce", "flush", "fetch", "hear", "alter_partition") * 2
ACTIONS = (
    *LIKELY,
    "lag",
    "lag",
    "lose_power",
    "restart",
    "restart",
    "fence",
    "unfence",
    "unfence",
    "prefer",
    "heal",
)
Step = tuple[str, int, int]
"""An action, the broker it is about, and bits that say how."""


class ReplicationMachine:
    """One partition on three brokers, min.insync.replicas 1 or 2, clean elections only."""

    def __init__(self, min_isr: int) -> None:
        self.state = PartitionState(replicas=IDS, isr=IDS, leader=1)
        self.metadata = {each: registration(each) for each in IDS}
        self.views = {each: dict(self.metadata) for each in IDS}
        self.nodes = {each: ReplicaNode(each, self.views[each], min_isr=min_isr, seed=each) for each in IDS}
        self.down: set[int] = set()
        self.broker_epoch = 10
        self.count = 0
        self.acknowledged: list[str] = []
        self.waiting: list[tuple[str, RecordingWaiter]] = []
        self.history: list[str] = []
        self.leading: dict[tuple[int, int], int] = {}
        for each in IDS:
            self.tell(each)

    def step(self, action: str, node: int, bits: int) -> None:
        if action == "restart" or node not in self.down:
            getattr(self, action)(node, bits)
        self.nothing_acknowledged_is_lost()
        self.a_consumed_record_never_changes()
        self.no_high_watermark_goes_back()
        self.the_leader_counts_at_least_the_controllers_isr()

    # -- clients and brokers ------------------------------------------------------------------------------------

    def produce(self, node: int, bits: int) -> None:
        acks = -1 if bits & 3 else 1
        for _ in range(1 + (bits >> 2 & 1)):
            self.count += 1
            value = f"v{self.count}"
            try:
                waiting = self.nodes[node].produce(value, acks=acks)
            except KafkaError:
                return
            if acks == -1:
                self.waiting.append((value, waiting))

    def flush(self, node: int, bits: int = 0) -> None:
        if node not in self.down:
            self.nodes[node].host.flush()

    def fetch(self, node: int, bits: int = 1) -> None:
        """A fetch only leaves once what lies before its offset is flushed; the fetcher sees to that."""
        role = self.nodes[node].partition.role
        if node in self.down or not isinstance(role, FollowerRole) or role.leader in {-1, node} | self.down:
            return
        self.nodes[node].host.flush()
        self.nodes[node].fetch_from(
            self.nodes[role.leader], flush=bool(bits & 1), max_bytes=1 if bits & 2 else 1 << 20
        )

    def work(self, node: int, bits: int) -> None:
        """A stretch of ordinary life, with some brokers taking part: without it little would ever commit."""
        followers = [each for each in IDS if bits >> each & 1]
        for each in IDS:
            if each not in self.down and bits & 128 and bits >> 7 >> each & 1:
                self.tell(each)
        leader = self.leader_in_view_of(node)
        if leader is None:
            return
        self.produce(leader, 1)
        for _ in range(3):
            if bits & 1:
                self.flush(leader)
            for each in followers:
                self.fetch(each, 1 | bits >> 5)
            if bits & 16:
                self.alter_partition(leader, bits >> 5)

    def leader_in_view_of(self, node: int) -> int | None:
        role = self.nodes[node].partition.role
        found = (
            node if isinstance(role, LeaderRole) else role.leader if isinstance(role, FollowerRole) else -1
        )
        return None if found in self.down | {-1} else found

    def lag(self, node: int, bits: int) -> None:
        self.nodes[node].host.clock += 10
        self.nodes[node].partition.maybe_shrink_isr()
        if bits & 1:
            self.alter_partition(node, bits >> 1)

    def lose_power(self, node: int, bits: int) -> None:
        self.down.add(node)
        if bits & 1:  # else the checkpoint is old
            self.nodes[node].checkpointed = self.nodes[node].partition.high_watermark
        self.nodes[node].crash()
        if bits & 2:
            self.notice(node, bits)

    def notice(self, node: int, bits: int) -> None:
        """The controller fences a dead broker; some of the others hear of it at once."""
        self.fence(node, bits >> 1)
        for each in IDS:
            if each not in self.down and bits >> each & 4:
                self.tell(each)

    # -- the controller -----------------------------------------------------------------------------------------

    def restart(self, node: int, bits: int = 0) -> None:
        """A new incarnation leaves every ISR that has another member (docs, "Liveness")."""
        if node not in self.down:
            return
        self.down.discard(node)
        self.broker_epoch += 1
        self.metadata[node] = registration(node, epoch=self.broker_epoch)
        self.leave(node, bits)
        self.views[node].update(self.metadata)
        self.nodes[node].boot()
        self.tell(node)

    def fence(self, node: int, bits: int = 0) -> None:
        if not self.metadata[node].fenced:
            self.metadata[node] = msgspec.structs.replace(self.metadata[node], fenced=True)
            self.leave(node, bits)

    def unfence(self, node: int, bits: int = 0) -> None:
        if node not in self.down and self.metadata[node].fenced:
            self.metadata[node] = msgspec.structs.replace(self.metadata[node], fenced=False)
            self.elect_if_needed(bits)

    def leave(self, node: int, bits: int) -> None:
        isr = tuple(each for each in self.state.isr if each != node) or self.state.isr
        if self.state.leader == node:
            self.change(isr=isr, leader=-1)
            self.elect_if_needed(bits)
        elif isr != self.state.isr:
            self.change(isr=isr)
        else:
            self.elect_if_needed(bits)

    def elect_if_needed(self, bits: int) -> None:
        if self.state.leader != -1:
            return
        alive = [each for each in self.state.isr if each not in self.down and not self.metadata[each].fenced]
        if alive:
            self.change(leader=alive[bits % len(alive)])

    def prefer(self, node: int, bits: int = 0) -> None:
        """Any eligible ISR member may be made leader at any time."""
        eligible = node in self.state.isr and node not in self.down and not self.metadata[node].fenced
        if eligible and self.state.leader not in (node, -1):
            self.change(leader=node)

    def change(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(
            self.state,
            partition_epoch=self.state.partition_epoch + 1,
            leader_epoch=self.state.leader_epoch + ("leader" in changes),
            **changes,
        )

    def hear(self, node: int, bits: int = 0) -> None:
        """The newest image reaches a broker."""
        self.tell(node)

    def tell(self, node: int) -> None:
        self.views[node].update(self.metadata)
        self.nodes[node].partition.reconcile(self.state)
        self.nodes[node].partition.reevaluate_isr()

    def alter_partition(self, node: int, bits: int) -> None:
        """The controller judges a proposal; its answer may get lost."""
        if node in self.down:
            return
        change = self.nodes[node].partition.pending_isr_change()
        if change is None:
            return
        answer = self.judge(change)
        if bits & 1:
            self.nodes[node].partition.complete_isr_change(change, answer)

    def judge(self, change: IsrChange) -> IsrChangeResult:
        isr = tuple(member.broker_id for member in change.isr)
        code = 0
        if change.leader_epoch != self.state.leader_epoch:
            code = 74
        elif change.partition_epoch != self.state.partition_epoch:
            code = 95
        elif any(not self.is_eligible(member.broker_id, member.broker_epoch) for member in change.isr):
            code = 107
        if code == 0:
            self.change(isr=isr)
        state = self.state
        return IsrChangeResult(
            change.topic_id, 0, code, state.leader, state.leader_epoch, state.isr, state.partition_epoch
        )

    def is_eligible(self, member: int, broker_epoch: int) -> bool:
        known = self.metadata[member]
        return not known.fenced and broker_epoch in (-1, known.broker_epoch)

    def heal(self, node: int, bits: int) -> None:
        """Everybody returns, hears everything and catches up: all logs are equal, every record is committed."""
        for each in IDS:
            self.restart(each)
        for node in IDS:
            self.unfence(node)
        for _ in range(6):
            for node in IDS:
                self.tell(node)
                self.nodes[node].host.flush()
                self.alter_partition(node, 1)
            for node in 3 * IDS:
                self.fetch(node)
        leader = self.nodes[self.state.leader]
        assert set(self.state.isr) == set(IDS)
        assert leader.partition.high_watermark == leader.partition.log_end_offset
        assert all(self.nodes[each].values() == leader.values() for each in IDS)

    # -- what must hold -----------------------------------------------------------------------------------------

    def nothing_acknowledged_is_lost(self) -> None:
        for value, waiting in self.waiting:
            if waiting.outcome == "committed":
                self.acknowledged.append(value)
        self.waiting = [each for each in self.waiting if each[1].outcome is None]
        leader = self.state.leader
        if leader == -1 or leader in self.down:
            return
        node = self.nodes[leader]
        if node.partition.leader_epoch == self.state.leader_epoch:
            assert set(self.acknowledged) <= set(node.values())

    def a_consumed_record_never_changes(self) -> None:
        for each in IDS:
            node = self.nodes[each]
            if each in self.down or not node.partition.is_leader:
                continue
            seen = node.consume()
            common = min(len(seen), len(self.history))
            assert seen[:common] == self.history[:common]
            if len(seen) > common:
                self.history = seen

    def no_high_watermark_goes_back(self) -> None:
        for each in IDS:
            partition = self.nodes[each].partition
            if partition.is_leader and each not in self.down:
                term = (each, partition.leader_epoch)
                assert partition.high_watermark >= self.leading.get(term, 0)
                self.leading[term] = partition.high_watermark

    def the_leader_counts_at_least_the_controllers_isr(self) -> None:
        for each in IDS:
            role = self.nodes[each].partition.role
            if each in self.down or not isinstance(role, LeaderRole):
                continue
            if role.leader_epoch == self.state.leader_epoch:
                shrunk_by_controller = self.nodes[each].partition.partition_epoch < self.state.partition_epoch
                assert shrunk_by_controller or set(role.isr.maximal) >= set(self.state.isr)


steps = st.tuples(st.sampled_from(ACTIONS), st.sampled_from(IDS), st.integers(0, 0xFFF))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(min_isr=st.sampled_from((1, 2)), scenario=st.lists(steps, min_size=60, max_size=150))
def test_nothing_acknowledged_is_lost_or_changed(min_isr: int, scenario: list[Step]) -> None:
    """NoCommittedRecordLost and ConsistentRead over every order of events; and all heals in the end."""
    machine = ReplicationMachine(min_isr)
    for step in scenario:
        machine.step(*step)
    machine.heal(1, 0)
