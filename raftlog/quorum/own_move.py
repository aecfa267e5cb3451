"""A voter that has moved has the metadata name its new address (KIP-853, UpdateRaftVoter).

It asks each new leader at once, and again from time to time, until the newest set has the address that its config
names. It goes on until that set is committed, since a new leader may lack it. A leader cannot find out whether others
reach it there. So it hands the lead over, and asks its successor. If that refuses the address, it leads twice as long
the next time.
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
"""How often a voter asks, and how long it first leads before it hands over, in seconds."""

MAX_LEAD_S: Final = 640.0
"""How long it leads at most before it hands over, in seconds."""

log = get_logger("quorum")

Ask = Callable[[UpdateVoter], Awaitable[object]]
"""(request) → the reply. Raises KafkaError."""


class OwnMove:
    """Asks for the move of this voter. Each change of the leader starts `run` anew."""

    def __init__(self, quorum: Quorum, ask: Ask) -> None:
        self._quorum = quorum
        self._ask = ask
        self._leads_for_s = PERIOD_S
        self._refusal = ""

    async def run(self) -> None:
        """Look until the newest set has the address, and is committed."""
        if self._quorum.leading and len(self._quorum.voters) > 1:
            await asyncio.sleep(self._leads_for_s)  # moved voters that follow go first
        while self._quorum.may_have_moved:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Ask the leader, or hand over. A refusal is logged once."""
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
