"""Limits the connections a second of one address (KIP-612's quota), of a listener, and of all (KIP-612).

A connection beyond its address's quota waits in the hall, unread, and is refused with its first request. Beyond the
rate of a listener or of the broker, a client is admitted, but read only when its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.config.setting import INT_MAX
from raftlog.security.quotas import CONNECTION, Quotas, Rates, WindowedRate, Windows, quota_for_address

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig

RATE_SETTING: Final = "max.connection.creation.rate"


class Delay(NamedTuple):
    """The time for which a new connection is not read; `limit` is the quota or setting that requires it."""

    limit: str
    seconds: float


class ConnectionRates:
    """The rates of one broker's listeners."""

    __slots__ = ("_clock", "_config_in_force", "_of_hosts", "_of_listeners", "_quotas", "_span")

    def __init__(
        self,
        config_in_force: Callable[[], NodeConfig],
        *,
        quotas: Callable[[], Quotas],
        clock: Callable[[], float],
        span: Windows,
    ) -> None:
        self._config_in_force = config_in_force
        self._quotas = quotas
        self._clock = clock
        self._span = span
        self._of_hosts: Rates[str] = Rates(span)
        self._of_listeners: dict[str, WindowedRate] = {}
        """By name; "" is all of them."""

    def delay_of_address(self, host: str) -> Delay | None:
        """Count a connection of an address, or return how long an address with too many connections has to wait."""
        quotas = self._quotas()
        limit = quota_for_address(quotas, host) if quotas else None
        if limit is None:
            return None
        now = self._clock()
        rate = self._of_hosts.find(host)
        if rate is None:
            rate, _ = self._of_hosts.add(host, now)
        wait_s = 0.0 if rate.is_idle(now) else rate.throttle_s(limit, now, more=1)
        if wait_s > 0:
            return Delay(CONNECTION, min(wait_s, self._span.seconds))
        rate.use(1, now)
        return None

    def delay_of_listener(self, listener: str) -> Delay | None:
        """Count an admitted connection, and return how long it waits."""
        config = self._config_in_force()
        limits = {listener: _limit_of_listener(config, listener)}
        if not _is_brokers_own(config, listener):
            limits[""] = config.max_connection_creation_rate
        now, wait_s = self._clock(), 0.0
        for name, limit in limits.items():
            if limit == INT_MAX:
                continue
            rate = self._of_listeners.get(name)
            if rate is None:
                rate = self._of_listeners[name] = WindowedRate(self._span)
            rate.use(1, now)
            wait_s = max(wait_s, rate.throttle_s(limit, now))
        return Delay(RATE_SETTING, wait_s) if wait_s > 0 else None


def _limit_of_listener(config: NodeConfig, listener: str) -> int:
    limits = config.listener_limits.get(listener)
    return INT_MAX if limits is None else limits.max_connection_creation_rate


def _is_brokers_own(config: NodeConfig, listener: str) -> bool:
    """Return whether brokers have this listener, and clients have others."""
    names = {each.name for each in config.listeners} - set(config.controller_listener_names)
    return listener == config.inter_broker_listener_name and len(names) > 1
