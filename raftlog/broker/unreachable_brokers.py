"""The brokers that seem unreachable from here, slightly before and after the metadata says so, for clients.

A client that loses a leader immediately requests the new leader, often before its election, and may not retry for a
second. So a leader is not named after its connection to us dropped, and a response about its partitions waits a while.

A fenced broker stays in the list of brokers for as long as a restart takes. librdkafka (since 2.10) drops its object
for a broker that is missing there, together with the partitions that the same response moves elsewhere. If that broker
was a group's coordinator, the client keeps the dropped object as the coordinator. It then waits for it for ever, also
once the broker is back. Apache Kafka lists no fenced broker, but fences only after nine seconds: most restarts are
over then.

This state is soft, and affects no decisions: a leader that was lost for long, or is back, is named again. Times are
loop seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import BrokerState, MetadataImage

LISTED_AFTER_FENCING_S: Final = 30.0
"""How long responses still list a fenced broker, in seconds. This is limited because a new client may choose that
broker. If its host is gone, aiokafka waits for half a minute, kafka-python for ten seconds."""


class UnreachableIds(NamedTuple):
    """`unnamed` brokers are not named as leaders. `listed` brokers are fenced, but still listed as brokers.

    `silent` brokers may lead what broker `asked` leads by its own metadata (see `controller_session`).
    """

    unnamed: frozenset[int]
    listed: frozenset[int]
    asked: int = NO_BROKER
    silent: frozenset[int] = frozenset()


NO_BROKERS: Final = UnreachableIds(frozenset(), frozenset())


class UnreachableBrokers:
    """`unnamed_s` is the maximum time that a leader stays unnamed because we lost its connection."""

    def __init__(self, now: Callable[[], float], *, unnamed_s: float) -> None:
        self._now = now
        self._unnamed_s = unnamed_s
        self._lost_at: dict[int, float] = {}
        self._fenced_at: dict[int, float] = {}

    def lost(self, broker_id: int) -> None:
        """Note that the connection to a leader ended unexpectedly."""
        self._lost_at.setdefault(broker_id, self._now())

    def found(self, broker_id: int) -> None:
        """Note that there is a connection to it again."""
        self._lost_at.pop(broker_id, None)

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Note the brokers that were fenced. A broker that registered again or was unfenced is present."""
        if new.brokers is old.brokers:
            return
        for broker_id, state in new.brokers.items():
            before = old.brokers.get(broker_id)
            if before is state:
                continue
            if state.fenced and before is not None and not before.fenced:
                self._fenced_at[broker_id] = self._now()
            if not state.fenced:
                self._fenced_at.pop(broker_id, None)
            if before is None or _is_another(before, state):
                self._lost_at.pop(broker_id, None)

    def gone(self) -> UnreachableIds:
        """Return the brokers that are unreachable at this moment."""
        if not self._lost_at and not self._fenced_at:
            return NO_BROKERS
        now = self._now()
        self._fenced_at = {
            each: at for each, at in self._fenced_at.items() if now - at < LISTED_AFTER_FENCING_S
        }
        unnamed = frozenset(each for each, at in self._lost_at.items() if now - at < self._unnamed_s)
        return UnreachableIds(unnamed, frozenset(self._fenced_at))


def _is_another(before: BrokerState, after: BrokerState) -> bool:
    return before.broker_epoch != after.broker_epoch or before.fenced != after.fenced
