"""A log directory that went back in time: its broker is trusted with no records (KIP-966)."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.base.errors import InvalidRegistration
from raftlog.base.types import NO_BROKER, NO_EPOCH
from raftlog.metadata.broker_requests import BrokerRegistration, PreviousOpening, RegisterBroker
from raftlog.metadata.controller_api import ErrorReply, UnregisterBroker
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.image import new_incarnation
from tests.controller.controller_cluster import ENDPOINTS, ControllerCluster

FIRST, SECOND, THIRD = (new_incarnation(number, written=True) for number in (1, 2, 3))
OLD = UUID(int=4, version=4)
"""The incarnation of a release that writes none into its directories."""
DIRECTORIES = UUID(int=71), UUID(int=72)


pytestmark = pytest.mark.brokers(1, 2)


def register(
    controllers: ControllerCluster,
    incarnation_id: UUID,
    *previous: PreviousOpening,
    directories: tuple[UUID, ...] = DIRECTORIES,
) -> BrokerRegistration:
    """Register broker 3 with its log directories, as a process that begins after the last process has ended."""
    controllers.active.peer_lost(3, controllers.now)
    request = RegisterBroker(
        3,
        incarnation_id,
        controllers.image.cluster_id,
        ENDPOINTS,
        directory_ids=directories,
        features=SUPPORTED_FEATURES,
        previous=previous,
    )
    reply = controllers.ask(request)
    assert isinstance(reply, BrokerRegistration), reply
    return reply


def named(*incarnations: UUID, clean_epoch: int = NO_EPOCH) -> PreviousOpening:
    return PreviousOpening(clean_epoch, incarnations)


def test_a_directory_that_names_the_last_process_is_the_newest(controllers: ControllerCluster) -> None:
    """After kill -9, too, and though processes that could not register came after it."""
    register(controllers, FIRST, named(), named())
    assert register(controllers, THIRD, named(FIRST), named(FIRST, SECOND)).went_back == ()


def test_a_process_that_was_killed_as_it_registered_is_named_too(controllers: ControllerCluster) -> None:
    """Its name was written before: so there is no gap between the registration and the node's next step."""
    register(controllers, FIRST, named(), named())
    register(controllers, SECOND, named(FIRST), named(FIRST))
    assert register(controllers, THIRD, named(FIRST, SECOND), named(FIRST, SECOND)).went_back == ()


def test_each_directory_is_compared(controllers: ControllerCluster) -> None:
    """One disk of several was restored: the broker leaves every ISR with another member, alive or not."""
    register(controllers, FIRST, named(), named())
    controllers.heartbeat(3)
    controllers.assign("t", (3, 1, 2))
    controllers.assign("alone", (3,))
    register(controllers, SECOND, named(FIRST), named(FIRST))
    controllers.heartbeat(3)
    for broker_id in (1, 2):
        controllers.die(broker_id)
    assert register(controllers, THIRD, named(FIRST, SECOND), named(FIRST)).went_back == DIRECTORIES[1:]
    controllers.heartbeat(3)
    assert 3 not in controllers.partition("t").isr
    last = controllers.partition("alone")
    assert (last.isr, last.isr_lost, last.leader) == ((3,), True, NO_BROKER)


def test_a_new_directory_is_no_older_copy(controllers: ControllerCluster) -> None:
    """A disk was added: it has no name of a process, and the metadata does not know it."""
    register(controllers, FIRST, named(), directories=DIRECTORIES[:1])
    assert register(controllers, SECOND, named(FIRST), named()).went_back == ()


def test_a_clean_stop_of_an_older_release_is_compared_by_its_epoch(controllers: ControllerCluster) -> None:
    """0.3.0 writes only its epoch into the clean-shutdown marker: its crash looks like a copy."""
    epoch = register(controllers, OLD).broker_epoch
    assert register(controllers, FIRST, named(clean_epoch=epoch), named()).went_back == ()
    epoch = register(controllers, OLD).broker_epoch
    older = named(FIRST, clean_epoch=epoch - 1)
    assert register(controllers, SECOND, older, older).went_back == DIRECTORIES


def test_a_node_that_ran_an_older_release_meanwhile_is_trusted(controllers: ControllerCluster) -> None:
    """It was upgraded, went back to 0.3.0, and was killed there: the names in its directories are from before."""
    register(controllers, FIRST, named(), named())
    register(controllers, OLD)
    assert register(controllers, SECOND, named(FIRST), named(FIRST)).went_back == ()


def test_a_copy_that_an_older_release_left_is_older_than_a_later_process(
    controllers: ControllerCluster,
) -> None:
    """It has no name of a process, so it was made before the release that writes names was installed."""
    register(controllers, FIRST, named(), named())
    assert register(controllers, SECOND, named(), named(FIRST)).went_back == DIRECTORIES[:1]


def test_a_broker_of_an_older_release_is_not_compared(controllers: ControllerCluster) -> None:
    """It does not report its directories' processes; their ids alone count, as always."""
    register(controllers, FIRST, named(), named())
    assert register(controllers, OLD).went_back == ()


@pytest.mark.parametrize(("last", "older"), [(named(FIRST), True), (named(FIRST, SECOND), False)])
def test_an_older_copy_of_an_unregistered_broker_is_older(
    controllers: ControllerCluster, last: PreviousOpening, older: bool
) -> None:
    """It was the last in sync, so its last registration stays known, through snapshots too."""
    register(controllers, FIRST, named(), named())
    register(controllers, SECOND, named(FIRST), named(FIRST))
    controllers.heartbeat(3)
    controllers.assign("alone", (3,))
    controllers.ask(UnregisterBroker(3))
    controllers.restart_from_snapshot(1)
    assert register(controllers, THIRD, last, named(FIRST, SECOND)).went_back == DIRECTORIES[:older]
    controllers.heartbeat(3)
    alone = controllers.partition("alone")
    assert (alone.isr_lost, alone.leader) == (older, NO_BROKER if older else 3)


def test_a_directory_that_is_newer_than_the_metadata_is_trusted(controllers: ControllerCluster) -> None:
    """Metadata of all nodes was restored without the logs: those have what the metadata knows, and more."""
    epoch = register(controllers, OLD).broker_epoch
    assert register(controllers, FIRST, *[named(clean_epoch=epoch + 100)] * 2).went_back == ()


def test_a_registration_speaks_of_all_its_directories_or_of_none(controllers: ControllerCluster) -> None:
    """It would otherwise be unknown which directory is meant."""
    reply = controllers.ask(
        RegisterBroker(
            3, FIRST, controllers.image.cluster_id, ENDPOINTS, directory_ids=DIRECTORIES, previous=(named(),)
        )
    )
    assert isinstance(reply, ErrorReply)
    assert reply.error_code == InvalidRegistration.code
    assert "1 log directories" in (reply.message or "")
