"""A node whose vote follows its process.roles: controller.quorum.auto.join.enable (KIP-1186).

From time to time a controller that is no voter looks at the newest set of its log. If the set names its id with another
directory, as after the loss of a disk, it asks the leader to remove that one. Then it asks to be added.

A node that is no controller any more asks to be removed, which Kafka leaves to the operator: its vote is lost anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.config import NodeConfig
from raftlog.base.config.network import EVERY_INTERFACE, find_listener
from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.metadata.controller_api import AddVoter, RemoveVoter

if TYPE_CHECKING:
    from raftlog.quorum.observer import Observer
    from raftlog.quorum.quorum import Quorum

PERIOD_S: Final = 5.0
"""How often a node looks, in seconds."""

ASK_S: Final = 30.0
"""How long the leader may take to catch it up, in seconds."""

log = get_logger("quorum")

Ask = Callable[[AddVoter | RemoveVoter, float], Awaitable[object]]
"""(request, seconds) → the reply. Raises KafkaError."""


def own_address(config: NodeConfig) -> tuple[str, int] | None:
    """Return where other nodes reach this controller, as its config says; None, and a warning, if it does not say."""
    own = find_listener(config.listeners, config.controller_listener_names)
    assert own is not None, "a controller has one"
    hosts = [own.host, *(each.host for each in config.advertised_listeners)]
    host = next((each for each in hosts if each not in EVERY_INTERFACE), None)
    if config.node_id in config.voters:
        return config.voters[config.node_id]
    if host is None:
        reason = (
            "its controller listener is bound to every interface: give it the host that others connect to"
        )
        log.warning("voter_not_joined", node_id=config.node_id, reason=reason)
        return None
    return host, own.port


class _AutoRequests:
    """Looks until its task is cancelled, and asks for the next step."""

    refused_event: str
    node_id: int

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._refusal = ""

    def next_request(self) -> AddVoter | RemoveVoter | None:
        """Return the next step, or None."""
        raise NotImplementedError

    async def run(self) -> None:
        """Look for ever, once a period."""
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Ask for the next step, if any. A refusal is logged once, and tried again with the next look."""
        request = self.next_request()
        if request is None:
            return
        try:
            await self._ask(request, ASK_S)
        except KafkaError as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                log.warning(self.refused_event, node_id=self.node_id, reason=str(error))


class AutoJoin(_AutoRequests):
    """Has a controller added. `address`: of its controller listener."""

    refused_event = "voter_not_joined"

    def __init__(self, quorum: Quorum, address: tuple[str, int], ask: Ask) -> None:
        super().__init__(ask)
        self.node_id = quorum.node_id
        self._quorum = quorum
        self._address = address

    def next_request(self) -> AddVoter | RemoveVoter | None:
        """Return the next step, None if there is none: it votes, is not linked to a leader, or the voters are static.

        A set of its log that is too old leads to a request that the leader refuses.
        """
        quorum = self._quorum
        leader_id = quorum.leader_id
        if quorum.has_static_voters or leader_id is None or not quorum.linked(leader_id):
            return None
        voters, own = quorum.driver.voters, quorum.driver.directory_id
        if voters.is_voter:
            return None
        former, by = voters.recorded_directory(quorum.node_id), f"node {quorum.node_id}"
        if former.int:
            return RemoveVoter(quorum.node_id, former, round(ASK_S * 1000), by=by)
        # As in Kafka it does not wait for the commit: the next look sees whether the set has it.
        return AddVoter(
            quorum.node_id, own, *self._address, round(ASK_S * 1000), until_committed=False, by=by
        )


class AutoLeave(_AutoRequests):
    """Has a node removed that was a controller. Another node with its id has another directory, and stays."""

    refused_event = "voter_not_removed"

    def __init__(self, observer: Observer, ask: Ask) -> None:
        super().__init__(ask)
        self.node_id = observer.node_id
        self._observer = observer

    def next_request(self) -> RemoveVoter | None:
        """Return the removal of this node while the newest set names its id and directory, else None."""
        record, own = self._observer.newest_set, self._observer.identity.directory_id
        found = None if record is None else record.find(self.node_id)
        if found is None or found.directory_id != own:
            return None
        return RemoveVoter(self.node_id, own, round(ASK_S * 1000), by=f"node {self.node_id}")
