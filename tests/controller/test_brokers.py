"""Registration, heartbeats, fencing, controlled shutdown (KIP-631)."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    ClusterAuthorizationFailed,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
)
from raftlog.metadata.broker_requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    RegisterBroker,
)
from raftlog.metadata.controller_api import Done, ErrorReply, UnregisterBroker
from raftlog.metadata.features import SUPPORTED_FEATURES
from tests.controller.controller_cluster import ENDPOINTS, ControllerCluster


def code(reply: object) -> int:
    assert isinstance(reply, ErrorReply)
    return reply.error_code


def test_registration_starts_fenced_with_its_own_offset_as_epoch() -> None:
    """The broker epoch is the metadata offset of the registration, and it leads no partition before unfencing."""
    cluster = ControllerCluster()
    cluster.elect(1)
    offset = cluster.image.offset
    assert cluster.register(1) == BrokerRegistration(offset)
    assert cluster.image.brokers[1].fenced


def test_same_incarnation_registers_once() -> None:
    """A retry after a lost response gets the same epoch and writes no record."""
    cluster = ControllerCluster()
    cluster.elect(1)
    first = cluster.register(1, incarnation=7)
    batches = len(cluster.journal)
    assert cluster.register(1, incarnation=7) == first
    assert len(cluster.journal) == batches


def test_second_process_with_one_id_is_refused_while_the_first_lives(cluster: ControllerCluster) -> None:
    """Two processes with one broker id: the later is refused until the earlier is silent for a session."""
    assert code(cluster.register(2)) == DuplicateBrokerRegistration.code
    cluster.advance(3.5, heartbeats=(1, 3))
    assert isinstance(cluster.register(2), BrokerRegistration)


def test_new_incarnation_is_taken_once_the_connection_dropped(cluster: ControllerCluster) -> None:
    """After kill -9 the restarted broker need not wait for the session to end."""
    cluster.active.peer_lost(2, cluster.now)
    assert isinstance(cluster.register(2), BrokerRegistration)


def test_new_incarnation_leaves_isr_and_leadership_in_the_same_batch(cluster: ControllerCluster) -> None:
    """One batch holds both, so that no image shows the new incarnation as the old incarnation's replica."""
    cluster.assign("t", (2, 1, 3))
    cluster.active.peer_lost(2, cluster.now)
    batches = len(cluster.journal)
    epoch = cluster.image.brokers[2].broker_epoch
    reply = cluster.register(2)
    assert len(cluster.journal) == batches + 1
    assert cluster.image.brokers[2].broker_epoch == reply.broker_epoch > epoch
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1, 3))


def test_foreign_cluster_and_senseless_registrations_are_refused(cluster: ControllerCluster) -> None:
    """A node of another cluster cannot join by mistake."""
    request = RegisterBroker(9, UUID(int=1), "other", ENDPOINTS)
    assert code(cluster.ask(request)) == InconsistentClusterId.code
    request = RegisterBroker(9, UUID(int=1), cluster.image.cluster_id, ())
    assert code(cluster.ask(request)) == InvalidRegistration.code
    request = RegisterBroker(-2, UUID(int=1), cluster.image.cluster_id, ENDPOINTS)
    assert code(cluster.ask(request)) == InvalidRegistration.code
    assert set(cluster.image.brokers) == {1, 2, 3}


def test_broker_is_unfenced_once_it_has_seen_its_registration(cluster: ControllerCluster) -> None:
    """Caught up means that the published image contains the registration record."""
    cluster.register(4)
    epoch = cluster.image.brokers[4].broker_epoch
    assert cluster.heartbeat(4, metadata_offset=epoch) == BrokerHeartbeatReply(False, True, False)
    assert cluster.heartbeat(4, metadata_offset=epoch + 1, want_fence=True) == BrokerHeartbeatReply(
        True, True, False
    )
    assert cluster.heartbeat(4, metadata_offset=epoch + 1) == BrokerHeartbeatReply(True, False, False)
    assert not cluster.image.brokers[4].fenced


def test_heartbeats_of_others_do_not_count(cluster: ControllerCluster) -> None:
    """An old incarnation and an unknown broker get errors, and extend no session."""
    assert code(cluster.heartbeat(2, broker_epoch=0)) == StaleBrokerEpoch.code
    assert code(cluster.ask(BrokerHeartbeat(9, 0, 0))) == BrokerIdNotRegistered.code
    for _ in range(7):
        cluster.advance(0.5, heartbeats=(1, 3))
        cluster.heartbeat(2, broker_epoch=0)
    assert cluster.image.brokers[2].fenced


def test_steady_heartbeat_writes_nothing(cluster: ControllerCluster) -> None:
    """Only changes are records."""
    batches = len(cluster.journal)
    assert cluster.heartbeat(1) == BrokerHeartbeatReply(True, False, False)
    assert len(cluster.journal) == batches


def test_broker_is_fenced_when_it_asks_or_its_disk_failed(cluster: ControllerCluster) -> None:
    """want_fence and a failed log directory move all leaderships."""
    cluster.assign("t", (2, 1, 3))
    assert cluster.heartbeat(2, want_fence=True) == BrokerHeartbeatReply(True, True, False)
    assert cluster.partition("t").leader == 1
    cluster.heartbeat(2)
    assert not cluster.image.brokers[2].fenced
    assert cluster.heartbeat(2, failed_directory_ids=(UUID(int=5),)).is_fenced
    assert cluster.image.brokers[2].fenced


