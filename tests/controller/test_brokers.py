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
from raftlog.metadata.controller_api import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    Done,
    ErrorReply,
    RegisterBroker,
    UnregisterBroker,
)
from tests.controller.controller_cluster import ENDPOINTS, ControllerCluster


def code(reply: object) -> int:
    assert isinstance(reply, ErrorReply)
    return reply.error_code


@pytest.fixture
def world() -> ControllerCluster:
    made = ControllerCluster()
    made.start(1, 2, 3)
    return made


def test_registration_starts_fenced_with_its_own_offset_as_epoch() -> None:
    """The broker epoch is the metadata offset of the registration, and nothing is led before unfencing."""
    world = ControllerCluster()
    world.elect(1)
    offset = world.image.offset
    assert world.register(1) == BrokerRegistration(offset)
    assert world.image.brokers[1].fenced


def test_same_incarnation_registers_once() -> None:
    """A retry whose answer was lost gets the same epoch and writes nothing."""
    world = ControllerCluster()
    world.elect(1)
    first = world.register(1, incarnation=7)
    batches = len(world.journal)
    assert world.register(1, incarnation=7) == first
    assert len(world.journal) == batches


def test_second_process_with_one_id_is_refused_while_the_first_lives(world: ControllerCluster) -> None:
    """Two processes with one broker id: the later is refused until the earlier is silent for a session."""
    assert code(world.register(2)) == DuplicateBrokerRegistration.code
    world.advance(3.5, heartbeats=(1, 3))
    assert isinstance(world.register(2), BrokerRegistration)


def test_new_incarnation_is_taken_once_the_connection_dropped(world: ControllerCluster) -> None:
    """After kill -9 the restarted broker need not wait for the session to end."""
    world.active.peer_lost(2, world.now)
    assert isinstance(world.register(2), BrokerRegistration)


def test_new_incarnation_leaves_isr_and_leadership_in_the_same_batch(world: ControllerCluster) -> None:
    """One batch holds both, so that no image shows the new incarnation as the old one's replica (H7)."""
    world.assign("t", (2, 1, 3))
    world.active.peer_lost(2, world.now)
    batches = len(world.journal)
    epoch = world.image.brokers[2].broker_epoch
    reply = world.register(2)
    assert len(world.journal) == batches + 1
    assert world.image.brokers[2].broker_epoch == reply.broker_epoch > epoch
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1, 3))


def test_foreign_cluster_and_senseless_registrations_are_refused(world: ControllerCluster) -> None:
    """A node of another cluster cannot join by mistake."""
    request = RegisterBroker(9, UUID(int=1), "other", ENDPOINTS)
    assert code(world.ask(request)) == InconsistentClusterId.code
    request = RegisterBroker(9, UUID(int=1), world.image.cluster_id, ())
    assert code(world.ask(request)) == InvalidRegistration.code
    request = RegisterBroker(-2, UUID(int=1), world.image.cluster_id, ENDPOINTS)
    assert code(world.ask(request)) == InvalidRegistration.code
    assert set(world.image.brokers) == {1, 2, 3}


def test_broker_is_unfenced_once_it_has_seen_its_registration(world: ControllerCluster) -> None:
    """Caught up means that the published image contains the registration record."""
    world.register(4)
    epoch = world.image.brokers[4].broker_epoch
    assert world.heartbeat(4, metadata_offset=epoch) == BrokerHeartbeatReply(False, True, False)
    assert world.heartbeat(4, metadata_offset=epoch + 1, want_fence=True) == BrokerHeartbeatReply(
        True, True, False
    )
    assert world.heartbeat(4, metadata_offset=epoch + 1) == BrokerHeartbeatReply(True, False, False)
    assert not world.image.brokers[4].fenced


def test_heartbeats_of_others_do_not_count(world: ControllerCluster) -> None:
    """An old incarnation and an unknown broker are told so, and keep nobody's session alive."""
    assert code(world.heartbeat(2, broker_epoch=0)) == StaleBrokerEpoch.code
    assert code(world.ask(BrokerHeartbeat(9, 0, 0))) == BrokerIdNotRegistered.code
    for _ in range(7):
        world.advance(0.5, heartbeats=(1, 3))
        world.heartbeat(2, broker_epoch=0)
    assert world.image.brokers[2].fenced


def test_steady_heartbeat_writes_nothing(world: ControllerCluster) -> None:
    """Only changes are records."""
    batches = len(world.journal)
    assert world.heartbeat(1) == BrokerHeartbeatReply(True, False, False)
    assert len(world.journal) == batches


def test_broker_is_fenced_when_it_asks_or_its_disk_failed(world: ControllerCluster) -> None:
    """want_fence and a failed log directory move all leaderships (H16)."""
    world.assign("t", (2, 1, 3))
    assert world.heartbeat(2, want_fence=True) == BrokerHeartbeatReply(True, True, False)
    assert world.partition("t").leader == 1
    world.heartbeat(2)
    assert not world.image.brokers[2].fenced
    assert world.heartbeat(2, failed_directory_ids=(UUID(int=5),)).is_fenced
    assert world.image.brokers[2].fenced


