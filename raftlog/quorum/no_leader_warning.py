"""The log line about a missing leader of the quorum: which voters are not reached, and why no leader is elected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.log import get_logger

if TYPE_CHECKING:
    from raftlog.quorum.quorum import Quorum

LEADERLESS_S: Final = 5.0
"""Seconds without a leader before a log line: an election takes less than a second, so voters are missing."""

log = get_logger("quorum")


class NoLeaderWarning:
    """Logs once that the node has known no leader for LEADERLESS_S, with the voters it looks for."""

    def __init__(self, voters: Callable[[], Mapping[int, tuple[str, int]]], quorum: Quorum | None) -> None:
        self._voters = voters
        self._quorum = quorum
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, leader_id: int | None) -> None:
        """Note the leader."""
        if leader_id is not None:
            self.close()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LEADERLESS_S, self._log)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _log(self) -> None:
        addresses = {each: f"{each}@{host}:{port}" for each, (host, port) in sorted(self._voters().items())}
        more: dict[str, Any] = {}
        if (quorum := self._quorum) is not None:
            more["unreached"] = [text for each, text in addresses.items() if not quorum.linked(each)]
            if (reason := quorum.why_no_leader()) is not None:
                more["reason"] = reason
        log.warning(
            "quorum_leader_not_found",
            leaderless_s=LEADERLESS_S,
            voters=list(addresses.values()),
            votes_needed=len(addresses) // 2 + 1,
            **more,
        )
