"""The responses of one connection, in the order of its requests.

Ordering law: responses leave a connection in the order of its requests, however they become ready. Only Produce
requests overlap, and some requests of brokers (`Api.overlaps`). Any other open request delays later requests, as all
requests do in Kafka's brokers.

Responses that become ready while frames are handled leave together, in one write. At most `MAX_OPEN_SLOTS` wait, and
one response beyond `ANSWERS_HIGH_BYTES`; the connection stops handling frames there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Buffer
from raftlog.base.memory import Account
from raftlog.broker.network.outbox import Outbox

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

MAX_OPEN_SLOTS: Final = 128
"""The maximum number of requests of a connection without a written response."""

ANSWERS_HIGH_BYTES: Final = 1024 * 1024
"""The size of waiting response bytes at which a connection stops handling requests."""


class Slot:
    """One response that is not ready yet, or waits for earlier responses."""

    __slots__ = ("api_key", "arrived_at", "buffers", "connection", "overlaps")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.buffers: Sequence[Buffer] | None = None
        self.overlaps = False
        """Whether later requests may be handled while it is open."""
        self.api_key = 0
        self.arrived_at = 0.0
        """Set by the responses that hold it, for its latency."""

    def answer(self, buffers: Sequence[Buffer]) -> None:
        """Set the whole response frame, once; empty if there is no response."""
        assert self.buffers is None, "a response slot is answered once"
        self.buffers = buffers
        self.connection.responses.answered(self)

    def complete_now(self) -> None:
        """Complete now if this only waits for more data, since another request has arrived behind it."""

    def abandoned(self) -> None:
        """Stop waiting: the connection is closed, and the response will not be read."""


class ReadySlot(Slot):
    """A response that was ready immediately but is not the first in line."""

    __slots__ = ()

    def __init__(self, connection: Connection, buffers: Sequence[Buffer]) -> None:
        self.connection = connection
        self.buffers = buffers
        self.overlaps = True


class Responses:
    """The open requests of a connection and its responses, until its outbox has them."""

    __slots__ = (
        "_connection",
        "arrived_at",
        "blocking",
        "is_corked",
        "outbox",
        "ready",
        "ready_bytes",
        "slots",
    )

    def __init__(self, connection: Connection, account: Account) -> None:
        self._connection = connection
        self.outbox = Outbox(account)
        self.slots: list[Slot] = []
        """One for each open request, and for each response behind an open one."""
        self.blocking: Slot | None = None
        """The open request that later requests have to wait for."""
        self.ready: list[Buffer] = []
        """What leaves with the next `flush`."""
        self.ready_bytes = 0
        self.is_corked = False
        """Whether frames are handled now: the connection flushes at their end."""
        self.arrived_at = 0.0
        """The stopwatch time at which the current request arrived."""

    def add(self, buffers: Sequence[Buffer]) -> None:
        """Respond to the current request immediately."""
        connection = self._connection
        server = connection.server
        server.counters.latencies[connection.api_key].observe(server.stopwatch() - self.arrived_at)
        if self.slots:
            self.slots.append(ReadySlot(connection, buffers))
            self._hold_back(buffers)
        else:
            self.ready += buffers
            self.ready_bytes += sum(map(len, buffers))

    def hold(self, slot: Slot) -> None:
        """Keep the place of the current request until `slot.answer`."""
        if slot.buffers is not None:
            return self.add(slot.buffers)
        slot.api_key, slot.arrived_at = self._connection.api_key, self.arrived_at
        self.slots.append(slot)
        if not slot.overlaps:
            self.blocking = slot

    def overlap(self, slot: Slot) -> None:
        """Allow later requests to be handled while this slot is open."""
        slot.overlaps = True
        if slot is self.blocking:
            self.blocking = None
            self._connection.resume_handling()

    def answered(self, slot: Slot) -> None:
        """Send the response of a slot, and later responses that it held back."""
        server = self._connection.server
        server.counters.latencies[slot.api_key].observe(server.stopwatch() - slot.arrived_at)
        if slot is self.blocking:
            self.blocking = None
        slots = self.slots
        if not slots:
            return
        if slots[0] is not slot:
            self._hold_back(slot.buffers or ())
            return
        while slots and (buffers := slots[0].buffers) is not None:
            size = sum(map(len, buffers))
            self.ready += buffers
            self.ready_bytes += size
            if slots.pop(0) is not slot:
                self.outbox.hold(-size)
        if not self.is_corked:
            self.flush()
            self._connection.resume_handling()

    def flush(self) -> None:
        """Send what is ready in one write."""
        out, size = self.ready, self.ready_bytes
        self.ready, self.ready_bytes = [], 0
        if not out:
            return
        server = self._connection.server
        server.counters.bytes_sent += size
        self.outbox.send(out, size)
        if self.outbox.waiting_bytes:
            server.watch.add(self._connection)

    def abandon(self) -> None:
        """Have all open requests stop waiting, since the connection is closed."""
        slots, self.slots = self.slots, []
        for slot in slots:
            self._connection.run_guarded(slot.abandoned)

    def clear(self) -> None:
        """Drop the ready and the waiting bytes."""
        self.ready, self.ready_bytes = [], 0
        self.outbox.clear()

    def _hold_back(self, buffers: Sequence[Buffer]) -> None:
        self.outbox.hold(sum(map(len, buffers)))
        self._connection.server.watch.add(self._connection)
