"""A login that failed is told to the operator at once, and to the client late, so that guessing is slow."""

from __future__ import annotations

import asyncio

from raftlog.broker.context import BrokerContext, ClientConnection


async def hold_up(broker: BrokerContext, connection: ClientConnection) -> None:
    """Tell the operator at once, since a guesser may not wait for the answer; then wait, so that the answer is late."""
    connection.tell_failed_login()
    await asyncio.sleep(broker.config.connection_failed_authentication_delay_ms / 1000)
