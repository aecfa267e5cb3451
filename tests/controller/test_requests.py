"""Claims about the causes that batches carry: the controller says why it decided, and the next controller too."""

from __future__ import annotations

import msgspec

from raftlog.controller.admin_requests import ADMIN_REQUESTS
from raftlog.controller.requests import REQUESTS, causes_of
from raftlog.metadata.broker_requests import AllocateProducerIds, AlterPartition, BrokerHeartbeat
from raftlog.metadata.causes import CAUSE_SENTENCES, Cause, describe_cause
from raftlog.metadata.controller_api import (
    PREFERRED,
    UNCLEAN,
    AlterScramCredentials,
    CreateAcls,
    CreateTopics,
    DecommissionBroker,
    DeleteAcls,
    DrainBroker,
    ElectLeaders,
    UnregisterBroker,
)
from raftlog.metadata.metadata_records import Batch, ControllerElected, decode_batch
from tests.controller.controller_cluster import ControllerCluster


def batches(cluster: ControllerCluster) -> list[Batch]:
    return [decode_batch(each) for each in cluster.journal]


def test_requests_are_their_own_reasons() -> None:
    """A heartbeat has its reports or wishes as the reason; a request for ids alone has no reason worth a line."""
    told = {
        BrokerHeartbeat(1, 2, 3): "caught_up",
        BrokerHeartbeat(1, 2, 3, want_shutdown=True): "shutdown",
        BrokerHeartbeat(1, 2, 3, want_fence=True): "asked_to_leave",
        AlterPartition(1, 2, ()): "proposed",
        DrainBroker(1): "drained",
        DrainBroker(1, draining=False): "undrained",
        DecommissionBroker(1): "decommissioned",
        DecommissionBroker(1, ended=True): "recommissioned",
    }
    for request, kind in told.items():
        assert causes_of(request) == (Cause(kind, 1),)
        assert kind in CAUSE_SENTENCES
    assert causes_of(ElectLeaders(PREFERRED)) == (Cause("preferred_asked"),)
    assert causes_of(ElectLeaders(UNCLEAN)) == (Cause("unclean_asked"),)
    assert causes_of(AllocateProducerIds(1, 2)) == ()


def test_cause_has_the_principal_if_it_is_known() -> None:
    """And a cause that an older controller wrote, which did not know, is read as before."""
    (cause,) = causes_of(CreateTopics((), by="User:{alice}"))
    assert describe_cause(cause) == "User:{alice} created the topic"
    old = msgspec.msgpack.encode(["topics_created", -1, ""])
    assert describe_cause(msgspec.msgpack.decode(old, type=Cause)) == "an unknown user created the topic"


def test_every_cause_has_a_sentence() -> None:
    """Changes by clients are described in words, whatever they are."""
    rows = (*REQUESTS.values(), *ADMIN_REQUESTS.values())
    assert {row.cause for row in rows if isinstance(row.cause, str)} <= CAUSE_SENTENCES.keys()
    for kind in (CreateTopics, CreateAcls, DeleteAcls, AlterScramCredentials):
        (cause,) = causes_of(kind((), by="User:bob"))
        assert describe_cause(cause).startswith("User:bob ")


def test_only_requests_about_another_broker_name_a_broker_that_does_not_send_them() -> None:
    """A new request with a broker's id is the sender's own, unless its row says otherwise."""
    rows = {**REQUESTS, **ADMIN_REQUESTS}
    assert {each for each, row in rows.items() if row.about_another} == {
        UnregisterBroker,
        DrainBroker,
        DecommissionBroker,
    }


def test_every_batch_of_a_failover_says_why() -> None:
    """Registered, in service, taken for dead: only the election of a controller needs no reason."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", (1, 2, 3))
    cluster.active.peer_lost(1, cluster.now)
    cluster.active.on_probe_result(1, "refused", cluster.now)
    said = batches(cluster)
    assert said[-1].causes == (Cause("taken_for_dead", 1, "connection refused"),)
    silent = [each for each in said if not each.causes and not isinstance(each.records[0], ControllerElected)]
    assert {type(record).__name__ for each in silent for record in each.records} <= {
        "ClusterNamed",
        "FeatureChanged",
    }
    assert {cause.kind for each in said for cause in each.causes} >= {"registered", "caught_up"}
