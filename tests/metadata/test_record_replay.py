"""The meaning of records, and the fence that skips stale batches (Architecture §3, §4 'A metadata change')."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from raftlog.metadata.features import UnsupportedMetadata
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage, PartitionState, changed_partitions
from raftlog.metadata.metadata_records import (
    AclCreated,
    AclRemoved,
    Batch,
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClientQuotaChanged,
    ClusterNamed,
    ConfigChanged,
    ControllerElected,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    ScramCredentialChanged,
    TokenChanged,
    TokenRemoved,
    TopicCreated,
    TopicDeleted,
    decode_batch,
    encode_batch,
)
from raftlog.metadata.record_replay import apply, apply_batch, apply_records
from raftlog.metadata.usage import usage_of
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken

TOPIC, OTHER = UUID(int=1), UUID(int=2)
REGISTERED = BrokerRegistered(1, UUID(int=3), (Endpoint("PLAINTEXT", "h", 9092),), "r1", (UUID(int=4),))

RULE = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW)
TOKEN = DelegationToken("id", "User:al", "User:bob", ("User:cy",), 1, 2, 3)
CREDENTIAL = ScramCredential(b"salt", 4096, b"s" * 32, b"k" * 32)


def replay(*records: Record, image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    return apply_records(image, records)


def two_topics() -> MetadataImage:
    return replay(
        TopicCreated("a", TOPIC),
        PartitionCreated(TOPIC, 0, (1, 2), (1, 2), 1),
        PartitionCreated(TOPIC, 1, (2, 1), (2, 1), 2),
        TopicCreated("b", OTHER),
        PartitionCreated(OTHER, 0, (1,), (1,), 1),
    )


def test_offset_counts_records() -> None:
    """The image's offset is the number of records applied, so every node agrees on positions."""
    assert two_topics().offset == 5
    assert apply(two_topics(), ClusterNamed("c")).offset == 6


def test_topics_offset_moves_with_topics_alone() -> None:
    """Made, widened, deleted: that is after those records. Leaders and replicas are no matter."""
    image = two_topics()
    assert image.topics_offset == 5
    image = replay(PartitionChanged(TOPIC, 0, isr=(1,)), ClusterNamed("c"), image=image)
    assert (image.offset, image.topics_offset) == (7, 5)
    image = replay(PartitionCreated(OTHER, 1, (1,), (1,), 1), image=image)
    assert image.topics_offset == 8
    assert replay(ConfigChanged("topic", "a", "k", "v"), TopicDeleted(OTHER), image=image).topics_offset == 10