def test_controlled_shutdown_moves_leaderships_first(cluster: ControllerCluster) -> None:
    """The broker may stop once it leads no partition that another could lead; the same response says so."""
    cluster.assign("t", (2, 1, 3), (1, 2, 3))
    cluster.assign("alone", (2,))
    assert cluster.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, True)
    assert cluster.image.brokers[2].in_controlled_shutdown
    assert [each.leader for each in cluster.image.topics["t"].partitions] == [1, 1]
    assert [each.isr for each in cluster.image.topics["t"].partitions] == [(1, 3), (1, 3)]
    assert cluster.partition("alone").leader == 2
    cluster.die(2)
    assert (cluster.partition("alone").leader, cluster.partition("alone").isr) == (-1, (2,))
    assert cluster.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, True, True)


def test_controlled_shutdown_waits_for_a_member_in_doubt(cluster: ControllerCluster) -> None:
    """While the only other member is in doubt, the leaving broker leads on."""
    cluster.assign("t", (2, 3))
    cluster.active.peer_lost(3, cluster.now)
    assert cluster.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, False)
    assert cluster.partition("t").leader == 2
    cluster.heartbeat(3)
    assert cluster.partition("t").leader == 3
    assert cluster.heartbeat(2, want_shutdown=True).should_shutdown


def test_leaving_broker_is_not_placed_on_nor_elected(cluster: ControllerCluster) -> None:
    """A broker in controlled shutdown gets no new leaderships, and no way back into an ISR (KIP-841)."""
    cluster.heartbeat(2, want_shutdown=True)
    cluster.create("t", 6, 2)
    assert all(2 not in each.replicas for each in cluster.image.topics["t"].partitions)


@pytest.mark.parametrize("running", [True, False])
def test_an_unregistered_broker_leads_nothing_and_leaves_what_others_hold(
    cluster: ControllerCluster, running: bool
) -> None:
    """Whether it runs or not, as with Apache Kafka; a running broker is ignored until it registers anew."""
    cluster.assign("t", (3, 1), (3, 2))
    cluster.assign("alone", (3,))
    assert code(cluster.ask(UnregisterBroker(9))) == BrokerIdNotRegistered.code
    epoch = cluster.image.brokers[3].broker_epoch
    if not running:
        cluster.die(3)
    assert cluster.ask(UnregisterBroker(3)) == Done()
    assert set(cluster.image.brokers) == {1, 2}
    states = [cluster.partition("t"), cluster.partition("t", 1), cluster.partition("alone")]
    assert [(each.leader, each.isr) for each in states] == [(1, (1,)), (2, (2,)), (-1, (3,))]
    assert code(cluster.ask(BrokerHeartbeat(3, epoch, cluster.image.offset))) == BrokerIdNotRegistered.code
    cluster.advance(5.0, heartbeats=(1, 2))
    assert cluster.create("u", 4, 1).error_code == 0
    assert all(each.leader != 3 for each in cluster.image.topics["u"].partitions)


@pytest.mark.parametrize("wiped,lost", [(False, False), (True, True)])
def test_the_last_in_sync_leads_again_only_with_its_disk(
    cluster: ControllerCluster, wiped: bool, lost: bool
) -> None:
    """Its log directories stay known, through snapshots and other controllers, until it registers."""
    cluster.assign("t", (3,))
    cluster.ask(UnregisterBroker(3))
    assert cluster.image.unregistered[3].directory_ids == (cluster.disks[3],)
    cluster.restart_from_snapshot(1)
    cluster.come_back(3, wiped=wiped)
    assert (cluster.partition("t").leader, cluster.partition("t").isr_lost) == (-1 if lost else 3, lost)
    assert cluster.image.unregistered == {}


def test_a_broker_that_others_can_replace_leaves_nothing_behind(cluster: ControllerCluster) -> None:
    """Its directories are not kept where some other replica is in sync everywhere."""
    cluster.assign("t", (3, 1))
    cluster.ask(UnregisterBroker(3))
    assert cluster.image.unregistered == {}


def test_broker_cannot_speak_for_another(cluster: ControllerCluster) -> None:
    """On a connection that proved to be broker 1, requests of broker 2 are refused (Architecture)."""
    epoch = cluster.image.brokers[2].broker_epoch
    assert code(cluster.ask(BrokerHeartbeat(2, epoch, 99), peer=1)) == ClusterAuthorizationFailed.code
    assert isinstance(cluster.ask(BrokerHeartbeat(2, epoch, 99), peer=2), BrokerHeartbeatReply)
    assert cluster.ask(UnregisterBroker(2), peer=1) == Done()


def test_changed_endpoints_of_one_incarnation_are_registered_anew() -> None:
    """If an incarnation comes with other addresses, the newer addresses hold."""
    cluster = ControllerCluster()
    cluster.elect(1)
    cluster.register(1, incarnation=7)
    moved = (msgspec.structs.replace(ENDPOINTS[0], host="elsewhere"),)
    request = RegisterBroker(
        1, UUID(int=7), "", moved, directory_ids=(cluster.disks[1],), features=SUPPORTED_FEATURES
    )
    cluster.ask(request)
    assert cluster.image.brokers[1].endpoints == moved
