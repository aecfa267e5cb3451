"""`raftlog quorum add`: what the controller is asked for a voter's address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from raftlog.base.types import encode_uuid
from raftlog.cli.exits import Failure
from raftlog.cli.quorum import add
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders


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
