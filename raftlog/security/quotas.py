"""Client quotas: the quota of a client, and its throttle time (KIP-13, 124, 546, 599, 612).

An entity has a quota: pairs of a type (`user`, `client-id`, `ip`) and a name, None for the default, sorted by type.
Values are bytes a second, percent of one processor's time, or partitions or connections a second. Times are seconds of
any clock that does not go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

Entity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[Entity, Mapping[str, float]]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

KEYS_OF_CLIENTS: Final = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})
KEYS_OF_ADDRESSES: Final = frozenset({CONNECTION})
WHOLE_NUMBERS: Final = frozenset({PRODUCE, FETCH, CONNECTION})

Name = TypeVar("Name", bound=Hashable)

MAX_RATES: Final = 10_000
"""Rates that one `Rates` keeps. Clients choose their ids and addresses, so the number is limited."""

CountedAs = tuple[str | None, str | None]
"""A user and a client id that share a rate with all equal pairs; None: any."""


class Quota(NamedTuple):
    """A limit, and the name of the rate that shares it."""

    limit: float
    counted_as: CountedAs


def quota_for(quotas: Quotas, key: str, user: str, client_id: str) -> Quota | None:
    """Return the quota of a user's client, the most specific of eight levels; None if there is no limit.

    A user's quota counts all its clients together, a client id's quota all its users.
    """
    for entity, counted_as in _levels(user, client_id):
        values = quotas.get(entity)
        if values is not None and key in values:
            return Quota(values[key], counted_as)
    return None


def quota_for_address(quotas: Quotas, host: str) -> float | None:
    """Return the limit of an address in connections a second, or None."""
    for name in (host, None):
        limit = quotas.get(((IP, name),), {}).get(CONNECTION)
        if limit is not None:
            return limit
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, CountedAs]]:
    for of_user in (user, None):
        for of_client in (client_id, None):
            yield ((CLIENT_ID, of_client), (USER, of_user)), (user, client_id)
        yield ((USER, of_user),), (user, None)
    for of_client in (client_id, None):
        yield ((CLIENT_ID, of_client),), (None, client_id)


class Windows(NamedTuple):
    """The time over which use is measured: `quota.window.num` windows of `quota.window.size.seconds`."""

    most: int = 11
    seconds: float = 1.0

    @property
    def least_s(self) -> float:
        """Return the shortest time that a rate is computed over: a burst within it passes at once."""
        return max(1, self.most - 1) * self.seconds


class WindowedRate:
    """Recent use, and a client's throttle time, as in Kafka's Rate and ClientQuotaManager.

    All windows but the newest count as full, so a burst of ten seconds' worth passes with eleven windows.
    """

    __slots__ = ("_amounts", "_ends_at", "_most", "_numbers", "_seconds", "used")

    def __init__(self, span: Windows) -> None:
        self._most, self._seconds = span
        self._numbers: deque[int] = deque()
        """The numbers of the windows with use, the oldest first."""
        self._amounts: deque[float] = deque()
        self._ends_at = 0.0
        """When the newest of them is over."""
        self.used = 0.0
        """The use in all windows at the last call, an upper bound of the present use."""

    def use(self, amount: float, now: float) -> None:
        """Count use at a time."""
        if now >= self._ends_at:
            number = int(now / self._seconds)
            self._forget(number)
            self._numbers.append(number)
            self._amounts.append(0.0)
            self._ends_at = (number + 1) * self._seconds
        self._amounts[-1] += amount
        self.used += amount

    def throttle_s(self, limit: float, now: float, *, more: float = 0.0) -> float:
        """Return how many seconds to wait until the rate, with `more` added, is below its limit; 0 if it is already."""
        self._forget(int(now / self._seconds))
        return max(0.0, (self.used + more) / limit - self._elapsed(now)) if self._numbers else 0.0

    def forgotten_in_s(self, now: float) -> float:
        """Return how long it takes until all windows are over, if there is no more use."""
        return (self._numbers[-1] + self._most) * self._seconds - now if self._numbers else 0.0

    def is_idle(self, now: float) -> bool:
        """Return whether there was no recent use. A new rate would then give the same answers."""
        self._forget(int(now / self._seconds))
        return not self._numbers

    def _elapsed(self, now: float) -> float:
        elapsed = now - self._numbers[0] * self._seconds
        missing = self._most - 1 - int(elapsed / self._seconds)
        return max(elapsed + max(0, missing) * self._seconds, self._seconds)

    def _forget(self, number: int) -> None:
        if self._numbers and self._numbers[0] > number - self._most:
            return
        while self._numbers and self._numbers[0] <= number - self._most:
            self._numbers.popleft()
            self._amounts.popleft()
        self.used = sum(self._amounts)


class Rates(Generic[Name]):
    """Windowed rates by names that clients choose: at most `most` of them.

    A full table drops a tenth at a time. A flood of new names then costs each of them the same small share of one walk
    over the table, instead of a walk each.
    """

    __slots__ = ("_by_name", "_most", "_span")

    def __init__(self, span: Windows, most: int = MAX_RATES) -> None:
        self._span = span
        self._most = most
        self._by_name: dict[Name, WindowedRate] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: Name) -> WindowedRate | None:
        """Return the rate of this name, or None if none is kept."""
        return self._by_name.get(name)

    def add(self, name: Name, now: float) -> tuple[WindowedRate, bool]:
        """Return a new rate for this name, and whether other rates were evicted for it."""
        is_full = len(self._by_name) >= self._most
        if is_full:
            self._make_room(now)
        rate = self._by_name[name] = WindowedRate(self._span)
        return rate, is_full

    def _make_room(self, now: float) -> None:
        """Drop every idle rate, then the oldest rates until a tenth of the table is free."""
        for name in [name for name, each in self._by_name.items() if each.is_idle(now)]:
            del self._by_name[name]
        surplus = len(self._by_name) - (self._most - max(1, self._most // 10))
        for name in list(islice(self._by_name, max(0, surplus))):
            del self._by_name[name]


class TokenBucket:
    """Allowance that accumulates while idle, up to the length of all windows (KIP-599's TokenBucket).

    One request may overdraw it; further requests wait until that is refilled.
    """

    __slots__ = ("_seen_at", "_span", "tokens")

    def __init__(self, span: Windows, limit: float, now: float) -> None:
        self._span = span
        self._seen_at = now
        self.tokens = limit * span.most * span.seconds

    def wait_s(self, limit: float, now: float) -> float:
        """Return the seconds until the bucket may be used again; 0: now."""
        full = limit * self._span.most * self._span.seconds
        self.tokens = min(full, self.tokens + limit * max(0.0, now - self._seen_at))
        self._seen_at = now
        return max(0.0, -self.tokens / limit)

    def use(self, amount: float) -> None:
        """Count use, at the time of the last `wait_s`."""
        self.tokens -= amount
