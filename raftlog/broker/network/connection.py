"""One client's connection: bytes in, frames handled in place, responses out in the order of the requests.

It does not know what a request is for. A frame is a view of the workspace that all connections receive into, or of
this connection's kept bytes. It is valid only while it is handled: `keep_bytes` returns bytes that are needed later.

Memory is bounded for each connection: one frame that really arrived, and the limits of its responses (`responses.py`).
The accounts of `inbox.py` and `outbox.py` bound all connections together. Past a limit it stops handling frames, then
reading. `idle_connections.py` closes it if it makes no progress.

An exception in a callback of the transport or of a slot costs this connection only (`base/guard.py`).

It ends in one of these ways:

- `close`: a warning in the log; written responses are still sent.
- `close_now`: a warning in the log; unsent responses are lost.
- `crash`: the exception in the log; unsent responses are lost.
- `abort`: no line in the log; unsent responses are lost.
- `finish`: no line in the log; it closes once its open Produce requests, or all open requests, are completed.
- `sweep`: no line in the log, but a count; it closes after some time without bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from raftlog.base.guard import Guard
from raftlog.base.turns import context_of_task
from raftlog.broker.links.peer_auth import ADMIN_HELLO
from raftlog.broker.long_work.arrivals import FREE_READS, HANDLED_AT_ONCE
from raftlog.broker.network.admission import ConnectionStanding, Gate, dispatch_before_login
from raftlog.broker.network.inbox import Inbox
from raftlog.broker.network.responses import ANSWERS_HIGH_BYTES, MAX_OPEN_SLOTS, Responses
from raftlog.protocol.frames import PREFIX_BYTES, FramingLost, api_key_at, frame_length
from raftlog.security.acls import ANONYMOUS

if TYPE_CHECKING:
    import ssl

    from raftlog.base.memory import Account
    from raftlog.broker.links.peer_auth import ServerHandshake
    from raftlog.broker.network.client_quotas import ClientLimits
    from raftlog.broker.network.server import BrokerServer
    from raftlog.replication.replica_host import ReplicaId

COUNTED_BYTES: Final = 1024
"""Towards HANDLED_AT_ONCE, a request other than Produce counts once more for each so many bytes."""

UNKNOWN: Final = ("unknown", "unknown")
"""Name and version of the client software if it sent none (KIP-511)."""

PLAIN_MAX_BYTES: Final = 1 << 28
"""A frame of at most this size cannot be the beginning of another protocol, so its length is not checked again."""

NOT_QUIET: Final = -1
"""The number of sweeps without bytes, if bytes came since the last sweep: that sweep counts 0."""

_LENGTH = Struct(">i")
_PRODUCE: Final = 0


class State(IntEnum):
    """The stages in a connection's life. It only moves down this list, or between the two ways to finish."""

    OPEN = 0
    FINISHING_PRODUCE = 1
    """Handles no more requests, and closes once its open Produce requests are completed."""
    FINISHING_ALL = 2
    """The same, once all its open requests are completed."""
    CLOSING = 3
    LOST = 4


