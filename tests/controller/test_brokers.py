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
    controllers = ControllerCluster()
    controllers.elect(1)
    offset = controllers.image.offset
    assert controllers.register(1) == BrokerRegistration(offset)
    assert controllers.image.brokers[1].fenced


def test_same_incarnation_registers_once() -> None:
    """A retry after a lost response gets the same epoch and writes no record."""
    controllers = ControllerCluster()
    controllers.elect(1)
    first = controllers.register(1, incarnation=7)
    batches = len(controllers.journal)
    assert controllers.register(1, incarnation=7) == first
    assert len(controllers.journal) == batches


def test_second_process_with_one_id_is_refused_while_the_first_lives(controllers: ControllerCluster) -> None:
    """Two processes with one broker id: the later is refused until the earlier is silent for a session."""
    assert code(controllers.register(2)) == DuplicateBrokerRegistration.code
    controllers.advance(3.5, heartbeats=(1, 3))
    assert isinstance(controllers.register(2), BrokerRegistration)


def test_new_incarnation_is_taken_once_the_connection_dropped(controllers: ControllerCluster) -> None:
    """After kill -9 the restarted broker need not wait for the session to end."""
    controllers.active.peer_lost(2, controllers.now)
    assert isinstance(controllers.register(2), BrokerRegistration)


def test_new_incarnation_leaves_isr_and_leadership_in_the_same_batch(controllers: ControllerCluster) -> None:
    """One batch holds both, so that no image shows the new incarnation as the old incarnation's replica."""
    controllers.assign("t", (2, 1, 3))
    controllers.active.peer_lost(2, controllers.now)
    batches = len(controllers.journal)
    epoch = controllers.image.brokers[2].broker_epoch
    reply = controllers.register(2)
    assert len(controllers.journal) == batches + 1
    assert controllers.image.brokers[2].broker_epoch == reply.broker_epoch > epoch
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (1, (1, 3))


def test_foreign_cluster_and_senseless_registrations_are_refused(controllers: ControllerCluster) -> None:
    """A node of another cluster cannot join by mistake."""
    request = RegisterBroker(9, UUID(int=1), "other", ENDPOINTS)
    assert code(controllers.ask(request)) == InconsistentClusterId.code
    request = RegisterBroker(9, UUID(int=1), controllers.image.cluster_id, ())
    assert code(controllers.ask(request)) == InvalidRegistration.code
    request = RegisterBroker(-2, UUID(int=1), controllers.image.cluster_id, ENDPOINTS)
    assert code(controllers.ask(request)) == InvalidRegistration.code
    assert set(controllers.image.brokers) == {1, 2, 3}


def test_broker_is_unfenced_once_it_has_seen_its_registration(controllers: ControllerCluster) -> None:
    """Caught up means that the published image contains the registration record."""
    controllers.register(4)
    epoch = controllers.image.brokers[4].broker_epoch
    assert controllers.heartbeat(4, metadata_offset=epoch) == BrokerHeartbeatReply(False, True, False)
    assert controllers.heartbeat(4, metadata_offset=epoch + 1, want_fence=True) == BrokerHeartbeatReply(
        True, True, False
    )
    assert controllers.heartbeat(4, metadata_offset=epoch + 1) == BrokerHeartbeatReply(True, False, False)
    assert not controllers.image.brokers[4].fenced


def test_heartbeats_of_others_do_not_count(controllers: ControllerCluster) -> None:
    """An old incarnation and an unknown broker get errors, and extend no session."""
    assert code(controllers.heartbeat(2, broker_epoch=0)) == StaleBrokerEpoch.code
    assert code(controllers.ask(BrokerHeartbeat(9, 0, 0))) == BrokerIdNotRegistered.code
    for _ in range(7):
        controllers.advance(0.5, heartbeats=(1, 3))
        controllers.heartbeat(2, broker_epoch=0)
    assert controllers.image.brokers[2].fenced


def test_steady_heartbeat_writes_nothing(controllers: ControllerCluster) -> None:
    """Only changes are records."""
    batches = len(controllers.journal)
    assert controllers.heartbeat(1) == BrokerHeartbeatReply(True, False, False)
    assert len(controllers.journal) == batches


def test_broker_is_fenced_when_it_asks_or_its_disk_failed(controllers: ControllerCluster) -> None:
    """want_fence and a failed log directory move all leaderships."""
    controllers.assign("t", (2, 1, 3))
    assert controllers.heartbeat(2, want_fence=True) == BrokerHeartbeatReply(True, True, False)
    assert controllers.partition("t").leader == 1
    controllers.heartbeat(2)
    assert not controllers.image.brokers[2].fenced
    assert controllers.heartbeat(2, failed_directory_ids=(UUID(int=5),)).is_fenced
    assert controllers.image.brokers[2].fenced


