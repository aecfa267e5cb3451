"""A client that asks the broker that it is connected to, as librdkafka, Java and KafkaJS do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog_chaos.workloads.raw_client import Client, RawConnection

PATIENCE_S = 60.0
"""It keeps any connection that answers within this, virtual seconds."""


class LoyalClient(Client):
    """Dials another broker only for a partition that it leads, or while there is no connection at all.

    Begins with the first of `bootstrap`. It prefers the connection that it used last.
    """

    def __init__(self, name: str, bootstrap: Sequence[tuple[str, int]]) -> None:
        super().__init__(name, bootstrap, timeout_s=PATIENCE_S)
        self._turn = -1
        self._used: dict[tuple[str, int], None] = {}
        """Addresses, ordered by last use."""

    async def _wire(self, address: tuple[str, int]) -> RawConnection:
        self._used.pop(address, None)
        self._used[address] = None
        return await super()._wire(address)

    async def ask_any(self, api_key: int, message: Any) -> Any:
        """Ask on the most recently used connection; without any, dial the bootstrap brokers in turn."""
        for address in reversed(self._used):
            if (wire := self._wires.get(address)) is not None and not wire.closed:
                return await self.ask(address, api_key, message)
        return await super().ask_any(api_key, message)
