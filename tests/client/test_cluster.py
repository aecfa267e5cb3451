"""raftlog.client.cluster: which requests are repeated, and what is raised when no broker answers."""

from __future__ import annotations

import os
import socket
from collections import Counter
from errno import ECONNREFUSED
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
    TopicAlreadyExists,
)
from raftlog.client.cluster import Cluster
from raftlog.client.connection import Dialer
from raftlog.client.errors import NotConnected, Refused, Unreachable
from raftlog.client.fetching import list_offsets
from raftlog.client.metadata import LATEST
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from tests.client.scripted_broker import SILENT, ScriptedBroker
from tests.kit.clock import Clock
from tests.kit.waits import PATIENCE_S


def lost_once(answer: Any) -> Any:
    """Return an answer that closes the first connection instead."""
    waiting = [None]

    def answer_later(api_key: int, version: int, request: Any) -> Any:
        return waiting.pop() if waiting else answer(api_key, version, request)

    return answer_later


def nothing(api_key: int, version: int, _request: Any) -> Any:
    return build_response(api_key, version)


def test_a_request_that_only_reads_is_repeated_after_a_lost_response() -> None:
    """ListGroups twice; the second response counts."""
    with ScriptedBroker(lost_once(nothing)) as broker, broker.cluster() as cluster:
        cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())
        assert broker.asked == [ApiKey.LIST_GROUPS] * 2


def test_a_request_that_may_have_been_carried_out_is_not_repeated() -> None:
    """A topic that is created twice would be reported as existing already."""
    with ScriptedBroker(lost_once(nothing)) as broker, broker.cluster() as cluster:
        with pytest.raises(Unreachable) as lost:
            cluster.ask(ApiKey.CREATE_TOPICS, lambda make: make.CreateTopicsRequest(topics=()))
        assert broker.asked == [ApiKey.CREATE_TOPICS] and not isinstance(lost.value, NotConnected)


def test_the_first_server_that_answers_is_asked() -> None:
    """A list of servers may name some that are down."""
    with ScriptedBroker(nothing) as broker:
        servers = [("127.0.0.1", closed_port()), (broker.host, broker.port)]
        with Cluster(servers, Dialer(), timeout_s=5) as cluster:
            assert list(cluster.metadata().brokers) == [1]


def test_a_server_that_hangs_costs_seconds_and_not_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections and sends no bytes. Later rounds are longer, for a cluster that is slow as a whole."""
    waited: list[float] = []
    clock = Clock()

    class Hanging(Dialer):
        def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
            if host == "hangs" or len(waited) < 3:
                waited.append(timeout_s)
                clock.advance(timeout_s)
                raise TimeoutError("timed out")
            return super().connect(host, port, timeout_s)

    time = SimpleNamespace(monotonic=clock, sleep=lambda _seconds: None)
    monkeypatch.setattr("raftlog.client.cluster.time", time)
    with ScriptedBroker(nothing) as broker:
        servers = [("hangs", 1), (broker.host, broker.port)]
        with Cluster(servers, Hanging(), timeout_s=60) as cluster:
            cluster.metadata()
    assert waited == [2.0, 2.0, 4.0]


def test_a_broker_that_stops_answering_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """For requests that may be repeated, where any broker will do: it is not asked again before the others."""
    monkeypatch.setattr("raftlog.client.cluster.ANSWER_S", 0.05)
    with ScriptedBroker(lambda *_: SILENT) as hangs, ScriptedBroker(nothing) as broker:
        servers = [(each.host, each.port) for each in (hangs, broker)]
        with Cluster(servers, Dialer(), timeout_s=PATIENCE_S) as cluster:
            cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())
    assert (hangs.asked, broker.asked) == ([ApiKey.LIST_GROUPS], [ApiKey.LIST_GROUPS])


def test_a_leader_that_stops_answering_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker may lead the partition by then; the whole timeout is not spent on the first."""
    monkeypatch.setattr("raftlog.client.cluster.ANSWER_S", 0.05)
    silent = [SILENT]

    def answer(_api_key: int, version: int, _request: Any) -> Any:
        make = response_builders(ApiKey.LIST_OFFSETS, version)
        part = make.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=7)
        topic = make.ListOffsetsTopicResponse(name="t", partitions=(part,))
        return silent.pop() if silent else make.ListOffsetsResponse(topics=(topic,))

    with ScriptedBroker(answer, topics={"t": 1}) as broker, broker.cluster() as cluster:
        assert list_offsets(cluster, [("t", 0)], LATEST) == {("t", 0): 7}
        assert broker.asked == [ApiKey.LIST_OFFSETS] * 2


