"""`raftlog quorum`: what `add` and `replace` ask the controller, in which order, and how the lag is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from raftlog.base.types import encode_uuid
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.quorum import add, replace, status
from raftlog.cli.rows import Form
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders


class DescribedTarget:
    """A cluster with a leader that describes its voters: (id, end offset, fetched at, caught up at)."""

    def __init__(self, *voters: tuple[int, int, int, int]) -> None:
        names = ("replica_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp")
        replicas = [SimpleNamespace(**dict(zip(names, each, strict=True))) for each in voters]
        partition = SimpleNamespace(
            leader_id=1, leader_epoch=4, high_watermark=90, current_voters=replicas, observers=[]
        )
        self._answer = SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])

    servers = bootstrap = "localhost:9"
    file = None
    settings: Mapping[str, str] = {}

    def ask(self, *_: Any, **_more: Any) -> Any:
        return self._answer

    def describe_cluster(self) -> SimpleNamespace:
        """No broker has an HTTP API."""
        return SimpleNamespace(cluster_id="made up", brokers=())


def status_of(capsys: pytest.CaptureFixture[str], *voters: tuple[int, int, int, int]) -> dict[str, Any]:
    status(cast(Target, DescribedTarget(*voters)), form=Form.JSON)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


LEADER = (1, 100, 50_000, 50_000)


def test_the_lag_is_the_slowest_voters_and_unknown_if_a_voters_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A dead voter's lag grows; a voter that this leader never heard of may be the slowest."""
    found = status_of(capsys, LEADER, (2, 100, 49_900, 49_900), (3, 52, 31_510, 31_500))
    assert (found["max_voter_lag"], found["max_voter_lag_ms"]) == (48, 18_500)
    found = status_of(capsys, LEADER, (2, 100, 49_900, 49_900), (3, -1, -1, -1))
    assert (found["max_voter_lag"], found["max_voter_lag_ms"]) == (None, None)


def test_the_status_names_the_last_changes_of_the_voters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newest first, with the change under way and what it waits for.

    Neither is known without an HTTP API, or from that of release 0.3.0.
    """
    found = status_of(capsys, LEADER)
    assert (found["change_under_way"], found["last_changes"]) == (None, None)
    with monkeypatch.context() as former:
        former.setattr(HttpApi, "ask", lambda api, method, path: {"voters": []})
        found = status_of(capsys, LEADER)
    assert (found["change_under_way"], found["last_changes"]) == (None, None)
    changes = [{"at": f"day {day}", "message": f"ann added voter {day}"} for day in (9, 8, 7, 6)]
    change = {"adds": True, "node_id": 4, "waits_for": "node 4 has not caught up"}
    answer = {"change": change, "changes": changes}
    monkeypatch.setattr(HttpApi, "ask", lambda api, method, path: answer)
    found = status_of(capsys, LEADER)
    assert found["change_under_way"] == "add 4: node 4 has not caught up"
    assert found["last_changes"] == [f"day {day} ann added voter {day}" for day in (9, 8, 7)]


class AskedTarget:
    """A cluster that knows no listener, and takes each voter."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, key: ApiKey, build: Any, **_more: Any) -> Any:
        if key == ApiKey.ADD_RAFT_VOTER:
            self.asked.append(build(request_builders(key, 0)))
        return SimpleNamespace(nodes=())


def listener_of(controller: str) -> tuple[str, int]:
    target = AskedTarget()
    add(cast(Target, target), 4, controller=controller, directory_id=encode_uuid(UUID(int=44)))
    (listener,) = target.asked[0].listeners
    return listener.host, listener.port


def test_an_ipv6_address_has_brackets_only_on_the_line() -> None:
    """As everywhere in raftlog; in the metadata they would be part of a name that resolves to no address."""
    assert listener_of("[fd00::4]:9093") == ("fd00::4", 9093)
    assert listener_of("four.example:9093") == ("four.example", 9093)


