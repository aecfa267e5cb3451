"""Client quotas in force: recent usage by this broker's clients, and muting of clients that exceed a quota.

The response to a request leaves immediately. It says how long its connection is muted (throttle_time_ms, KIP-219). A
throttled fetch response has no records, and does not count. The quotas are the newest image's, which `follow` applies.
Brokers have none, nor has the admin API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from raftlog.base.config.setting import INT_MAX
from raftlog.security.acls import ANONYMOUS
from raftlog.security.quotas import (
    FETCH,
    KEYS_OF_CLIENTS,
    MUTATION,
    PRODUCE,
    REQUEST,
    CountedAs,
    Quotas,
    Rates,
    WindowedRate,
    Windows,
    quota_for,
)

if TYPE_CHECKING:
    from raftlog.broker.network.counters import ConnectionCounters
    from raftlog.broker.network.inbox import Inbox

MAX_LIMITS: Final = 10_000
"""The maximum number of clients with limits that are kept. Clients choose their ids, so there is a bound."""

NOTHING_SET: Final[Quotas] = {}
_PERCENT: Final = 100.0


class LimitedConnection(Protocol):
    """A client's connection, as far as quotas look at it."""

    inbox: Inbox
    principal: str

    @property
    def peer(self) -> object | None:
        """The broker at the other end, or None for a client."""

    @property
    def login(self) -> object | None:
        """None where clients need none."""

    def guarded(self, call: Callable[..., object], /, *arguments: object) -> Callable[..., None]: ...

    def unmute(self) -> None: ...


class Limit:
    """A quota of one kind, and the rate of all that share it."""

    __slots__ = ("burst", "key", "limit", "rate")

    def __init__(self, key: str, limit: float, rate: WindowedRate, *, span: Windows) -> None:
        self.key = key
        self.limit = limit
        self.rate = rate
        self.burst = limit * span.least_s
        """A client that used no more than this recently is not throttled."""

    def throttle_s(self, now: float) -> float:
        """Return the throttle time of the clients that share this quota, in seconds."""
        return self.rate.throttle_s(self.limit, now) if self.rate.used > self.burst else 0.0


class ClientLimits:
    """The limits of one user with one client id. The CPU cost of each request is in the call budget."""

    __slots__ = ("_clock", "_fetch", "_produce", "_quotas", "_request", "fetch_max_bytes", "mutations")

    def __init__(self, quotas: ClientQuotas, limits: dict[str, Limit], *, mutations: bool) -> None:
        self._quotas = quotas
        self._clock = quotas.clock
        self._produce = limits.get(PRODUCE)
        self._fetch = limits.get(FETCH)
        self._request = limits.get(REQUEST)
        self.mutations = mutations
        """Whether topic creation and deletion need the controller's quota."""
        self.fetch_max_bytes = INT_MAX
        """The maximum size of a fetch response, in bytes. It is allowed if the client fetched no records recently."""
        if self._fetch is not None:
            self.fetch_max_bytes = int(min(INT_MAX, self._fetch.burst))

    def count_produce(self, connection: LimitedConnection, size: int) -> int:
        """Count a produce request; return its throttle time in ms, for which the connection is muted from now on."""
        limit, request, now = self._produce, self._request, self._clock()
        if limit is not None:
            limit.rate.use(size, now)
            if limit.rate.used > limit.burst:
                return self._throttle(connection, limit, limit.throttle_s(now), now=now)
        if request is None or request.rate.used <= request.burst:
            return 0  # without a call, as most
        return self._throttle_for_time(connection, now)

    def count_fetch(self, connection: LimitedConnection, size: int) -> int:
        """Count a fetch response as `count_produce` does, unless it is throttled and has no records.

        A response that is larger than any window allows passes if the client fetched no records recently. Otherwise it
        would never pass.
        """
        limit, request, now = self._fetch, self._request, self._clock()
        is_over_time = request is not None and request.rate.used > request.burst
        if limit is None:
            return self._throttle_for_time(connection, now) if is_over_time else 0
        rate = limit.rate
        if is_over_time or rate.used + size > limit.burst:
            wait_s = rate.throttle_s(limit.limit, now)
            if not wait_s and rate.used + size > limit.burst and not rate.is_idle(now):
                wait_s = min(rate.throttle_s(limit.limit, now, more=size), rate.forgotten_in_s(now))
            throttle_ms = self._throttle(connection, limit, wait_s, now=now)
            if throttle_ms:
                return throttle_ms
        rate.use(size, now)
        return 0

    def throttle_other(self, connection: LimitedConnection) -> int:
        """Return the throttle time of any other request, as `count_produce`, or the time that it is muted already."""
        return max(self._throttle_for_time(connection, self._clock()), self._quotas.muted_ms(connection))

    def mute_for_mutations(self, connection: LimitedConnection, throttle_ms: int) -> None:
        """Mute for as long as the controller requested after it had counted (see `mutation_quota`)."""
        self._quotas.mute(connection, MUTATION, throttle_ms / 1000)

    def record_turn(self, seconds: float) -> None:
        """Count the event loop time of a request of this client. Its next response includes the throttle time."""
        if self._request is not None:
            self._request.rate.use(seconds * _PERCENT, self._clock())

    def _throttle_for_time(self, connection: LimitedConnection, now: float) -> int:
        request = self._request
        return 0 if request is None else self._throttle(connection, request, 0.0, now=now)

    def _throttle(self, connection: LimitedConnection, limit: Limit, wait_s: float, *, now: float) -> int:
        """Mute for the longer of `wait_s`, which is for `limit`, and the wait for the time that requests took."""
        request = self._request
        if request is not None:
            # at most a window, as in Kafka: a longer wait for past time says little about the next request
            for_time_s = min(request.throttle_s(now), self._quotas.span.seconds)
            if for_time_s > wait_s:
                limit, wait_s = request, for_time_s
        return self._quotas.mute(connection, limit.key, wait_s) if wait_s > 0 else 0