def test_controlled_shutdown_moves_leaderships_first(world: ControllerCluster) -> None:
    """The broker may stop once it leads nothing that another could lead; it is told in the same answer."""
    world.assign("t", (2, 1, 3), (1, 2, 3))
    world.assign("alone", (2,))
    assert world.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, True)
    assert world.image.brokers[2].in_controlled_shutdown
    assert [each.leader for each in world.image.topics["t"].partitions] == [1, 1]
    assert [each.isr for each in world.image.topics["t"].partitions] == [(1, 3), (1, 3)]
    assert world.partition("alone").leader == 2
    world.die(2)
    assert (world.partition("alone").leader, world.partition("alone").isr) == (-1, (2,))
    assert world.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, True, True)


def test_controlled_shutdown_waits_for_a_member_in_doubt(world: ControllerCluster) -> None:
    """While the only other member is in doubt, the leaving broker leads on."""
    world.assign("t", (2, 3))
    world.active.peer_lost(3, world.now)
    assert world.heartbeat(2, want_shutdown=True) == BrokerHeartbeatReply(True, False, False)
    assert world.partition("t").leader == 2
    world.heartbeat(3)
    assert world.partition("t").leader == 3
    assert world.heartbeat(2, want_shutdown=True).should_shutdown


def test_leaving_broker_is_not_placed_on_nor_elected(world: ControllerCluster) -> None:
    """A broker in controlled shutdown gets no new leaderships, and no way back into an ISR (KIP-841)."""
    world.heartbeat(2, want_shutdown=True)
    world.create("t", 6, 2)
    assert all(2 not in each.replicas for each in world.image.topics["t"].partitions)


@pytest.mark.parametrize("running", [True, False])
def test_an_unregistered_broker_leads_nothing_and_leaves_what_others_hold(
    world: ControllerCluster, running: bool
) -> None:
    """Whether it runs or not, as with Apache Kafka; a running one is not heard any more until it registers anew."""
    world.assign("t", (3, 1), (3, 2))
    world.assign("alone", (3,))
    assert code(world.ask(UnregisterBroker(9))) == BrokerIdNotRegistered.code
    epoch = world.image.brokers[3].broker_epoch
    if not running:
        world.die(3)
    assert world.ask(UnregisterBroker(3)) == Done()
    assert set(world.image.brokers) == {1, 2}
    states = [world.partition("t"), world.partition("t", 1), world.partition("alone")]
    assert [(each.leader, each.isr) for each in states] == [(1, (1,)), (2, (2,)), (-1, (3,))]
    assert code(world.ask(BrokerHeartbeat(3, epoch, world.image.offset))) == BrokerIdNotRegistered.code
    world.advance(5.0, heartbeats=(1, 2))
    assert world.create("u", 4, 1).error_code == 0
    assert all(each.leader != 3 for each in world.image.topics["u"].partitions)


@pytest.mark.parametrize("wiped,lost", [(False, False), (True, True)])
def test_the_last_in_sync_leads_again_only_with_its_disk(
    world: ControllerCluster, wiped: bool, lost: bool
) -> None:
    """Its log directories stay known, through snapshots and other controllers, until it registers."""
    world.assign("t", (3,))
    world.ask(UnregisterBroker(3))
    assert world.image.unregistered_directories == {3: (world.disks[3],)}
    world.restart_from_snapshot(1)
    world.come_back(3, wiped=wiped)
    assert (world.partition("t").leader, world.partition("t").isr_lost) == (-1 if lost else 3, lost)
    assert world.image.unregistered_directories == {}


def test_a_broker_that_others_can_replace_leaves_nothing_behind(world: ControllerCluster) -> None:
    """Its directories are not kept where some other replica is in sync everywhere."""
    world.assign("t", (3, 1))
    world.ask(UnregisterBroker(3))
    assert world.image.unregistered_directories == {}


def test_broker_cannot_speak_for_another(world: ControllerCluster) -> None:
    """On a connection that proved to be broker 1, requests of broker 2 are refused (Architecture)."""
    epoch = world.image.brokers[2].broker_epoch
    assert code(world.ask(BrokerHeartbeat(2, epoch, 99), peer=1)) == ClusterAuthorizationFailed.code
    assert isinstance(world.ask(BrokerHeartbeat(2, epoch, 99), peer=2), BrokerHeartbeatReply)
    assert world.ask(UnregisterBroker(2), peer=1) == Done()


def test_changed_endpoints_of_one_incarnation_are_registered_anew() -> None:
    """Should an incarnation come with other addresses, the newer ones hold."""
    world = ControllerCluster()
    world.elect(1)
    world.register(1, incarnation=7)
    moved = (msgspec.structs.replace(ENDPOINTS[0], host="elsewhere"),)
    request = RegisterBroker(1, UUID(int=7), "", moved, directory_ids=(world.disks[1],))
    world.ask(request)
    assert world.image.brokers[1].endpoints == moved
