"""Claims about a network of namespaces: what is cut is cut, one way, and clients are not concerned."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from raftlog.testing.network import Network, can_delay
from raftlog.testing.progress import patient
from tests.kit.waits import PATIENCE_S

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture
def network() -> Iterator[Network]:
    """Two hosts on a switch, without any node."""
    try:
        network = Network(2)
    except OSError as error:
        pytest.skip(str(error))
    yield network
    network.release()


MOMENT_S = 0.5


class Ends:
    """A UDP socket on each host, and a socket for the clients (0)."""

    def __init__(self, network: Network) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self.addresses = {1: ("10.77.0.1", 5), 2: ("10.77.0.2", 5), 0: ("10.77.0.254", 5)}
        for where, namespace in {**network.hosts, 0: network.switch}.items():
            with namespace.inside():
                self.sockets[where] = socket.socket(type=socket.SOCK_DGRAM)
            self.sockets[where].bind(self.addresses[where])
            self.sockets[where].settimeout(MOMENT_S)

    def arriving(self, source: int, target: int, count: int = 1, *, surely: int | None = None) -> int:
        """Return how many of so many packets arrive; beyond the `surely` (all) expected it does not wait long."""
        surely = count if surely is None else surely
        self.sockets[source].settimeout(PATIENCE_S)  # a busy machine's kernel is slow to take them
        for _ in range(count):
            self.sockets[source].sendto(b"?", self.addresses[target])
        arrived = 0
        with suppress(TimeoutError):
            while arrived < count:
                self.sockets[target].settimeout(PATIENCE_S if arrived < surely else MOMENT_S)
                self.sockets[target].recv(1)
                arrived += 1
        return arrived

    def close(self) -> None:
        for each in self.sockets.values():
            each.close()


@pytest.fixture
def ends(network: Network) -> Iterator[Ends]:
    ends = Ends(network)
    yield ends
    ends.close()


def test_a_cut_is_one_way_and_no_concern_of_clients(network: Network, ends: Ends) -> None:
    """Records that come from the source are dropped at the target; everything else passes, and all of it once
    healed.
    """
    pairs = [(source, target) for source in (0, 1, 2) for target in (0, 1, 2) if source != target]
    assert [ends.arriving(*pair) for pair in pairs] == [1] * 6
    network.cut(1, 2)
    passing = {pair: int(pair != (1, 2)) for pair in pairs}
    assert {pair: ends.arriving(*pair, surely=passing[pair]) for pair in pairs} == passing
    network.cut(2, 1)
    assert ends.arriving(1, 2, surely=0) + ends.arriving(2, 1, surely=0) == 0
    network.heal()
    assert [ends.arriving(*pair) for pair in pairs] == [1] * 6


def test_a_lossy_link_loses_about_its_share(network: Network, ends: Ends) -> None:
    """Half of the packets in one direction, none in the other, and none once healed."""
    ends.arriving(1, 2)
    network.slow(1, 2, delay_s=0, loss=0.5)
    assert 60 < ends.arriving(1, 2, count=200, surely=60) < 140
    assert ends.arriving(2, 1, count=200) == 200
    network.slow(1, 2, delay_s=0, loss=0)
    assert ends.arriving(1, 2, count=200) == 200


def test_a_slow_link_is_late_one_way(network: Network, ends: Ends) -> None:
    """By netem where the kernel has it, else by a process."""
    if not can_delay():
        pytest.skip("this kernel has neither netem nor /dev/net/tun")
    ends.arriving(1, 2)
    delay_s = patient(0.1)
    network.slow(1, 2, delay_s=delay_s, loss=0)
    began = time.monotonic()
    ends.sockets[1].sendto(b"?", ends.addresses[2])
    assert ends.sockets[2].recv(1) == b"?"
    assert time.monotonic() - began >= delay_s

    def both_others_take_s() -> float:
        began = time.monotonic()
        assert ends.arriving(2, 1) == ends.arriving(1, 0) == 1
        return time.monotonic() - began

    assert min(both_others_take_s() for _ in range(20)) < delay_s, (
        "of many looks one is not held up by this machine"
    )
