"""The judge on a real cluster, with harm planted by hand: each is seen, and a calm cluster passes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from raftlog.cli.attack import ProcessGround
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.attacks import facts
from raftlog_chaos.attacks.session import AttackSession
from raftlog_chaos.attacks.target import ATTACKER, request
from raftlog_chaos.attacks.verdict import Limits, Outcome
from tests.chaos.attacks.kit import an_attack
from tests.clients.stock import until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

QUICK = Limits(settle_s=3.0, still_s=6.0)
"""Deliberately kept or lost records are not waited for; all else is as in a real run."""


class Sessions:
    """The session of this module, and the next one after a harm that ended it."""

    def __init__(self) -> None:
        self._open: AttackSession | None = None

    def open(self) -> AttackSession:
        """Memory is not among the harms here, so the nodes need not serve every API before."""
        if self._open is None:
            self._open = AttackSession(ProcessGround("usual"), QUICK)
            self._open.open(warm=False)
        return self._open

    def end(self) -> None:
        if self._open is not None:
            self._open.abandon()
        self._open = None


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    found = Sessions()
    yield found
    found.end()


@pytest.fixture
def session(sessions: Sessions) -> AttackSession:
    """The session for all harms that leave its nodes running."""
    return sessions.open()


@pytest.fixture
def last_session(sessions: Sessions) -> Iterator[AttackSession]:
    """The same, for a harm that ends it."""
    yield sessions.open()
    sessions.end()


def struck(session: AttackSession, harm: Callable[[], object]) -> Outcome:
    def run() -> str:
        harm()
        return ""

    return session.judge(an_attack(), run)


def quorum_leader(session: AttackSession) -> int:
    """Return the node that fences brokers."""
    return int(json.loads(facts.ask(session.target.nodes[1], "/v1/quorum"))["leader_id"])


def said(outcome: Outcome) -> str:
    return "\n".join(outcome.faults)


def test_a_calm_cluster_passes(session: AttackSession):
    """Bystanders have worked meanwhile, so that it means something."""

    def wait() -> None:
        began = time.monotonic()
        until(lambda: session.acknowledged(began) > 100, "a hundred records are acknowledged")

    outcome = struck(session, wait)
    assert said(outcome) == ""
    assert outcome.seen.sends.count > 100 and outcome.seen.reads.count > 100


def test_connections_and_files_that_a_node_keeps_are_seen(session: AttackSession):
    """They are still open when the attack is over; once closed, the same cluster passes."""
    kept: list[socket.socket] = []

    def leave() -> None:
        for _ in range(QUICK.files + 8):
            kept.append(
                socket.create_connection(session.target.address("kafka"), source_address=(ATTACKER, 0))
            )
            kept[-1].sendall(b"\0\0\0\xff")

    outcome = struck(session, leave)
    for each in kept:
        each.close()
    assert f"node 1 holds {len(kept)} connections of the attacker at its kafka port" in said(outcome)
    assert "more files open" in said(outcome)
    assert said(struck(session, lambda: None)) == ""


def test_a_node_that_stands_still_is_seen(session: AttackSession):
    """It is fenced, so soon that bystanders hardly wait. (The quorum's leader would be deposed instead.)"""
    node = min(session.target.nodes.keys() - {quorum_leader(session)})
    pid = session.ground.pid(node)

    others = {each: doors for each, doors in session.target.nodes.items() if each != node}

    def is_fenced() -> bool:
        why = json.loads(facts.ask(next(iter(others.values())), f"/v1/brokers/{node}/why"))
        return bool(facts.fencings_in(why, offset))

    def pause() -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            until(is_fenced, f"node {node} is fenced")
        finally:
            os.kill(pid, signal.SIGCONT)

    offset = facts.metadata_offset(others)
    assert f"broker {node} was fenced" in said(struck(session, pause))


def test_lost_records_and_a_node_that_ended_are_seen(last_session: AttackSession):
    """Acknowledged records are deleted by hand, then a node is killed; the records are missed at the end."""
    session = last_session

    def harm() -> None:
        make = request_builders(21, 2)
        partition = make.DeleteRecordsPartition(partition_index=0, offset=-1)
        topic = make.DeleteRecordsTopic(name=session.target.bystanders, partitions=(partition,))
        for node in session.target.nodes:  # whichever leads it now
            with session.target.line("kafka", node) as line:
                line.ask(request(21, 2, "DeleteRecordsRequest", topics=(topic,), timeout=5000))
        os.kill(session.ground.pid(3), signal.SIGKILL)

    assert "node 3 ended" in said(struck(session, harm))
    closing = session.close()
    assert any(f"{session.target.bystanders}-0" in fault for fault in closing.lost), closing