@pytest.mark.parametrize("controller", ["four", "fd00::4:9093", "four:90930", "four..example:9093"])
def test_what_is_no_address_is_refused_before_the_cluster_is_asked(controller: str) -> None:
    """With the address in the refusal."""
    with pytest.raises(Failure, match="--controller: "):
        listener_of(controller)


class Voting:
    """A cluster with voters 1 to 3, and observers; directory of node n: n0, or as given."""

    def __init__(self, **observers: int) -> None:
        self.voters = {each: UUID(int=10 * each) for each in (1, 2, 3)}
        self.observers = {int(node[1:]): UUID(int=number) for node, number in observers.items()}
        self.refuses: ApiKey | None = None
        self.done: list[str] = []

    def ask(self, key: ApiKey, build: Any, **_more: Any) -> Any:
        if key == ApiKey.DESCRIBE_QUORUM:
            return self._describe()
        if key == self.refuses:
            raise Failure("no majority")
        message = build(request_builders(key, 0))
        node, directory = message.voter_id, message.voter_directory_id
        if key == ApiKey.ADD_RAFT_VOTER:
            assert node not in self.voters, "DUPLICATE_VOTER"
            self.voters[node] = directory
        else:
            assert self.voters.pop(node) == directory, "VOTER_NOT_FOUND"
        self.done.append(f"{'+' if key == ApiKey.ADD_RAFT_VOTER else '-'}{node}:{directory.int}")
        return None

    def _describe(self) -> Any:
        def replicas(found: dict[int, UUID]) -> list[Any]:
            fields = {"log_end_offset": 9, "last_fetch_timestamp": 1, "last_caught_up_timestamp": 1}
            return [
                SimpleNamespace(replica_id=node, replica_directory_id=directory, **fields)
                for node, directory in found.items()
            ]

        partition = SimpleNamespace(
            leader_id=1,
            leader_epoch=1,
            high_watermark=9,
            current_voters=replicas(self.voters),
            observers=replicas(self.observers),
        )
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])], nodes=())

    def replace(self, old: str, new: int, directory_id: str | None = None) -> None:
        replace(cast(Target, self), old, new, controller="four.example:9093", directory_id=directory_id)


def test_a_voter_is_replaced_by_another_node() -> None:
    """The new voter first, so that a majority of the old number remains; a second call finds it done."""
    cluster = Voting(n4=40)
    cluster.replace("2", 4)
    assert cluster.done == ["+4:40", "-2:20"]
    cluster.replace("2", 4)
    assert cluster.done == ["+4:40", "-2:20"]


@pytest.mark.parametrize(
    ("refused", "words"), [(80, "the voters are as before"), (81, "one of two steps is done")]
)
def test_a_replacement_that_fails_is_repeated(refused: int, words: str) -> None:
    """The failure says how far it came, and the same command goes on from there."""
    cluster = Voting(n4=40)
    cluster.refuses = ApiKey(refused)
    with pytest.raises(Failure) as found:
        cluster.replace("2", 4)
    assert words in found.value.details[-1]
    cluster.refuses = None
    cluster.replace("2", 4)
    assert cluster.done == ["+4:40", "-2:20"]


def test_a_node_with_a_new_disk_replaces_itself() -> None:
    """Its former directory goes first. Without the node and its new disk, the voters stay as they are."""
    cluster = Voting()
    with pytest.raises(Failure, match=r"^voter 2: node 2 "):
        cluster.replace("2", 2)
    assert cluster.done == []
    cluster = Voting(n2=25)
    cluster.replace("2", 2)
    assert cluster.done == ["-2:20", "+2:25"]


def test_a_replacement_may_name_the_directories() -> None:
    """A voter that has another directory than the named one is not removed."""
    cluster = Voting(n4=40)
    cluster.replace(f"2:{encode_uuid(UUID(int=99))}", 4, encode_uuid(UUID(int=41)))
    assert cluster.done == ["+4:41"]
    with pytest.raises(Failure, match="neither a node's id"):
        cluster.replace("two", 4)
