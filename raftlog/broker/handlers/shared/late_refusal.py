"""A failed login is logged immediately, and reported to the client late, so that guessing is slow."""

from __future__ import annotations

import asyncio

from raftlog.broker.context import BrokerContext, ClientConnection


async def hold_up(broker: BrokerContext, connection: ClientConnection) -> None:
    """Log the failure immediately, since a guesser may not wait for the response. Then wait to delay the response."""
    connection.report_failed_login()
    await asyncio.sleep(broker.config.connection_failed_authentication_delay_ms / 1000)
