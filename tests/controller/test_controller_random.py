"""Random histories of a whole controller quorum: requests, dying brokers, new controllers, lost tails, stale batches.

Sources: Architecture §3 and §4 (metadata change, Liveness), KIP-497, KIP-631, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.base.types import NO_BROKER
from raftlog.controller import eligible_leaders, leader_and_isr
from raftlog.controller.controller import Controller
from raftlog.controller.decisions import MAX_PARTITION_RECORDS
from raftlog.controller.eligible_leaders import decide_release
from raftlog.controller.leader_and_isr import update_leader_and_isr
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.reassignment_completion import complete_reassignment
from raftlog.metadata.broker_requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeatReply,
    IsrChange,
    IsrMember,
)
from raftlog.metadata.controller_api import (
    PREFERRED,
    SAFE_DOWNGRADE,
    UNCLEAN,
    UPGRADE,
    AlterClientQuotas,
    AlterConfigs,
    AlterReassignments,
    AlterScramCredentials,
    ConfigAlteration,
    ConfigOp,
    CreateAcls,
    CreatePartitions,
    CreateToken,
    CreateTopics,
    DecommissionBroker,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ExpireToken,
    FeatureUpdate,
    LeadershipTransfer,
    NewPartitions,
    NewTopic,
    QuotaAlteration,
    Reassignment,
    RenewToken,
    ScramAlteration,
    TopicRef,
    TransferLeaderships,
    UnregisterBroker,
    UpdateFeatures,
)
from raftlog.metadata.features import finalized_level
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, TopicState
from raftlog.metadata.metadata_records import (
    Batch,
    ConfigChanged,
    ControllerElected,
    decode_batch,
    encode_batch,
)
from raftlog.metadata.record_replay import apply_batch, apply_records
from raftlog.metadata.snapshot import encode_image
from raftlog.metadata.usage import BASE_BYTES, usage_of
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import HASHES, from_salted
from tests.controller.controller_cluster import ControllerCluster
from tests.controller.test_partition_index import contents
from tests.kit.examples import examples

CONTROLLERS = 3
MAX_TO_REST = 300
"""Within so many batches, with a record in each, a controller comes to rest."""
BROKERS = st.integers(1, 5)
UNCLEAN_ALLOWED: dict[str, str | None] = {"unclean.leader.election.enable": "true"}
TOPICS = st.sampled_from(["a", "b", "c"])
TOKEN_IDS = st.sampled_from(["one", "two", "three"])
PRINCIPALS = st.sampled_from(["User:al", "User:bob", "User:cy"])
TOKENS_OF_SECONDS = {
    "delegation_token_secret_key": "key",
    "delegation_token_expiry_time_ms": 2_000,
    "delegation_token_max_lifetime_ms": 4_000,
    "delegation_token_expiry_check_interval_ms": 1_000,
}
RULES = st.builds(
    Acl,
    st.just(ResourceType.TOPIC),
    st.sampled_from(["a", "b", ""]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.just("User:al"),
    st.just("*"),
    st.sampled_from([Operation.READ, Operation.WRITE]),
    st.just(Permission.ALLOW),
)
"""Some of which have no name, which is refused."""


def _unsettled_anywhere(image: MetadataImage, controller: Controller) -> Iterator[tuple[str, int]]:
    """Look at every partition, with no index."""
    availability, unclean = controller._availability(image), controller._unclean(image)
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            change = update_leader_and_isr(
                topic.topic_id, number, state, availability=availability, unclean=unclean(topic.name)
            )
            end = state.is_reassigned and complete_reassignment(topic.topic_id, number, state, availability)
            if change is not None or end:
                yield topic.name, number


class ControllerMachine(RuleBasedStateMachine):
    """Brokers 1 to 5, three controllers; commits lag behind appends, leaders lose their tails."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ControllerCluster(
            CONTROLLERS, commit_at_once=False, min_insync_replicas=2, **TOKENS_OF_SECONDS
        )
        self.replies: list[list[Any]] = []
        self.checked = 0
        self.rebuilt = EMPTY_IMAGE
        self.previous: dict[tuple[UUID, int], PartitionState] = {}
        self.holders: dict[tuple[UUID, int], dict[int, Any]] = {}
        self.commits: Counter[tuple[UUID, int]] = Counter()
        """How many records each partition committed."""
        self.logs: dict[tuple[UUID, int, int], int] = {}
        """How many of them each replica holds."""
        self.disks: dict[int, tuple[UUID, ...]] = {}
        self.unclean_asked = False
        self.replaced: set[int] = set()
        """The brokers that have come, or tried to come, with another disk."""
        self.reported: set[tuple[UUID, int, int]] = set()
        """The replicas that have been reported as damaged."""
        self.patch = pytest.MonkeyPatch()

    @initialize(records=st.sampled_from([1, 2, 3, MAX_PARTITION_RECORDS]))
    def begin(self, records: int) -> None:
        """Start, with decisions that may take several batches of so few records."""
        for module in (leader_and_isr, eligible_leaders):
            self.patch.setattr(module, "MAX_PARTITION_RECORDS", records)
        self.cluster.elect(1)
        self.cluster.commit()
        for broker_id in (1, 2, 3):
            self._come(broker_id)
        self._ask(CreateTopics((NewTopic("a", 3, 3), NewTopic("b", 2, 2, configs=dict(UNCLEAN_ALLOWED)))))
        self.cluster.commit()

    @rule(broker_id=BROKERS, wiped=st.booleans())
    def come_back(self, broker_id: int, wiped: bool) -> None:
        """A broker dies, comes back and is unfenced."""
        self.cluster.active.peer_lost(broker_id, self.cluster.now)
        self._come(broker_id, wiped=wiped)

    @rule(broker_id=BROKERS)
    def die(self, broker_id: int) -> None:
        self.cluster.die(broker_id)

    def _come(self, broker_id: int, *, wiped: bool = False) -> None:
        self.cluster.active.peer_connected(broker_id, self.cluster.now)
        self._note_wipe(broker_id, wiped)
        self.cluster.register(broker_id, wiped=wiped)
        self.cluster.commit()
        if broker_id in self.cluster.image.brokers:
            self.cluster.heartbeat(broker_id)
            self.cluster.commit()

    def _ask(self, request: Any) -> None:
        self.replies.append(self.cluster.submit(request))

    def _epoch(self, broker_id: int) -> int:
        broker = self.cluster.image.brokers.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    # --- the quorum

    @rule(batches=st.sampled_from([1, 2, 100]))
    def commit(self, batches: int) -> None:
        self.cluster.commit(batches)

    @rule()
    def commit_all(self) -> None:
        """With no uncommitted change, every partition has the leader and ISR that the brokers' availability allows."""
        self.cluster.refusals = 0
        for _ in range(2):  # a tick for an election that the quorum refused, and a tick of the new controller
            self._come_to_rest()
            self.cluster.advance(0.1)
        self._come_to_rest()
        controller = self.cluster.active
        if controller.active:
            tail = controller._runner.tail
            assert list(_unsettled_anywhere(tail, controller)) == []
            released = decide_release(tail, controller._config, controller._index)
            assert released.records == (), (
                "the high watermark stands still, though enough replicas are in sync"
            )

    def _come_to_rest(self) -> None:
        """Commit until the controller appends no more: no two decisions undo each other for ever."""
        end = len(self.cluster.journal) + MAX_TO_REST
        self.cluster.commit(end - self.cluster.commit_index)
        assert self.cluster.commit_index == len(self.cluster.journal) < end, "the controller comes to no rest"

    @invariant()
    def every_index_is_its_images(self) -> None:
        """An index agrees with its image, whichever controller led and whichever tails were lost."""
        controller = self.cluster.active
        image = controller._runner.tail if controller.active else self.cluster.image
        assert contents(controller._index.at(image)) == contents(PartitionIndex().at(image))

    @rule(node_id=st.integers(1, CONTROLLERS), keep=st.integers(0, 4), commits=st.booleans())
    def change_controller(self, node_id: int, keep: int, commits: bool) -> None:
        self.cluster.elect(node_id, keep=keep)
        if commits:
            self.cluster.commit()

    @rule(appends=st.integers(1, 2))
    def quorum_refuses(self, appends: int) -> None:
        self.cluster.refusals = appends

    @rule(data=st.data())
    def stale_batch_comes_again(self, data: st.DataObject) -> None:
        """A batch of before, or of an old controller, reaches the journal once more: all nodes skip it."""
        if self.cluster.journal:
            self.cluster.journal.append(data.draw(st.sampled_from(self.cluster.journal)))
        term, end_offset = self.cluster.term - 1, self._tail().offset
        for record in (ControllerElected(9, term), ConfigChanged("broker", "", "stale", "x")):
            self.cluster.journal.append(encode_batch(Batch(term, end_offset, (record,))))

    def _tail(self) -> MetadataImage:
        """The image once everything in the journal is committed."""
        image = self.cluster.image
        for data in self.cluster.journal[self.cluster.commit_index :]:
            image = apply_batch(image, decode_batch(data)) or image
        return image

    @rule(node_id=st.integers(1, CONTROLLERS))
    def restart_from_snapshot(self, node_id: int) -> None:
        self.cluster.restart_from_snapshot(node_id)

    # --- brokers

    @rule(broker_id=BROKERS, wiped=st.booleans())
    def register(self, broker_id: int, wiped: bool) -> None:
        self.cluster.active.peer_lost(broker_id, self.cluster.now)
        self._note_wipe(broker_id, wiped)
        self.replies.append(self.cluster.register(broker_id, wiped=wiped))

    def _note_wipe(self, broker_id: int, wiped: bool) -> None:
        if wiped:
            self.replaced.add(broker_id)

    @rule(broker_id=BROKERS, want_fence=st.booleans(), want_shutdown=st.booleans(), behind=st.booleans())
    def heartbeat(self, broker_id: int, want_fence: bool, want_shutdown: bool, behind: bool) -> None:
        if broker_id in self.cluster.image.brokers:
            offset = self._epoch(broker_id) if behind else self.cluster.image.offset
            reply = self.cluster.heartbeat(
                broker_id, want_fence=want_fence, want_shutdown=want_shutdown, metadata_offset=offset
            )
            self.replies.append(reply)

    @rule(broker_id=BROKERS)
    def beat(self, broker_id: int) -> None:
        if broker_id in self.cluster.image.brokers:
            self.replies.append(self.cluster.heartbeat(broker_id))

    @rule(broker_id=BROKERS, name=TOPICS, partition=st.integers(0, 3))
    def damage(self, broker_id: int, name: str, partition: int) -> None:
        """A broker that reports a damaged log counts no more once that is answered, unless an unclean election chose
        it.
        """
        self.cluster.commit()
        state = self.cluster.image.partition(name, partition)
        if state is None or broker_id not in self.cluster.image.brokers or self.cluster.refusals:
            return
        damaged = ((self.cluster.image.topics[name].topic_id, partition),)
        self.reported.add((*damaged[0], broker_id))
        replies = self.cluster.heartbeat(broker_id, damaged=damaged)
        self.cluster.commit()
        after = self.cluster.image.partition(name, partition)
        (reply,) = replies
        if isinstance(reply, BrokerHeartbeatReply) and not reply.is_fenced:
            assert after is not None
            chosen = after.unclean_epoch == after.leader_epoch > state.leader_epoch
            assert broker_id not in after.trusted or chosen
            self.every_committed_batch_keeps_the_laws()
            if broker_id not in after.trusted:
                self.logs[self.cluster.image.topics[name].topic_id, partition, broker_id] = 0

    @rule(broker_id=BROKERS, result=st.sampled_from(["refused", "alive", "silent"]))
    def connection_drops(self, broker_id: int, result: Any) -> None:
        self.cluster.active.peer_lost(broker_id, self.cluster.now)
        self.cluster.active.on_probe_result(broker_id, result, self.cluster.now)

    @rule(broker_id=BROKERS)
    def connection_comes(self, broker_id: int) -> None:
        self.cluster.active.peer_connected(broker_id, self.cluster.now)

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 3.5]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        self._ask(UnregisterBroker(broker_id))

    @rule(broker_id=BROKERS, wiped=st.booleans())
    def replace_broker(self, broker_id: int, wiped: bool) -> None:
        """Another machine gets a broker's id, with its disks or without them."""
        self._ask(UnregisterBroker(broker_id))
        self.cluster.commit()
        self._come(broker_id, wiped=wiped)

    # --- topics

    @rule(name=TOPICS, partitions=st.integers(-1, 4), factor=st.integers(-1, 4), unclean=st.booleans())
    def create_topic(self, name: str, partitions: int, factor: int, unclean: bool) -> None:
        configs = dict(UNCLEAN_ALLOWED if unclean else {})
        self._ask(CreateTopics((NewTopic(name, partitions, factor, configs=configs),)))

    @rule(name=TOPICS)
    def delete_topic(self, name: str) -> None:
        self._ask(DeleteTopics((TopicRef(name=name),)))

    @rule(name=TOPICS, total=st.integers(1, 6))
    def create_partitions(self, name: str, total: int) -> None:
        self._ask(CreatePartitions((NewPartitions(name, total),)))

    @rule(name=TOPICS, partition=st.integers(0, 3), members=st.sets(BROKERS), data=st.data())
    def alter_partition(self, name: str, partition: int, members: set[int], data: st.DataObject) -> None:
        state = self.cluster.image.partition(name, partition)
        if state is None or state.leader == -1:
            return
        stale = data.draw(st.integers(0, 1))
        isr = tuple(
            IsrMember(each, self._epoch(each)) for each in (members & set(state.replicas)) | {state.leader}
        )
        change = IsrChange(
            self.cluster.image.topics[name].topic_id,
            partition,
            state.leader_epoch,
            state.partition_epoch - stale,
            isr,
        )
        self._ask(AlterPartition(state.leader, self._epoch(state.leader), (change,)))

    @rule(
        name=TOPICS,
        partition=st.integers(0, 3),
        replicas=st.none() | st.lists(BROKERS, max_size=3),
        factor_may_change=st.booleans(),
    )
    def reassign(
        self, name: str, partition: int, replicas: list[int] | None, factor_may_change: bool
    ) -> None:
        wanted = Reassignment(name, partition, None if replicas is None else tuple(replicas))
        self._ask(AlterReassignments((wanted,), factor_may_change))

    @rule(name=TOPICS, partition=st.integers(0, 3), leader=BROKERS)
    def transfer_leadership(self, name: str, partition: int, leader: int) -> None:
        self._ask(TransferLeaderships((LeadershipTransfer(name, partition, leader),)))

    @rule(broker_id=BROKERS, draining=st.booleans())
    def drain(self, broker_id: int, draining: bool) -> None:
        self._ask(DrainBroker(broker_id, draining))

    @rule(broker_id=BROKERS, replace_with=st.sampled_from([NO_BROKER, 2, 5]), ended=st.booleans())
    def decommission(self, broker_id: int, replace_with: int, ended: bool) -> None:
        self._ask(DecommissionBroker(broker_id, replace_with, ended))

    @rule(kind=st.sampled_from([PREFERRED, UNCLEAN]))
    def elect_leaders(self, kind: int) -> None:
        self.unclean_asked |= kind == UNCLEAN
        self._ask(ElectLeaders(kind))

    @rule(name=TOPICS, value=st.sampled_from(["true", "false", "nonsense"]))
    def alter_configs(self, name: str, value: str) -> None:
        op = ConfigOp("unclean.leader.election.enable", value)
        self._ask(AlterConfigs((ConfigAlteration("topic", name, (op,)),)))

    @rule(name=st.sampled_from(["a", "b", "c", ""]), value=st.sampled_from(["1", "2", "3"]))
    def alter_min_insync(self, name: str, value: str) -> None:
        """Of a topic, or of the whole cluster."""
        op = ConfigOp("min.insync.replicas", value)
        self._ask(AlterConfigs((ConfigAlteration("topic" if name else "broker", name, (op,)),)))

    @rule(broker_id=BROKERS)
    def allocate(self, broker_id: int) -> None:
        self._ask(AllocateProducerIds(broker_id, self._epoch(broker_id)))

    @rule(name=st.sampled_from(["group.version", "metadata.version", "x"]), level=st.integers(-1, 31))
    def update_features(self, name: str, level: int) -> None:
        kind = SAFE_DOWNGRADE if level < finalized_level(self.cluster.image, name) else UPGRADE
        self._ask(UpdateFeatures((FeatureUpdate(name, level, kind),)))

    @rule(some=st.lists(RULES, min_size=1, max_size=3))
    def create_acls(self, some: list[Acl]) -> None:
        self._ask(CreateAcls(tuple(some)))

    @rule(name=TOPICS, operation=st.sampled_from([Operation.ANY, Operation.READ]))
    def delete_acls(self, name: str, operation: Operation) -> None:
        asked = AclFilter(ResourceType.TOPIC, name, PatternType.MATCH, None, None, operation, Permission.ANY)
        self._ask(DeleteAcls((asked,)))

    @rule(user=st.sampled_from(["al", "bob"]), mechanism=st.sampled_from(sorted(HASHES)), sets=st.booleans())
    def alter_credentials(self, user: str, mechanism: str, sets: bool) -> None:
        credential = from_salted(mechanism, b"salted", b"salt", 4096) if sets else None
        self._ask(AlterScramCredentials((ScramAlteration(user, mechanism, credential),)))

    @rule(token_id=TOKEN_IDS, owner=PRINCIPALS, lifetime_ms=st.sampled_from([-1, 500, 5_000]))
    def create_token(self, token_id: str, owner: str, lifetime_ms: int) -> None:
        self._ask(CreateToken(token_id, owner, "User:al", ("User:bob",), lifetime_ms))

    @rule(token_id=TOKEN_IDS, principal=PRINCIPALS, period_ms=st.sampled_from([-1, 0, 700, 90_000]))
    def change_token(self, token_id: str, principal: str, period_ms: int) -> None:
        self._ask(RenewToken(token_id, principal, period_ms))
        self._ask(ExpireToken(token_id, principal, period_ms))

    @rule(
        entity=st.sampled_from([(("user", "al"),), (("client-id", None), ("user", "al"))]),
        value=st.sampled_from([None, 1.0, 2.0]),
        dry=st.booleans(),
    )
    def alter_quotas(self, entity: Any, value: float | None, dry: bool) -> None:
        asked = QuotaAlteration(entity, (("producer_byte_rate", value),))
        self._ask(AlterClientQuotas((asked,), dry))

    # --- what must hold

    @invariant()
    def every_committed_batch_keeps_the_laws(self) -> None:
        """Replaying what is committed, one batch after the other, keeps every law at every step."""
        while self.checked < self.cluster.commit_index:
            batch = decode_batch(self.cluster.journal[self.checked])
            self.checked += 1
            after = apply_batch(self.rebuilt, batch)
            if after is None:
                continue
            for record in batch.records:
                one_by_one = apply_records(self.rebuilt, (record,))
                self._check_step(self.rebuilt, one_by_one)
                self.rebuilt = one_by_one
            assert self.rebuilt == after

    def _check_step(self, before: MetadataImage, after: MetadataImage) -> None:
        assert after.controller_epoch >= before.controller_epoch
        assert after.next_producer_id >= before.next_producer_id
        for broker_id, broker in after.brokers.items():
            old = before.brokers.get(broker_id)
            assert old is None or broker.broker_epoch >= old.broker_epoch
            self._note_disk(broker_id, broker.directory_ids)
        assert {topic.topic_id: name for name, topic in after.topics.items()} == after.topic_names
        for topic in after.topics.values():
            for index, state in enumerate(topic.partitions):
                self._check_partition(after, state)
                was = self.previous.get((topic.topic_id, index))
                if was is not None and was != state:
                    self._check_change(was, state)
                self._check_leader_holds_everything(after, topic, index)
                self._check_trusted_logs(topic, index)
                self.previous[topic.topic_id, index] = state

    def _check_leader_holds_everything(self, image: MetadataImage, topic: TopicState, index: int) -> None:
        """A leader was in sync on its current disk, since it came in sync, unless elected uncleanly.

        A broker that leads for reading only is exempt: an emptied disk that rots as well may do that.
        """
        key, state = (topic.topic_id, index), topic.partitions[index]
        holders = self.holders.setdefault(key, {})
        was = self.previous.get(key)
        uncleanly = was is not None and state.unclean_epoch > was.unclean_epoch
        if was is not None and state.leader != -1:
            assert uncleanly or state.isr_lost or state.leader in was.trusted
        if uncleanly:
            allowed = UNCLEAN_ALLOWED.items() <= image.config("topic", topic.name).items()
            assert allowed or self.unclean_asked, "an unclean election without a request"
            holders.clear()
        disks = {each: image.brokers[each].directory_ids for each in state.trusted if each in image.brokers}
        if state.leader != -1 and not state.isr_lost:
            assert holders.get(state.leader, disks[state.leader]) == disks[state.leader]
        self.holders[key] = {each: holders.get(each, disks.get(each)) for each in state.trusted}

    def _check_trusted_logs(self, topic: TopicState, index: int) -> None:
        """Each replica in sync, and each eligible leader, holds all that was committed.

        A leader commits until the very moment of its partition's next change, with all ISR members. Only the metadata
        keeps it from that, whatever its own min.insync.replicas: it may name eligible leaders.
        """
        key, state = (topic.topic_id, index), topic.partitions[index]
        was = self.previous.get(key)
        if was is not None and was != state:
            if was.leader != NO_BROKER and not was.isr_lost and not was.eligible:
                self.commits[key] += 1
                self.logs.update({(*key, each): self.commits[key] for each in was.isr})
            if state.unclean_epoch > was.unclean_epoch or not state.trusted:
                self.commits[key] = 0
                self.logs.update({(*key, each): 0 for each in state.replicas})
            if state.leader == was.leader != NO_BROKER:  # a replica joins once its log is the leader's
                joined = set(state.isr).difference(was.trusted)
                self.logs.update({(*key, each): self.commits[key] for each in joined})
            if was.isr_lost and state.isr_lost and not state.trusted:
                gone = {each for each in was.trusted if (*key, each) not in self.reported}
                assert gone <= self.replaced, "the last replica with all records is forgotten"
        assert {self.logs.get((*key, each), 0) for each in state.trusted} <= {self.commits[key]}

    def _note_disk(self, broker_id: int, disk: tuple[UUID, ...]) -> None:
        """A broker's new disk is empty."""
        if self.disks.setdefault(broker_id, disk) != disk:
            self.disks[broker_id] = disk
            self.logs.update({key: 0 for key in self.logs if key[2] == broker_id})

    def _check_partition(self, image: MetadataImage, state: PartitionState) -> None:
        assert state.isr
        assert set(state.isr) <= set(state.replicas)
        assert len(set(state.replicas)) == len(state.replicas)
        assert len(state.isr) == 1 or not state.isr_lost
        if state.leader == -1:
            return
        assert state.leader in state.isr
        assert not image.brokers[state.leader].fenced

    def _check_change(self, was: PartitionState, state: PartitionState) -> None:
        assert state.partition_epoch == was.partition_epoch + 1
        assert state.leader_epoch - was.leader_epoch in (0, 1)
        if state.leader != was.leader:
            assert state.leader_epoch > was.leader_epoch
        if set(state.replicas) != set(was.replicas):
            self._check_move(was, state)

    def _check_move(self, was: PartitionState, state: PartitionState) -> None:
        """KIP-455: new replicas come as added; replicas go when all that stay are in sync, or on cancellation."""
        came = set(state.replicas) - set(was.replicas)
        gone = set(was.replicas) - set(state.replicas)
        assert came <= set(state.adding_replicas)
        if gone:
            ended = state.replicas == was.target_replicas and set(state.replicas) == set(state.isr)
            assert ended or state.replicas == was.original_replicas
            assert not state.is_reassigned

    @invariant()
    def nodes_agree(self) -> None:
        """Every node has the same image, whether it replayed everything or came from a snapshot."""
        for image in self.cluster.images.values():
            assert image == self.rebuilt
        assert self.rebuilt.usage == usage_of(self.rebuilt)
        assert len(encode_image(self.rebuilt)) <= self.rebuilt.usage.size_bytes + BASE_BYTES

    @invariant()
    def tokens_keep_within_their_times(self) -> None:
        """A token never outlives its maximum, however often it is renewed, and never lives longer than asked."""
        for token in self.rebuilt.tokens.values():
            assert token.issued_ms <= token.expires_ms <= token.max_ms <= token.issued_ms + 4_000
            assert token.max_ms - token.issued_ms in (500, 4_000)

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(len(replies) <= 1 for replies in self.replies)

    @invariant()
    def the_tail_of_an_active_controller_is_the_journal(self) -> None:
        """The active controller decides on exactly what its journal says, committed or not."""
        controller = self.cluster.active
        if not controller.active:
            return
        assert controller._runner.tail == self._tail()

    def teardown(self) -> None:
        """With the whole journal committed, every request was answered, some with NOT_CONTROLLER."""
        try:
            self.cluster.refusals = 0
            self.cluster.elect(1)
            self._come_to_rest()
            assert self.cluster.active.active
            self.commit_all()
            self.every_committed_batch_keeps_the_laws()
            self.nodes_agree()
            assert all(len(replies) == 1 for replies in self.replies)
        finally:
            self.patch.undo()


TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=examples(200),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
