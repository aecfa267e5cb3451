"""Client quotas: which one holds for a client, and how long who went beyond it waits (KIP-13, KIP-124, KIP-546).

An entity is who a quota is for: pairs of a type (`user`, `client-id`, `ip`) and a name, None for the default, sorted by
type. Values are bytes a second, or percent of one processor, or partitions changed a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

Entity = tuple[tuple[str, str | None], ...]

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


class Quota(NamedTuple):
    """A limit, and the name under which all that share it are counted together."""

    limit: float
    counted_as: tuple[str, str]


def quota_for(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> Quota | None:
    """Return the quota of a user's client, the most special of eight levels; None: there is no limit.

    One that is set for users counts all clients of a user together, one for client ids all users of it.
    """
    for entity, counted_as in _levels(user, client_id):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return Quota(limit, counted_as)
    return None


def quota_for_address(quotas: Mapping[Entity, Mapping[str, float]], host: str) -> float | None:
    """Return how many connections a second an address may make; None: there is no limit."""
    for name in (host, None):
        limit = quotas.get(((IP, name),), {}).get(CONNECTION)
        if limit is not None:
            return limit
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, str]]]:
    for of_user in (user, None):
        for of_client in (client_id, None):
            yield ((CLIENT_ID, of_client), (USER, of_user)), (user, client_id)
        yield ((USER, of_user),), (user, "")
    for of_client in (client_id, None):
        yield ((CLIENT_ID, of_client),), ("", client_id)


class WindowedRate:
    """Recent use, in windows of a second, and how long a client that used too much waits.

    As Kafka's: eleven windows, of which the oldest ten count as full, so a burst of ten seconds' worth passes.
    """

    __slots__ = ("_first", "_used", "_windows")

    WINDOWS: Final = 11
    """`quota.window.num`, each of one second."""

    def __init__(self) -> None:
        self._windows: dict[int, float] = {}
        self._used = 0.0
        self._first = 0

    def use(self, amount: float, now_s: float) -> None:
        """Count something that was used at a time, in seconds of any clock."""
        window = int(now_s)
        self._forget(window)
        self._windows[window] = self._windows.get(window, 0.0) + amount
        self._used += amount

    def throttle_s(self, limit: float, now_s: float) -> float:
        """Return how long to wait until the rate is at its limit again; 0 if it is below."""
        self._forget(int(now_s))
        if not self._windows:
            return 0.0
        elapsed_s = max(now_s - self._first, float(self.WINDOWS - 1))
        if limit <= 0:
            return elapsed_s if self._used > 0 else 0.0
        return max(0.0, self._used / limit - elapsed_s)

    def rate(self, now_s: float) -> float:
        """Return what was used each second."""
        self._forget(int(now_s))
        return self._used / max(now_s - self._first, float(self.WINDOWS - 1)) if self._windows else 0.0

    def _forget(self, window: int) -> None:
        for old in [each for each in self._windows if each <= window - self.WINDOWS]:
            self._used -= self._windows.pop(old)
        if not self._windows:
            self._used, self._first = 0.0, window
        else:
            self._first = next(iter(self._windows))