class Connection(asyncio.BufferedProtocol, Guard):
    """One accepted connection of one listener."""

    __slots__ = (
        "_frame_max_bytes",
        "_handle_due",
        "_plain_max_bytes",
        "_quiet_sweeps",
        "_state",
        "_transport",
        "api_key",
        "dispatch",
        "gate",
        "handshake",
        "inbox",
        "is_follower",
        "limits",
        "listener",
        "login",
        "number",
        "peer",
        "peer_host",
        "peer_port",
        "principal",
        "purpose",
        "responses",
        "server",
        "session_ids",
        "software",
        "standing",
        "tls_session",
        "to_controller",
    )

    def __init__(self, server: BrokerServer, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.to_controller = listener in server.config.controller_listener_names
        """Whether the other end came to the controller's listener, where only some APIs are served (KIP-919)."""
        self.number = 0
        """A number in the order in which connections were accepted."""
        self.peer_host = ""
        self.peer_port = 0
        self.software = UNKNOWN
        self.peer: ReplicaId | None = None
        """The broker at the other end, once it proved the cluster secret."""
        self.is_follower = False
        """Whether that broker fetches as a replica; otherwise it sends only other requests."""
        self.purpose = 0
        """The number of that broker's hello, which says what its connection is for (`peer_auth`)."""
        self.handshake: ServerHandshake | None = None
        self.session_ids: tuple[int, ...] = ()
        """Fetch sessions that end with this connection."""
        self.standing = ConnectionStanding.STRANGER
        self.principal = ANONYMOUS
        self.tls_session: ssl.SSLObject | None = None
        self.limits: ClientLimits | None = None
        """The quotas for the current request."""
        self.login = server.login_for(listener)
        self.gate = Gate()
        self.dispatch: Callable[[Connection, memoryview], None] = dispatch_before_login
        self.inbox = Inbox(server.requests)
        self.responses = Responses(self, server.memory.answers)
        self._state = State.OPEN
        self._handle_due = False
        self._quiet_sweeps = NOT_QUIET
        self.api_key = 0
        """The API key of the current request."""
        self._transport: asyncio.Transport | None = None

    # -- called by the transport ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            self._transport = cast(asyncio.Transport, transport)
            if self.login is None:
                self.gate.open(self)
            else:
                # Not before there is a connection: over TLS many clients never complete the handshake.
                self.gate.close(self)
            self.inbox.open(self._transport)
            self.responses.outbox.open(self._transport)
            self.server.tune(transport)
            self.tls_session = transport.get_extra_info("ssl_object")
            peer = transport.get_extra_info("peername")
            self.peer_host = str(peer[0]).partition("%")[0] if peer else ""
            self.peer_port = int(peer[1]) if peer else 0
            self.server.connection_opened(self)
            self.server.take_certificate(self)
        except Exception:
            self.crash("connection_made")

    def get_buffer(self, sizehint: int) -> memoryview:
        requests, inbox = self.server.requests, self.inbox
        if inbox.rest is not None:
            try:
                return inbox.room()
            except Exception:
                self.crash("get_buffer")
        return requests.workspace if inbox.granted or self.peer is not None else requests.window

    def buffer_updated(self, nbytes: int) -> None:
        try:
            server = self.server
            server.counters.bytes_received += nbytes
            self._quiet_sweeps = NOT_QUIET
            if self.inbox.rest is None:
                self._handle_frames(server.requests.workspace, nbytes)
            else:
                self.inbox.received(nbytes)
                self._take_rest()
        except Exception:
            self.crash("buffer_updated")

    def pause_writing(self) -> None:
        self.responses.outbox.is_paused = True

    def resume_writing(self) -> None:
        try:
            self.responses.outbox.resume()
            self.resume_handling()
        except Exception:
            self.crash("resume_writing")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state is State.LOST:
            return
        self._state = State.LOST
        self._transport = None
        self.run_guarded(self.responses.abandon)
        self.run_guarded(self._free_memory)
        self.run_guarded(self.server.connection_closed, self)

    # -- used by requests -----------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._state < State.CLOSING

    @property
    def broker_id(self) -> int | None:
        """The broker whose rights the requests of this connection have, or None for a client."""
        return None if self.peer is None or self.purpose == ADMIN_HELLO else self.peer.broker_id

    @property
    def response_memory(self) -> Account:
        return self.server.memory.answers

    def keep_bytes(self, part: memoryview) -> memoryview:
        """Return the bytes of a part of the current frame, unchanged for as long as they are referenced."""
        if self.inbox.rest is None:
            return memoryview(bytes(part))
        self.inbox.rest.keep()
        return part

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that acts for this connection as a task."""
        server = self.server
        context = context_of_task(serves_a_broker=self.peer is not None)
        task = server.loop.create_task(self.guarded_task(work), context=context)
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)

    def record_turn(self, api_key: int, seconds: float) -> None:
        """Record the length of a turn that handled a request of this connection."""
        self.server.long_turns.note(api_key, seconds)
        if self.limits is not None:
            self.limits.record_turn(seconds)

    def record_thread_time(self, seconds: float) -> None:
        """Count the time of a thread that worked for a request of this connection as its turns count."""
        if self.limits is not None:
            self.limits.record_turn(seconds)

    def count_fetch(self, size: int) -> int:
        """Count the records of a response by the sender's quota. A throttle time, in ms, means that it gets none."""
        return 0 if self.limits is None else self.limits.count_fetch(self, size)

    # -- login ----------------------------------------------------------------------------------------------------

    def limit_frames(self, max_bytes: int) -> None:
        """Close the connection at the first frame that is longer than this."""
        self._frame_max_bytes = max_bytes
        self._plain_max_bytes = min(max_bytes, PLAIN_MAX_BYTES)

    def describe(self) -> dict[str, Any]:
        """Return a description of the other end for the audit log."""
        return {"principal": self.principal, "address": self.peer_host, "listener": self.listener}

    def on_login(self, principal: str) -> int:
        """Let in the principal of a successful login. Return its lifetime in milliseconds, or 0 if it never expires."""
        assert self.login is not None
        self.principal = principal
        self.gate.open_for(self, self.login.lifetime_ms)
        self.server.broker.audit.login_succeeded(self.login.mechanism, **self.describe())
        return self.login.lifetime_ms

    def report_failed_login(self) -> None:
        """Count a failed login and log the reason, once."""
        failure = None if self.login is None else self.login.take_failure()
        if failure is not None:
            self.server.login_failed(self, failure)

    # -- its end --------------------------------------------------------------------------------------------------

    def close(self, event: str, **facts: object) -> None:
        """Close and log the reason. Written bytes are still sent, if the client reads them soon."""
        if self.is_open:
            self._close_transport()
            self._log_end(event, facts)

    def close_now(self, event: str, **facts: object) -> None:
        """Close and log the reason. Unsent bytes are lost."""
        if self.is_open:
            self.abort()
            self._log_end(event, facts)

    def crash(self, what: str) -> None:
        """Close and log the exception being handled, which is a bug of ours. Unsent bytes are lost."""
        self.server.counters.closed_by_broker["request_crashed"] += 1
        self.abort()
        self.server.broker.env.on_bug()
        self.server.log.exception("request_crashed", what=what, listener=self.listener, peer=self.peer_host)

    def abort(self) -> None:
        """Close without a line in the log. Unsent bytes are lost."""
        self._state = max(self._state, State.CLOSING)
        self._free_memory()
        if self._transport is not None:
            self._transport.abort()
            self.server.watch.add_aborted(self)

    def finish(self, *, answers_all: bool = False) -> None:
        """Handle no more requests. Close once the open Produce requests, or all with `answers_all`, are completed."""
        if self.is_open:
            self._state = State.FINISHING_ALL if answers_all else State.FINISHING_PRODUCE
            self._close_if_finished()

    def sweep(self, *, max_quiet_sweeps: int) -> None:
        """Close after `max_quiet_sweeps` (0: never) sweeps in a row without bytes and without open requests.

        A long fetch is an open request, so a connection that waits for records is not idle.
        """
        self._quiet_sweeps = 0 if self.responses.slots else self._quiet_sweeps + 1
        if 0 < max_quiet_sweeps <= self._quiet_sweeps:
            self.server.counters.idle_closed += 1
            self._close_transport()

    def _close_if_finished(self) -> None:
        waits_for_all = self._state is State.FINISHING_ALL
        if self.is_open and not any(waits_for_all or slot.overlaps for slot in self.responses.slots):
            self._close_transport()

    def _close_transport(self) -> None:
        self.responses.flush()
        self._state = max(self._state, State.CLOSING)
        self.inbox.close()
        if self._transport is not None:
            self._transport.close()
            self.server.watch.add(self)

    def _log_end(self, event: str, facts: dict[str, object]) -> None:
        self.server.counters.closed_by_broker[event] += 1
        self.server.log.warning(event, listener=self.listener, peer=self.peer_host, **facts)

    def _free_memory(self) -> None:
        """Free the memory of requests and responses, and cancel timers and places in queues."""
        self.gate.cancel()
        self.server.quotas.forget(self)
        self.responses.clear()
        self.inbox.close()
        self.server.memory.answers.remove_waiter(self)

    # -- limits and progress --------------------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """Whether `IdleConnectionWatch` has to look at the connection once a second.

        It has to while the connection holds bytes of a frame or of responses, or is closing. It also has to in the hall
        and before a login, when `dispatch` is not the server's.
        """
        if self._state is State.LOST:
            return False
        holds_bytes = self.inbox.rest is not None or self.responses.outbox.waiting_bytes > 0
        is_restricted = self.dispatch is not self.server.dispatch
        return holds_bytes or not self.is_open or is_restricted

    def check_progress(self, *, crowded: bool) -> None:
        """Close the connection, called once a second, if its stay in the hall, its login, a frame or a response takes
        too long.

        With `crowded`, half of the memory for responses is used.
        """
        self.server.admission.check_hall(self)
        self.gate.check_login(self)
        if self.inbox.check_progress():
            needed, held = self.inbox.needed_bytes, self.inbox.held_bytes
            self.close_now("slow_sender_closed", frame_bytes=needed, arrived_bytes=held)
        outbox = self.responses.outbox
        if outbox.check_progress(crowded=crowded):
            self.close_now("slow_reader_closed", waiting_bytes=outbox.waiting_bytes)

    def memory_freed(self) -> None:
        """Continue, since there is room for responses again."""
        self.resume_handling()

    def unmute(self) -> None:
        """Read and handle requests again (see `client_quotas`)."""
        self.inbox.is_muted = False
        self._read_or_stop()
        self.resume_handling()

    def resume_handling(self, *, in_line: bool = False) -> None:
        """Handle frames that a limit held back. With `in_line` it was `Arrivals.limit`, so they wait in its line."""
        if self._state is not State.OPEN:
            self._close_if_finished()
        elif self.inbox.is_blocked and not self._handle_due and not self._is_held_up(takes_memory=False):
            self._handle_due = True
            if in_line:
                self.server.arrivals.wait(self.guarded(self._handle_rest, self.responses.arrived_at))
            else:
                self.spawn(self._handle_in_turn())

    def _is_held_up(self, *, takes_memory: bool) -> bool:
        """Return whether the next request has to wait. `takes_memory`: its response may be large."""
        responses = self.responses
        if (
            responses.blocking is not None
            or responses.outbox.waiting_bytes >= ANSWERS_HIGH_BYTES
            or len(responses.slots) >= MAX_OPEN_SLOTS
            or self.inbox.is_muted
            or self._state is not State.OPEN
        ):
            return True
        # brokers must not wait for clients
        if self.peer is not None or not takes_memory or not self.server.memory.answers.is_full:
            return False
        self.server.memory.answers.add_waiter(self)
        return True

    async def _handle_in_turn(self) -> None:
        if self.broker_id is None:
            await self.server.broker.env.turns.next()
        else:  # brokers must not wait in a queue that clients have made long
            await asyncio.sleep(0)
        self._handle_rest(self.server.stopwatch())

    def _handle_rest(self, arrived_at: float) -> None:
        self._handle_due = False
        self._take_rest(arrived_at)

    # -- frames ---------------------------------------------------------------------------------------------------

    def _take_rest(self, arrived_at: float | None = None) -> None:
        """Handle the kept frames, if the first is complete by now."""
        rest = self.inbox.rest
        if rest is None or self._state >= State.CLOSING:
            return
        if rest.size >= self.inbox.needed_bytes:
            self._handle_frames(rest.view(), rest.size, arrived_at)
        else:
            self._read_or_stop()

    def _handle_frames(self, view: memoryview, filled: int, arrived_at: float | None = None) -> None:
        """Handle complete frames at the start of `view` as far as limits allow, send the responses, and keep the rest.

        `arrived_at` is the stopwatch time of arrival, if the frames have waited for this turn of the loop since then.
        """
        inbox, responses, position = self.inbox, self.responses, 0
        inbox.needed_bytes = PREFIX_BYTES
        inbox.is_blocked = False
        responses.is_corked = True
        handled = 0
        responses.arrived_at = self.server.stopwatch() if arrived_at is None else arrived_at
        arrivals = self.server.arrivals
        arrivals.reads += 1
        # Free of the limit: frames that have waited for their turn, and brokers. The admin API's links count as
        # brokers: they are few, and an operator needs them most in a flood.
        is_free = arrivals.reads <= FREE_READS or arrived_at is not None or self.peer is not None
        limit = HANDLED_AT_ONCE if is_free else arrivals.limit(view, filled)
        answers = self.server.memory.answers
        try:
            while filled - position >= PREFIX_BYTES:
                # The length is checked before one byte is kept for it: it is the first thing that a stranger sends.
                size = _LENGTH.unpack_from(view, position)[0]
                if not 0 < size <= self._plain_max_bytes:
                    size = frame_length(view, position, self._frame_max_bytes)
                end = position + PREFIX_BYTES + size
                if end > filled:
                    inbox.needed_bytes = PREFIX_BYTES + size
                    break
                # Responses leave in the order of requests. A fetch that waits for records would delay this request, so
                # it completes with what it has.
                if responses.blocking is not None:
                    responses.blocking.complete_now()
                # A whole frame that may not be handled now is kept, and reading stops. The limit then reaches the
                # client as a full socket, without a message.
                if handled >= limit or (
                    (
                        responses.slots
                        or self._state is not State.OPEN
                        or inbox.is_muted
                        or responses.outbox.waiting_bytes
                        or answers.used >= answers.limit
                    )
                    and self._is_held_up(takes_memory=api_key_at(view, position, size) != _PRODUCE)
                ):
                    inbox.is_blocked = True
                    break
                # The view may be of a buffer that all connections share. Code that needs the bytes after this call
                # uses `keep_bytes`.
                self.dispatch(self, view[position + PREFIX_BYTES : end])
                handled += 1 if self.api_key == _PRODUCE else 1 + size // COUNTED_BYTES
                if responses.ready_bytes >= ANSWERS_HIGH_BYTES:
                    responses.flush()
                position = end
        except FramingLost as lost:
            self._lose_framing(lost)
        finally:
            responses.is_corked = False
        # Responses that are ready leave in one write, before the rest is copied.
        if responses.ready:
            responses.flush()
        if position < filled or inbox.rest is not None:
            self._keep_rest(view, position, filled)
        if handled >= limit:
            self.resume_handling(in_line=limit < HANDLED_AT_ONCE)

    def _lose_framing(self, lost: FramingLost) -> None:
        # Earlier requests are completed first. Then the invalid frame is tried again.
        self.inbox.is_blocked = bool(self.responses.slots)
        if not self.inbox.is_blocked:
            self.close("framing_lost", reason=str(lost))

    def _keep_rest(self, view: memoryview, position: int, filled: int) -> None:
        """Keep the bytes from `position` to `filled`, and stop reading while they cannot be handled or completed."""
        self.inbox.keep(view, position, filled)
        if self.inbox.rest is not None:
            self.server.watch.add(self)
            self._read_or_stop()

    def _read_or_stop(self) -> None:
        self.inbox.read_or_stop(needs_grant=self.peer is None)  # brokers do not wait for clients