class ClientQuotas:
    """The quotas of one broker's clients, and the connections that are muted."""

    __slots__ = (
        "_counters",
        "_limits",
        "_loop",
        "_muted",
        "_quotas",
        "_rates",
        "clock",
        "limit_clients",
        "span",
    )

    def __init__(self, counters: ConnectionCounters, loop: asyncio.AbstractEventLoop, span: Windows) -> None:
        self._counters = counters
        self._loop = loop
        self._muted: dict[LimitedConnection, asyncio.TimerHandle] = {}
        """With the time when muting ends."""
        self._quotas = NOTHING_SET
        self._limits: dict[tuple[str, str | None], ClientLimits | None] = {}
        """Keyed by principal and client id, for clients looked up since quotas changed."""
        self._rates: Rates[tuple[str, CountedAs]] = Rates(span)
        self.clock = loop.time
        self.span = span
        self.limit_clients = False
        """Whether any quota is set for users or client ids."""

    def follow(self, quotas: Quotas) -> None:
        """Apply these quotas from now on. Earlier use counts."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self._limits.clear()
        self.limit_clients = any(KEYS_OF_CLIENTS & values.keys() for values in quotas.values())

    @property
    def in_force(self) -> Quotas:
        return self._quotas

    def limits_of(self, connection: LimitedConnection, client_id: str | None) -> ClientLimits | None:
        """Return the limits of the client at the other end of a connection, or None without limits."""
        if connection.peer is not None:
            return None
        if connection.login is not None and connection.principal == ANONYMOUS:
            return None  # it is about to log in
        key = connection.principal, client_id
        try:
            return self._limits[key]
        except KeyError:
            pass
        if len(self._limits) >= MAX_LIMITS:
            self._limits.clear()
        limits = self._limits[key] = self._resolve(connection.principal, client_id or "")
        return limits

    def mute(self, connection: LimitedConnection, key: str, seconds: float) -> int:
        """Mute a connection for a kind of quota; return the time in ms."""
        throttle_ms = max(1, round(seconds * 1000))
        self._counters.throttled[key] += 1
        self._counters.throttle_ms[key] += throttle_ms
        end_at = self.clock() + throttle_ms / 1000
        before = self._muted.get(connection)
        if before is None or before.when() < end_at:
            if before is not None:
                before.cancel()
            self._muted[connection] = self._loop.call_at(end_at, connection.guarded(self._unmute, connection))
            connection.inbox.mute()
        return throttle_ms

    def muted_ms(self, connection: LimitedConnection) -> int:
        """Return how many more ms a connection is muted."""
        timer = self._muted.get(connection)
        return 0 if timer is None else max(1, round((timer.when() - self.clock()) * 1000))

    def forget(self, connection: LimitedConnection) -> None:
        """Forget a connection that is gone, and cancel the end of its muting."""
        timer = self._muted.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _unmute(self, connection: LimitedConnection) -> None:
        del self._muted[connection]
        connection.unmute()

    def _resolve(self, principal: str, client_id: str) -> ClientLimits | None:
        user = principal.partition(":")[2]
        found = {}
        mutations = False
        for key in KEYS_OF_CLIENTS:
            quota = quota_for(self._quotas, key, user, client_id)
            if quota is None:
                continue
            if key == MUTATION:
                mutations = True  # the controller counts them
            else:
                found[key] = Limit(key, quota.limit, self._rate(key, quota.counted_as), span=self.span)
        return ClientLimits(self, found, mutations=mutations) if found or mutations else None

    def _rate(self, key: str, counted_as: CountedAs) -> WindowedRate:
        rate = self._rates.find((key, counted_as))
        if rate is None:
            rate, others_dropped = self._rates.add((key, counted_as), self.clock())
            if others_dropped:
                self._limits.clear()  # they may refer to dropped rates
        return rate
