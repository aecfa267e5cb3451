"""Places for unauthenticated connections: the newest always gets a place.

When all places are taken, the oldest connection of the machine with the most is closed. A flood from one machine only
harms that machine. A flood from many machines harms connections that cannot authenticate while all places are replaced.
Every listener limits its new connections by this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

IPV6_HOST_BITS: Final = 64
"""All these addresses belong to one machine, so they count as one."""

NODE_PLACES: Final = 8
"""Places of a node's machine that do not count against it."""

MAX_NODE_MACHINES: Final = 1_024
"""Remembered machines of nodes; the machine that authenticated longest ago is evicted."""


def machine_of(address: str) -> str:
    """Return the machine of an address: the address itself, or its network of 64 bits in IPv6."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address  # takes 440 KB

    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return address
    return str(IPv6Address(int(found) >> IPV6_HOST_BITS << IPV6_HOST_BITS))


def host_of(peername: object) -> str:
    """Return the address of a socket's other end, without the zone of IPv6; "" if unknown."""
    return str(peername[0]).partition("%")[0] if isinstance(peername, tuple) else ""


class NodeMachines:
    """The machines from which a node has proved the cluster secret."""

    def __init__(self) -> None:
        self._machines: dict[str, None] = {}

    def add(self, address: str) -> None:
        """Record that a node connects from this address."""
        machine = machine_of(address)
        self._machines.pop(machine, None)
        self._machines[machine] = None
        if len(self._machines) > MAX_NODE_MACHINES:
            del self._machines[next(iter(self._machines))]

    def __contains__(self, machine: object) -> bool:
        return machine in self._machines


class Places(Generic[T]):
    """The holders of `most` places. `close(holder)` is called for a holder that loses its place to a newer holder."""

    def __init__(
        self,
        most: int,
        close: Callable[[T], None],
        *,
        choose: Callable[[Sequence[T]], T] = lambda holders: holders[0],
        nodes: NodeMachines | None = None,
    ) -> None:
        """`choose` picks from the holders of one machine, the oldest first.

        The machines in `nodes` have NODE_PLACES of their own.
        """
        self._most = most
        self._close = close
        self._choose = choose
        self._nodes = NodeMachines() if nodes is None else nodes
        self._machines: dict[T, str] = {}
        """The machine of each holder, the oldest holder first."""
        self._holders: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._machines))

    def enter(self, holder: T, address: str) -> None:
        """Give a new holder a place, an older holder's if none is free."""
        machine = machine_of(address)
        self._machines[holder] = machine
        self._holders.setdefault(machine, {})[holder] = None
        if len(self._machines) > self._most:
            holders = self._holders[max(self._holders, key=self._count)]
            oldest = self._choose([each for each in holders if each is not holder] or [holder])
            self.leave(oldest)
            self._close(oldest)

    def leave(self, holder: T) -> None:
        """Free the place of a holder, if it has a place."""
        machine = self._machines.pop(holder, None)
        if machine is not None:
            holders = self._holders[machine]
            del holders[holder]
            if not holders:
                del self._holders[machine]

    def _count(self, machine: str) -> int:
        return len(self._holders[machine]) - (NODE_PLACES if machine in self._nodes else 0)
