"""Bugs of a leader that is cut off: its responses, and whether its clients get away."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker import metadata_view
from raftlog.broker.controller_session import ControllerSession
from raftlog.broker.network.connection import Connection
from raftlog.broker.network.server import BrokerServer
from raftlog_chaos.scenarios.cut_off import cut_off
from tests.planted.plant import Plant


def never_know(patch: pytest.MonkeyPatch) -> None:
    """A broker takes itself for the leader until it learns otherwise, as Apache Kafka's do."""
    patch.setattr(ControllerSession, "check", lambda session, late_s=0.0: None)


def keep_connections(patch: pytest.MonkeyPatch) -> None:
    """Clients learn that there is no leader, but stay connected, and ask the same broker again."""
    finish = Connection.finish

    def finish_at_the_end(connection: Connection, *, answers_all: bool = False) -> None:
        if not answers_all:
            finish(connection)

    patch.setattr(Connection, "finish", finish_at_the_end)
    patch.setattr(BrokerServer, "send_clients_elsewhere", lambda server: None)


def name_itself(patch: pytest.MonkeyPatch) -> None:
    """It refuses to serve, and says that it leads, when it is asked; connections stay."""
    keep_connections(patch)
    patch.setattr(metadata_view, "may_be_led_elsewhere", lambda *_: False)


def trust_silent_followers(patch: pytest.MonkeyPatch) -> None:
    """Followers that fetched some time ago count as fetching."""
    look = ControllerSession.check

    def look_at_none(session: Any, late_s: float = 0.0) -> None:
        session.fetched_at = dict.fromkeys(session.fetched_at, session._now())
        look(session, late_s)

    patch.setattr(ControllerSession, "check", look_at_none)


PLANTS = [
    Plant("cut-off-not-known", "zombie leader keeps its clients", cut_off, never_know),
    Plant("cut-off-keeps-connections", "zombie leader keeps its clients", cut_off, keep_connections),
    Plant("cut-off-names-itself", "zombie leader keeps its clients", cut_off, name_itself),
    Plant("silent-followers-trusted", "zombie leader keeps its clients", cut_off, trust_silent_followers),
]
