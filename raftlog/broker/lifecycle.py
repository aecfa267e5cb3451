"""A broker's life in the cluster: register, catch up, listen, heartbeat, be unfenced, shut down (KIP-631).

Ordering law: heartbeats carry the broker epoch that the controller returned for *this* incarnation. A broker leads no
partitions before the controller has unfenced it. Before its image holds its own registration, it serves no clients,
since they would get stale metadata. And it listens before it is unfenced, since clients and brokers connect from then
on. It does not know about logs or connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from raftlog.base.env import shared_time
from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InconsistentClusterId,
    KafkaError,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.base.record_ages import Ages, ClockState
from raftlog.base.types import NO_BROKER, NO_EPOCH
from raftlog.metadata.broker_requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    RegisterBroker,
)
from raftlog.metadata.controller_api import Submit
from raftlog.metadata.image import MetadataImage

log = get_logger(__name__)

RETRY_S = 0.05
"""Pause after a refused or lost registration or heartbeat, seconds."""

SHUTDOWN_HEARTBEAT_S = 0.02
"""Pause between two heartbeats that request a shutdown, seconds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Heartbeat interval, and the timeouts of a controlled shutdown and of the first registration, seconds."""

    heartbeat_s: float
    shutdown_s: float
    registration_s: float = 60.0


class Registration(Protocol):
    """The registration of this broker (built again for each attempt)."""

    def __call__(self) -> RegisterBroker: ...


class Lifecycle:
    """Keeps one broker registered; `unfenced` is set while it takes part."""

    def __init__(
        self,
        *,
        registration: Registration,
        submit: Submit,
        image: Callable[[], MetadataImage],
        timing: Timing,
        failed_directories: Callable[[], tuple[UUID, ...]] = tuple,
        damaged: Callable[[], tuple[tuple[UUID, int], ...]] = tuple,
    ) -> None:
        self.start_serving: Callable[[], Awaitable[None]] | None = None
        """Called once, when the image holds the first registration. Set it before `run`."""
        self.lateness = Lateness()
        """The lateness of this node's loop. Set it before `run`."""
        self.lacks_room: Callable[[], bool] = bool
        """Returns whether a log directory is full, so that other brokers should lead. Set it before `run`."""
        self.cordoned: Callable[[], bool] = bool
        """Returns whether all log directories are cordoned, so that this broker gets no replicas. Likewise."""
        self.on_went_back: Callable[[tuple[UUID, ...]], None] = lambda directory_ids: None
        """Called with log directories that the controller knows to be older copies."""
        self.ages: Ages | None = None
        """The clock that heartbeats report, and that learns of the other brokers' clocks. Set it before `run`."""
        self.on_session_renewed: Callable[[float], None] = lambda sent_at: None
        """Called with the time when a heartbeat was sent, in loop seconds, if its response says that this broker takes
        part."""
        self.broker_epoch = NO_EPOCH
        self._broker_id = NO_BROKER
        self.unfenced = asyncio.Event()
        self.fatal: KafkaError | None = None
        self._registration = registration
        self._submit = submit
        self._image = image
        self._timing = timing
        self._failed_directories = failed_directories
        self._damaged = damaged
        self._nudged = asyncio.Event()
        self._want_shutdown = False
        self._may_leave = asyncio.Event()
        self._refused_because = ""
        self._was_registered = False
        self._give_up_at = float("inf")

    def on_metadata(self) -> None:
        """Note a newer image: a broker that waits for its unfencing sends a heartbeat immediately."""
        if not self.unfenced.is_set():
            self._nudged.set()

    def nudge(self) -> None:
        """Send a heartbeat now rather than at the next interval (after a log directory failed, for example)."""
        self._nudged.set()

    async def run(self) -> None:
        """Register and send heartbeats until cancelled. Returns only when it can't go on (`fatal` says why).

        An operator that unregisters a running broker wants it to be gone: it does not come back by itself.
        """
        self._give_up_at = asyncio.get_running_loop().time() + self._timing.registration_s
        while self.fatal is None:
            try:
                if self.broker_epoch == NO_EPOCH:
                    await self._register()
                if self.start_serving is not None:
                    await self._catch_up(self.start_serving)
                await self._beat()
                await self._pause()
            except StaleBrokerEpoch:
                self._forget_registration()
            except BrokerIdNotRegistered:
                self._forget_registration()
                log.warning("broker_unregistered", advice="restart it to register again")
                await asyncio.Event().wait()
            except InconsistentClusterId as error:
                self.fatal = error
            except KafkaError as error:
                self._complain(error)
                self._check_patience(error)
                await asyncio.sleep(RETRY_S)

    def _forget_registration(self) -> None:
        self.broker_epoch = NO_EPOCH
        self.unfenced.clear()

    def _check_patience(self, error: KafkaError) -> None:
        """Give up if the first registration took too long, so that the operator learns of it."""
        now = asyncio.get_running_loop().time()
        if not self._was_registered and now >= self._give_up_at + self.lateness.patience_s:
            self.fatal = RequestTimedOut(
                f"it could not register within {self._timing.registration_s:g} s "
                f"(initial.broker.registration.timeout.ms): {error}"
            )

    def _complain(self, error: KafkaError) -> None:
        """Log once why the controller refuses. A missing controller is not logged, since that is temporary."""
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, NotController | RequestTimedOut):
            log.debug("controller_unavailable", reason=reason)
        elif reason != self._refused_because:
            self._refused_because = reason
            log.warning("broker_refused", reason=reason, advice="it is asked again until it agrees")

    async def controlled_shutdown(self) -> bool:
        """Request that this broker's leaderships move.

        Return True once the controller allows the shutdown, or False after the timeout.
        """
        if self.broker_epoch == NO_EPOCH:
            return False
        self._want_shutdown = True
        self._nudged.set()
        try:
            await asyncio.wait_for(self._may_leave.wait(), self._timing.shutdown_s)
        except TimeoutError:
            return False
        return True

    async def _register(self) -> None:
        request = self._registration()
        reply = await self._submit(request)
        assert isinstance(reply, BrokerRegistration)
        self._broker_id, self.broker_epoch = request.broker_id, reply.broker_epoch
        self._was_registered = True
        self._refused_because = ""
        if reply.went_back:
            self.on_went_back(reply.went_back)
        log.info("broker_registered", broker_epoch=reply.broker_epoch)

    async def _catch_up(self, start_serving: Callable[[], Awaitable[None]]) -> None:
        """Wait until the image holds this registration, and start to serve clients, once."""
        while self._image().offset <= self.broker_epoch:
            self._nudged.clear()
            await self._pause()
        self.start_serving = None
        await start_serving()

    async def _beat(self) -> None:
        self._nudged.clear()
        sent_at = asyncio.get_running_loop().time()
        wall_clock_ms, clock_state = self.ages.reading() if self.ages else (0, ClockState.UNSAID)
        reply = await self._submit(
            BrokerHeartbeat(
                self._broker_id,
                self.broker_epoch,
                self._image().offset,
                want_shutdown=self._want_shutdown,
                failed_directory_ids=self._failed_directories(),
                damaged=self._damaged(),
                late_ms=int(self.lateness.late_s * 1000),
                lacks_room=self.lacks_room(),
                wall_clock_ms=wall_clock_ms,
                clock_state=clock_state,
                cordoned=self.cordoned(),
            ),
            timeout=self._timing.heartbeat_s * 4 + self.lateness.patience_s,
        )
        assert isinstance(reply, BrokerHeartbeatReply)
        if self.ages is not None:
            self.ages.note_others(reply.clocks)
        if reply.should_shutdown:
            self._may_leave.set()
        if reply.is_fenced == self.unfenced.is_set():
            self._note_fencing(reply.is_fenced)
        if not reply.is_fenced:
            self.on_session_renewed(sent_at)

    def _note_fencing(self, fenced: bool) -> None:
        if fenced:
            self.unfenced.clear()
            log.warning("broker_fenced", broker_epoch=self.broker_epoch)
        else:
            self.unfenced.set()
            log.info("broker_unfenced", broker_epoch=self.broker_epoch)

    async def _pause(self) -> None:
        if self._want_shutdown:
            await asyncio.sleep(SHUTDOWN_HEARTBEAT_S)
            return
        try:
            now = asyncio.get_running_loop().time()
            await asyncio.wait_for(self._nudged.wait(), shared_time(now, self._timing.heartbeat_s) - now)
        except TimeoutError:
            return