def test_controlled_shutdown_moves_leaderships_first(controllers: ControllerCluster) -> None:
    """The broker may stop once it leads no partition that another could lead; the same response says so."""
    controllers.assign("t", (2, 1, 3), (1, 2, 3))
    controllers.assign("alone", (2,))
    assert controllers.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, True)
    assert controllers.image.brokers[2].in_controlled_shutdown
    assert [each.leader for each in controllers.image.topics["t"].partitions] == [1, 1]
    assert [each.isr for each in controllers.image.topics["t"].partitions] == [(1, 3), (1, 3)]
    assert controllers.partition("alone").leader == 2
    controllers.die(2)
    assert (controllers.partition("alone").leader, controllers.partition("alone").isr) == (-1, (2,))
    assert controllers.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, True, True)


def test_controlled_shutdown_waits_for_a_member_in_doubt(controllers: ControllerCluster) -> None:
    """While the only other member is in doubt, the leaving broker leads on."""
    controllers.assign("t", (2, 3))
    controllers.active.peer_lost(3, controllers.now)
    assert controllers.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, False)
    assert controllers.partition("t").leader == 2
    controllers.heartbeat(3)
    assert controllers.partition("t").leader == 3
    assert controllers.heartbeat(2, want_shutdown=True).should_shutdown


def test_leaving_broker_is_not_placed_on_nor_elected(controllers: ControllerCluster) -> None:
    """A broker in controlled shutdown gets no new leaderships, and no way back into an ISR (KIP-841)."""
    controllers.heartbeat(2, want_shutdown=True)
    controllers.create("t", 6, 2)
    assert all(2 not in each.replicas for each in controllers.image.topics["t"].partitions)


@pytest.mark.parametrize("running", [True, False])
def test_an_unregistered_broker_leads_nothing_and_leaves_what_others_hold(
    controllers: ControllerCluster, running: bool
) -> None:
    """Whether it runs or not, as with Apache Kafka; a running broker is ignored until it registers anew."""
    controllers.assign("t", (3, 1), (3, 2))
    controllers.assign("alone", (3,))
    assert code(controllers.ask(UnregisterBroker(9))) == BrokerIdNotRegistered.code
    epoch = controllers.image.brokers[3].broker_epoch
    if not running:
        controllers.die(3)
    assert controllers.ask(UnregisterBroker(3)) == Done()
    assert set(controllers.image.brokers) == {1, 2}
    states = [controllers.partition("t"), controllers.partition("t", 1), controllers.partition("alone")]
    assert [(each.leader, each.isr) for each in states] == [(1, (1,)), (2, (2,)), (-1, (3,))]
    assert (
        code(controllers.ask(BrokerHeartbeat(3, epoch, controllers.image.offset)))
        == BrokerIdNotRegistered.code
    )
    controllers.advance(5.0, heartbeats=(1, 2))
    assert controllers.create("u", 4, 1).error_code == 0
    assert all(each.leader != 3 for each in controllers.image.topics["u"].partitions)


@pytest.mark.parametrize("wiped,lost", [(False, False), (True, True)])
def test_the_last_in_sync_leads_again_only_with_its_disk(
    controllers: ControllerCluster, wiped: bool, lost: bool
) -> None:
    """Its log directories stay known, through snapshots and other controllers, until it registers."""
    controllers.assign("t", (3,))
    controllers.ask(UnregisterBroker(3))
    assert controllers.image.unregistered[3].directory_ids == (controllers.disks[3],)
    controllers.restart_from_snapshot(1)
    controllers.come_back(3, wiped=wiped)
    assert (controllers.partition("t").leader, controllers.partition("t").isr_lost) == (
        -1 if lost else 3,
        lost,
    )
    assert controllers.image.unregistered == {}


def test_a_broker_that_others_can_replace_leaves_nothing_behind(controllers: ControllerCluster) -> None:
    """Its directories are not kept where some other replica is in sync everywhere."""
    controllers.assign("t", (3, 1))
    controllers.ask(UnregisterBroker(3))
    assert controllers.image.unregistered == {}


def test_broker_cannot_speak_for_another(controllers: ControllerCluster) -> None:
    """On a connection that proved to be broker 1, requests of broker 2 are refused (Architecture)."""
    epoch = controllers.image.brokers[2].broker_epoch
    assert code(controllers.ask(BrokerHeartbeat(2, epoch, 99), peer=1)) == ClusterAuthorizationFailed.code
    assert isinstance(controllers.ask(BrokerHeartbeat(2, epoch, 99), peer=2), BrokerHeartbeatReply)
    assert controllers.ask(UnregisterBroker(2), peer=1) == Done()


def test_changed_endpoints_of_one_incarnation_are_registered_anew() -> None:
    """If an incarnation comes with other addresses, the newer addresses hold."""
    controllers = ControllerCluster()
    controllers.elect(1)
    controllers.register(1, incarnation=7)
    moved = (msgspec.structs.replace(ENDPOINTS[0], host="elsewhere"),)
    request = RegisterBroker(
        1, UUID(int=7), "", moved, directory_ids=(controllers.disks[1],), features=SUPPORTED_FEATURES
    )
    controllers.ask(request)
    assert controllers.image.brokers[1].endpoints == moved
