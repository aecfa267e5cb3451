"""Registers the new address of a voter whose config has changed (KIP-853, UpdateRaftVoter).

The voter sends UpdateRaftVoter to each new leader at once, then periodically. It stops when a committed set of voters
has its configured address. It has to repeat the request, since a new leader may lack an uncommitted set.

A leader cannot check whether other voters reach it at the new address. So it transfers its leadership and sends the
request to its successor. If the successor refuses the address, the voter leads twice as long the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.config.network import format_address
from raftlog.base.errors import KafkaError, NotController
from raftlog.base.log import get_logger
from raftlog.metadata.controller_api import UpdateVoter

if TYPE_CHECKING:
    from raftlog.quorum.quorum import Quorum

PERIOD_S: Final = 5.0
"""Seconds between requests, and until a leader first transfers its leadership."""

MAX_LEAD_S: Final = 640.0
"""Most seconds until a leader transfers its leadership."""

log = get_logger("quorum")

Ask = Callable[[UpdateVoter], Awaitable[object]]
"""Sends a request to the leader. Raises KafkaError."""


class OwnMove:
    """Requests the change of this voter's address. Each change of the leader starts `run` again."""

    def __init__(self, quorum: Quorum, ask: Ask) -> None:
        self._quorum = quorum
        self._ask = ask
        self._leads_for_s = PERIOD_S
        self._refusal = ""

    async def run(self) -> None:
        """Repeat `look` until the newest set has the address and is committed."""
        if self._quorum.leading and len(self._quorum.voters) > 1:
            await asyncio.sleep(self._leads_for_s)  # followers with new addresses go first
        while self._quorum.may_have_moved:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Send the request to the leader, or transfer the leadership. Log a refusal once."""
        quorum, moved = self._quorum, self._quorum.own_move
        if moved is None:
            return
        if quorum.leading and len(quorum.voters) > 1:
            self._leads_for_s = min(MAX_LEAD_S, 2 * self._leads_for_s)
            await quorum.transfer_leadership()
            return
        by = f"node {moved.voter_id}"
        asked = UpdateVoter(moved.voter_id, moved.directory_id, moved.host, moved.port, by=by)
        try:
            await self._ask(asked)
        except NotController:
            return  # the next leader is asked
        except KafkaError as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                address = format_address(moved.host, moved.port)
                log.warning("voter_address_kept", node_id=moved.voter_id, address=address, reason=str(error))
