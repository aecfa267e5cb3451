"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter: what the controller is asked, and Kafka's refusals (KIP-853)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import DuplicateVoter
from raftlog.broker.handlers import find_api, served
from raftlog.metadata.controller_api import AddVoter, Done, RemoveVoter, UpdateVoter
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription, QuorumReplica
from raftlog.protocol.message_builders import request_builders
from tests.broker.handlers.one_broker import HandlerSetup, versions

QUORUM, ADD, REMOVE, UPDATE = 55, 80, 81, 82
DIRECTORY = UUID(int=77)


def setup() -> HandlerSetup:
    found = HandlerSetup(controller_listener_names=("CTRL",))
    found.answers[AddVoter] = Done()
    found.answers[RemoveVoter] = Done()
    found.answers[UpdateVoter] = Done()
    found.answers[DescribeQuorum] = QuorumDescription(1, 7, 90, (), addresses={1: ("one", 9094)})
    return found


def addition(version: int, **changed: Any) -> dict[str, Any]:
    make = request_builders(ADD, version)
    fields = {
        "cluster_id": "the-cluster",
        "timeout": 5000,
        "voter_id": 4,
        "voter_directory_id": DIRECTORY,
        "listeners": (make.Listener(name="CTRL", host="four", port=9093),),
    }
    if version >= 1:
        fields["ack_when_committed"] = True
    return {**fields, **changed}


async def add(cluster: HandlerSetup, version: int, **changed: Any) -> Any:
    return await cluster.call(ADD, version, **addition(version, **changed))


@pytest.mark.parametrize("version", versions(ADD))
async def test_a_voter_is_added(version: int) -> None:
    """With its directory and the endpoint of its controller listener, whatever other listeners there are."""
    cluster = setup()
    make = request_builders(ADD, version)
    listeners = tuple(make.Listener(name=name, host=name.lower(), port=9) for name in ("OTHER", "ctrl"))
    response = await add(cluster, version, listeners=listeners)
    assert (response.error_code, response.error_message) == (0, None)
    asked = next(each for each in cluster.asked if isinstance(each, AddVoter))
    assert (asked.voter_id, asked.directory_id, asked.host, asked.port) == (4, DIRECTORY, "ctrl", 9)
    assert asked.timeout_ms == 5000


@pytest.mark.parametrize(("version", "asked", "waits"), [(0, None, True), (1, True, True), (1, False, False)])
async def test_an_addition_is_answered_at_the_commit_unless_it_asks_otherwise(
    version: int, asked: bool | None, waits: bool
) -> None:
    """AckWhenCommitted is of version 1 (KIP-1186)."""
    cluster = setup()
    changed = {} if asked is None else {"ack_when_committed": asked}
    assert (await add(cluster, version, **changed)).error_code == 0
    assert next(each for each in cluster.asked if isinstance(each, AddVoter)).until_committed == waits


@pytest.mark.parametrize(("timeout", "timeout_ms"), [(2**31 - 1, 30_000), (60_000, 30_000), (-1, 1_000)])
async def test_a_request_waits_no_longer_than_its_sender(timeout: int, timeout_ms: int) -> None:
    """The leader makes one change at a time: with a client's own timeout it would refuse others for days."""
    cluster = setup()
    assert (await add(cluster, 1, timeout=timeout)).error_code == 0
    assert next(each for each in cluster.asked if isinstance(each, AddVoter)).timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"cluster_id": "another"}, 104),
        ({"voter_directory_id": None}, 42),
        ({"voter_id": -1}, 42),
        ({"listeners": ()}, 42),
    ],
)
async def test_an_invalid_voter_is_refused(changed: dict[str, Any], code: int) -> None:
    """Before the controller is asked."""
    cluster = setup()
    response = await cluster.refused(ADD, 0, **addition(0, **changed))
    assert response.error_code == code and response.error_message
    assert not cluster.asked


async def test_the_leaders_refusal_is_passed_on() -> None:
    """With its sentence."""
    cluster = setup()
    cluster.answers[AddVoter] = DuplicateVoter("node 4 is a voter already")
    response = await cluster.refused(ADD, 1, **addition(1))
    assert (response.error_code, response.error_message) == (126, "node 4 is a voter already")