def test_a_coordinator_that_stops_answering_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group may be elsewhere by then; the whole timeout is not spent on the first."""
    monkeypatch.setattr("raftlog.client.cluster.ANSWER_S", 0.05)
    silent = [SILENT]

    def answer(api_key: int, version: int, _request: Any) -> Any:
        if api_key == ApiKey.FIND_COORDINATOR:
            make = response_builders(api_key, version)
            return make.FindCoordinatorResponse(node_id=1, host=broker.host, port=broker.port)
        return silent.pop() if silent else build_response(api_key, version)

    with ScriptedBroker(answer) as broker, broker.cluster() as cluster:
        cluster.ask_coordinator(
            "g", ApiKey.DESCRIBE_GROUPS, lambda make: make.DescribeGroupsRequest(groups=("g",))
        )
        assert broker.asked == [ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS] * 2


def test_no_server_at_all_is_an_error_with_the_last_reason() -> None:
    """Within the timeout."""
    with (
        Cluster([("127.0.0.1", closed_port())], Dialer(), timeout_s=0.2) as cluster,
        pytest.raises(NotConnected, match=os.strerror(ECONNREFUSED)),
    ):
        cluster.metadata()


def test_a_listener_that_closes_connections_is_asked_once_why() -> None:
    """A client without security settings may have come to a listener that requires some."""
    diagnoses = []

    reason = "its listener requires a login"

    def diagnose() -> str:
        diagnoses.append(1)
        return reason

    with ScriptedBroker(lambda *_: None) as broker:
        servers = [(broker.host, broker.port)]
        with (
            Cluster(servers, Dialer(), timeout_s=5, diagnose=diagnose) as cluster,
            pytest.raises(Refused, match=reason),
        ):
            cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())
    assert diagnoses == [1]


@pytest.mark.parametrize("moved", [NotCoordinator, CoordinatorLoadInProgress])
def test_a_coordinator_that_moved_is_looked_for_again(moved: Any) -> None:
    """Its answer in a part of the response counts as well."""
    codes = [moved.code, 0]

    def answer(api_key: int, version: int, _request: Any) -> Any:
        make = response_builders(api_key, version)
        if api_key == ApiKey.FIND_COORDINATOR:
            return make.FindCoordinatorResponse(node_id=1, host=broker.host, port=broker.port)
        result = make.DeletableGroupResult(group_id="g", error_code=codes.pop(0))
        return make.DeleteGroupsResponse(results=(result,))

    with ScriptedBroker(answer) as broker, broker.cluster() as cluster:
        cluster.ask_coordinator(
            "g",
            ApiKey.DELETE_GROUPS,
            lambda make: make.DeleteGroupsRequest(groups_names=("g",)),
            errors=lambda found: [each.error_code for each in found.results],
        )
        assert broker.asked == [ApiKey.FIND_COORDINATOR, ApiKey.DELETE_GROUPS] * 2


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, CoordinatorNotAvailable, RequestTimedOut])
@pytest.mark.parametrize("of_a_group", [False, True])
def test_a_retriable_error_of_the_whole_response_is_retried(error: Any, *, of_a_group: bool) -> None:
    """By any broker's requests and a coordinator's alike, the search for the coordinator too."""
    codes = {key: [0, error.code] for key in (ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS, ApiKey.HEARTBEAT)}

    def answer(api_key: int, version: int, _request: Any) -> Any:
        code = codes[ApiKey(api_key)].pop() if codes[ApiKey(api_key)] else 0
        if api_key == ApiKey.FIND_COORDINATOR:
            make = response_builders(api_key, version)
            return make.FindCoordinatorResponse(
                error_code=code, node_id=1, host=broker.host, port=broker.port
            )
        return build_response(api_key, version, error_code=code)

    with ScriptedBroker(answer) as broker, broker.cluster() as cluster:
        if of_a_group:
            cluster.ask_coordinator(
                "g",
                ApiKey.HEARTBEAT,
                lambda make: make.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            )
        else:
            cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())
    asked = Counter(broker.asked)
    assert asked == (
        {ApiKey.FIND_COORDINATOR: 3, ApiKey.HEARTBEAT: 2} if of_a_group else {ApiKey.LIST_GROUPS: 2}
    )


def test_a_retriable_error_is_raised_at_the_end_of_the_timeout() -> None:
    """So a cluster that never loads its coordinators is reported."""

    def answer(api_key: int, version: int, _request: Any) -> Any:
        return build_response(api_key, version, error_code=CoordinatorLoadInProgress.code)

    with (
        ScriptedBroker(answer) as broker,
        broker.cluster(timeout_s=0.3) as cluster,
        pytest.raises(CoordinatorLoadInProgress),
    ):
        cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())


def test_an_error_of_the_whole_response_is_raised() -> None:
    """With the broker's message, if there is any."""

    def answer(api_key: int, version: int, _request: Any) -> Any:
        return build_response(api_key, version, error_code=TopicAlreadyExists.code)

    with ScriptedBroker(answer) as broker, broker.cluster() as cluster, pytest.raises(TopicAlreadyExists):
        cluster.ask(ApiKey.LIST_GROUPS, lambda make: make.ListGroupsRequest())


def closed_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
