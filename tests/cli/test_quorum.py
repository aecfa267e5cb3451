"""`raftlog quorum`: what the controller is asked for a voter's address, and how the lag of voters is shown."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from raftlog.base.types import encode_uuid
from raftlog.cli.exits import Failure
from raftlog.cli.quorum import add, status
from raftlog.cli.rows import Form
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders


class DescribedTarget:
    """A cluster whose leader describes its voters: (id, end offset, fetched at, caught up at)."""

    def __init__(self, *voters: tuple[int, int, int, int]) -> None:
        names = ("replica_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp")
        replicas = [SimpleNamespace(**dict(zip(names, each, strict=True))) for each in voters]
        partition = SimpleNamespace(
            leader_id=1, leader_epoch=4, high_watermark=90, current_voters=replicas, observers=[]
        )
        self._answer = SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])

    def ask(self, *_: Any, **_more: Any) -> Any:
        return self._answer


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