async def test_a_voter_is_removed() -> None:
    """By its id and its directory; one without a directory is invalid."""
    cluster = setup()
    response = await cluster.call(REMOVE, 0, cluster_id=None, voter_id=4, voter_directory_id=DIRECTORY)
    assert response.error_code == 0
    (asked,) = cluster.asked
    assert (asked.voter_id, asked.directory_id) == (4, DIRECTORY)
    response = await cluster.refused(REMOVE, 0, cluster_id=None, voter_id=4, voter_directory_id=None)
    assert response.error_code == 42
    response = await cluster.refused(REMOVE, 0, cluster_id="x", voter_id=4, voter_directory_id=DIRECTORY)
    assert response.error_code == 104


async def update(cluster: HandlerSetup, *, level: int = 1, **changed: Any) -> Any:
    """Send the request that a voter of kraft.version 0 to 1 sends to its leader."""
    make = request_builders(UPDATE, 0)
    lowest, highest = changed.pop("supports", (0, 1))
    cluster.image = msgspec.structs.replace(cluster.image, features={"kraft.version": level})
    fields = {
        "cluster_id": "the-cluster",
        "current_leader_epoch": 7,
        "voter_id": 4,
        "voter_directory_id": DIRECTORY,
        "listeners": (make.Listener(name="CTRL", host="four", port=9093),),
        "k_raft_version_feature": make.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    }
    return await cluster.call(UPDATE, 0, to_controller=True, **{**fields, **changed})


async def test_a_voter_is_moved() -> None:
    """The answer names the leader, as Kafka's does."""
    cluster = setup()
    response = await update(cluster)
    assert response.error_code == 0
    asked = cluster.asked[-1]
    assert isinstance(asked, UpdateVoter)
    assert (asked.voter_id, asked.directory_id, asked.host, asked.port) == (4, DIRECTORY, "four", 9093)
    leader = response.current_leader
    assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == (1, 7, "one", 9094)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"cluster_id": "another"}, 104),
        ({"current_leader_epoch": 6}, 74),
        ({"current_leader_epoch": 8}, 75),
        ({"voter_directory_id": None}, 42),
        ({"level": 0}, 35),
        ({"supports": (0, 0)}, 42),
        ({"listeners": ()}, 42),
    ],
)
async def test_an_invalid_move_is_refused(changed: dict[str, Any], code: int) -> None:
    """In the order of KafkaRaftClient and UpdateVoterHandler; the leader is not asked for the change."""
    cluster = setup()
    assert (await update(cluster, **changed)).error_code == code
    assert not any(isinstance(each, UpdateVoter) for each in cluster.asked)


async def test_only_the_leader_moves_a_voter() -> None:
    """Another controller names the leader."""
    cluster = setup()
    cluster.answers[DescribeQuorum] = QuorumDescription(2, 7, 90, (), addresses={2: ("two", 9095)})
    response = await update(cluster)
    assert response.error_code == 6
    assert (response.current_leader.leader_id, response.current_leader.host) == (2, "two")


async def test_only_controllers_move_voters() -> None:
    """Kafka's schema has "controller" alone among the listeners of UpdateRaftVoter."""
    assert find_api(UPDATE) is None and UPDATE not in served()
    assert find_api(UPDATE, of_controllers=True) is not None and UPDATE in served(of_controllers=True)


async def test_the_quorum_is_described_with_its_present_voters() -> None:
    """As the leader has them, not as the config does."""
    cluster = HandlerSetup(voters={1: ("h1", 9093)}, controller_listener_names=("CTRL",))
    cluster.answers[DescribeQuorum] = QuorumDescription(
        4, 7, 90, (QuorumReplica(4, 88, directory_id=DIRECTORY),), addresses={4: ("four", 9094)}
    )
    make = request_builders(QUORUM, 2)
    topic = make.TopicData(
        topic_name="__cluster_metadata", partitions=(make.PartitionData(partition_index=0),)
    )
    response = await cluster.call(QUORUM, 2, topics=(topic,))
    assert response.topics[0].partitions[0].current_voters[0].replica_directory_id == DIRECTORY
    assert [(each.node_id, each.listeners[0].host, each.listeners[0].port) for each in response.nodes] == [
        (4, "four", 9094)
    ]