def test_topics_offset_moves_with_the_racks_of_replicas() -> None:
    """Groups with racks look at their topics then; not when replicas move within a rack, or brokers start again."""

    def registered(broker_id: int, rack: str | None) -> BrokerRegistered:
        return BrokerRegistered(broker_id, UUID(int=broker_id), (), rack, ())

    plain = replay(registered(1, None), registered(2, None), image=two_topics())
    assert plain.topics_offset == 5
    image = replay(*(registered(each, "ab"[each // 3]) for each in (1, 2, 3)), image=two_topics())
    assert image.topics_offset == 8
    image = replay(registered(1, "a"), PartitionChanged(OTHER, 0, replicas=(1, 2)), image=image)
    assert (image.offset, image.topics_offset) == (10, 8)
    image = replay(PartitionChanged(OTHER, 0, replicas=(1, 3)), image=image)
    assert image.topics_offset == 11
    assert replay(registered(3, "a"), image=image).topics_offset == 12
    gone = replay(BrokerUnregistered(3, image.brokers[3].broker_epoch), image=image)
    assert gone.topics_offset == 12
    assert replay(BrokerUnregistered(1, plain.brokers[1].broker_epoch), image=plain).topics_offset == 5


def test_broker_epoch_is_the_offset_of_its_registration() -> None:
    """A registration's own metadata offset is the broker epoch; it starts fenced (KIP-631)."""
    image = replay(ClusterNamed("c"), TopicCreated("a", TOPIC), REGISTERED)
    broker = image.brokers[1]
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (2, True, "r1")


def test_broker_change_keeps_what_it_does_not_name() -> None:
    """None in a BrokerChanged keeps that state; a new registration clears all."""
    image = replay(
        REGISTERED, BrokerChanged(1, 0, fenced=False), BrokerChanged(1, 0, in_controlled_shutdown=True)
    )
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, True)
    again = apply(image, REGISTERED)
    assert (again.brokers[1].fenced, again.brokers[1].in_controlled_shutdown) == (True, False)
    assert apply(again, BrokerUnregistered(1, 3)).brokers == {}


@pytest.mark.parametrize(
    ("change", "leader", "leader_epoch", "isr"),
    [
        ({"isr": (1,)}, 1, 0, (1,)),
        ({"leader": 2}, 2, 1, (1, 2)),
        ({"leader": 1}, 1, 1, (1, 2)),
        ({"leader": -1}, -1, 1, (1, 2)),
        ({"leader": 2, "isr": (2,)}, 2, 1, (2,)),
    ],
)
def test_partition_change_bumps_the_epochs_it_must(
    change: dict[str, Any], leader: int, leader_epoch: int, isr: tuple[int, ...]
) -> None:
    """Every change bumps the partition epoch, every election the leader epoch, even of the same leader (KIP-497)."""
    state = apply(two_topics(), PartitionChanged(TOPIC, 0, **change)).topics["a"].partitions[0]
    assert state == PartitionState((1, 2), isr, leader, leader_epoch, 1)


def test_changes_of_replicas_and_loss_are_kept() -> None:
    """Replica sets, reassignment marks and a lost isr are set when named and kept when not."""
    change = PartitionChanged(TOPIC, 0, replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))
    image = replay(change, PartitionChanged(TOPIC, 0, leader=-1, isr=(1,), isr_lost=True), image=two_topics())
    state = apply(image, PartitionChanged(TOPIC, 0)).topics["a"].partitions[0]
    assert state == PartitionState((1, 2, 3), (1,), -1, 1, 3, (3,), (1,), True)


def test_unchanged_parts_are_shared() -> None:
    """A change of one topic leaves the other topics and parts the very same objects."""
    before = two_topics()
    after = apply(before, PartitionChanged(TOPIC, 0, leader=2))
    assert after.topics["b"] is before.topics["b"]
    assert after.topics["a"].partitions[1] is before.topics["a"].partitions[1]
    assert after.brokers is before.brokers
    assert after.configs is before.configs
    assert before.topics["a"].partitions[0].leader == 1
    assert [str(partition) for partition, *_ in changed_partitions(before, after)] == ["a-0"]


def test_deleting_a_topic_deletes_its_configs() -> None:
    """A topic made again under the name starts with no configs and another id."""
    image = replay(ConfigChanged("topic", "a", "k", "v"), TopicDeleted(TOPIC), image=two_topics())
    assert set(image.topics) == {"b"}
    assert image.topic_names == {OTHER: "b"}
    assert image.configs == {}


def test_a_topic_changed_and_deleted_in_one_batch_is_gone() -> None:
    """Partition changes earlier in the batch do not bring a deleted topic back."""
    image = replay(PartitionChanged(TOPIC, 0, leader=2), TopicDeleted(TOPIC), image=two_topics())
    assert set(image.topics) == {"b"}


def test_config_none_removes_the_key_and_an_empty_resource() -> None:
    """Setting and removing leaves no trace."""
    image = replay(ConfigChanged("broker", "", "k", "v"), ConfigChanged("broker", "", "j", "w"))
    assert image.config("broker", "") == {"k": "v", "j": "w"}
    image = replay(
        ConfigChanged("broker", "", "k", None), ConfigChanged("broker", "", "j", None), image=image
    )
    assert image.configs == {}


def test_rules_come_and_go_one_by_one() -> None:
    """Other ACLs of the same resource stay (the class of CVE-2024-27309)."""
    other = replace(RULE, operation=Operation.WRITE)
    image = replay(AclCreated(RULE), AclCreated(other))
    assert set(image.acls) == {RULE, other}
    image = replay(AclRemoved(RULE), image=image)
    assert set(image.acls) == {other}
    assert (image.usage.security, image.usage) == (1, usage_of(image))
    with pytest.raises(AssertionError):
        replay(AclCreated(other), image=image)


def test_credentials_are_replaced_by_user_and_mechanism() -> None:
    """None removes a credential and leaves the user's other mechanism."""
    strong, weak = "SCRAM-SHA-512", "SCRAM-SHA-256"
    newer = replace(CREDENTIAL, iterations=8192)
    image = replay(
        ScramCredentialChanged("al", weak, CREDENTIAL),
        ScramCredentialChanged("al", strong, CREDENTIAL),
        ScramCredentialChanged("al", strong, newer),
    )
    assert image.scram == {("al", weak): CREDENTIAL, ("al", strong): newer}
    image = replay(ScramCredentialChanged("al", weak, None), image=image)
    assert image.scram == {("al", strong): newer}
    assert (image.usage.security, image.usage) == (1, usage_of(image))


def test_tokens_are_replaced_by_their_ids() -> None:
    """A renewed token is the same token, which counts once."""
    other, newer = replace(TOKEN, token_id="other"), replace(TOKEN, expires_ms=2**62, max_ms=2**63 - 1)
    image = replay(TokenChanged(TOKEN), TokenChanged(other), TokenChanged(newer))
    assert image.tokens == {"id": newer, "other": other}
    image = replay(TokenRemoved("other"), image=image)
    assert image.tokens == {"id": newer}
    assert (image.usage.tokens, image.usage) == (1, usage_of(image))
    with pytest.raises(KeyError):
        replay(TokenRemoved("other"), image=image)


def test_quotas_are_replaced_by_entity_and_key() -> None:
    """An entity without quotas is removed."""
    entity = (("user", "al"),)
    image = replay(
        ClientQuotaChanged(entity, "producer_byte_rate", 1.0),
        ClientQuotaChanged(entity, "consumer_byte_rate", 2.0),
        ClientQuotaChanged(entity, "producer_byte_rate", 3.0),
    )
    assert image.quotas == {entity: {"producer_byte_rate": 3.0, "consumer_byte_rate": 2.0}}
    assert (image.usage.security, image.usage) == (2, usage_of(image))
    image = replay(
        ClientQuotaChanged(entity, "producer_byte_rate", None),
        ClientQuotaChanged(entity, "consumer_byte_rate", None),
        image=image,
    )
    assert (dict(image.quotas), image.usage) == ({}, usage_of(image))


def test_producer_ids_only_grow() -> None:
    """The next free producer id is the image's."""
    assert replay(ProducerIdsAllocated(1, 1000)).next_producer_id == 1000
    with pytest.raises(AssertionError):
        replay(ProducerIdsAllocated(1, 1000), ProducerIdsAllocated(1, 1000))


@pytest.mark.parametrize(
    "record",
    [
        PartitionChanged(TOPIC, 0, isr=(3,)),
        PartitionChanged(TOPIC, 0, leader=3),
        PartitionChanged(TOPIC, 0, isr=(2,)),
        PartitionChanged(TOPIC, 0, isr=(), leader=-1),
        PartitionCreated(TOPIC, 3, (1,), (1,), 1),
        TopicCreated("a", UUID(int=9)),
        TopicCreated("c", TOPIC),
        BrokerChanged(9, 0, fenced=True),
    ],
)
def test_records_that_break_an_invariant_are_refused(record: Record) -> None:
    """isr ⊆ replicas, leader ∈ isr or none, numbers without gaps, names once: else the process stops."""
    with pytest.raises((AssertionError, LookupError)):
        apply(two_topics(), record)


def test_batch_is_applied_only_at_its_own_place() -> None:
    """The fence: controller epoch and base offset must both be the image's, else the batch is skipped whole."""
    image = replay(ControllerElected(1, 5))
    records = (ClusterNamed("c"),)
    assert apply_batch(image, Batch(5, 1, records)) == apply_records(image, records)
    assert apply_batch(image, Batch(4, 1, records)) is None
    assert apply_batch(image, Batch(6, 1, records)) is None
    assert apply_batch(image, Batch(5, 0, records)) is None
    assert apply_batch(image, Batch(5, 2, records)) is None


def test_election_is_fenced_by_its_epoch_alone() -> None:
    """A new controller does not know how long its predecessor's tail is; an old controller's election is skipped."""
    image = replay(ControllerElected(1, 5))
    elected = apply_batch(image, Batch(7, 0, (ControllerElected(2, 7),)))
    assert elected is not None
    assert (elected.controller_id, elected.controller_epoch, elected.offset) == (2, 7, 2)
    assert apply_batch(image, Batch(5, 1, (ControllerElected(2, 5),))) is None
    assert apply_batch(image, Batch(4, 1, (ControllerElected(2, 4),))) is None
    assert apply_batch(image, Batch(6, 1, (ControllerElected(2, 7),))) is None
    assert apply_batch(image, Batch(6, 1, (ControllerElected(2, 6), ClusterNamed("c")))) is None


def test_batch_bytes_round_trip_every_record() -> None:
    """Encoding and decoding gives the same batch, for one record of each kind."""
    records: tuple[Record, ...] = (
        ClusterNamed("c"),
        ControllerElected(1, 2),
        REGISTERED,
        BrokerChanged(1, 2, fenced=True),
        BrokerUnregistered(1, 2),
        TopicCreated("a", TOPIC),
        PartitionCreated(TOPIC, 0, (1, 2), (1,), 1),
        PartitionChanged(TOPIC, 0, isr=(1,)),
        TopicDeleted(TOPIC),
        ConfigChanged("topic", "a", "k", None),
        ProducerIdsAllocated(1, 1000),
        AclCreated(RULE),
        AclRemoved(RULE),
        ScramCredentialChanged("al", "SCRAM-SHA-256", CREDENTIAL),
        ScramCredentialChanged("al", "SCRAM-SHA-256", None),
        TokenChanged(TOKEN),
        TokenRemoved("id"),
        ClientQuotaChanged((("client-id", None), ("user", "al")), "producer_byte_rate", 1.5),
    )
    batch = Batch(3, 4, records)
    assert decode_batch(encode_batch(batch)) == batch
    with pytest.raises(UnsupportedMetadata, match="x02"):
        decode_batch(b"\x02" + encode_batch(batch)[1:])
