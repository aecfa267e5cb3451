"""Claims about slow links without netem: how late packets are, their order and their number."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from raftlog.testing import packet_delay
from raftlog.testing.delay_link import Carried, DelayLink, can_carry
from raftlog.testing.netns import Namespace
from raftlog.testing.progress import patient
from tests.kit.waits import PATIENCE_S, until

HERE, THERE = ("10.78.0.1", 7), ("10.78.0.2", 7)
DELAY_S = 0.03
SLACK_S = 0.02
ROUNDS = 30
PACKETS = 2_000
PAYLOAD_BYTES = 1_000
SO_RCVBUFFORCE = 33
"""Of Linux: a larger receive buffer than users may have, so that the socket drops no packet."""
HEADER_BYTES = 28
"""Of IP and UDP."""


def test_packets_leave_in_order_when_they_are_due() -> None:
    """No earlier, and as they came: the process alone, between two pairs of sockets."""
    near, source = socket.socketpair(type=socket.SOCK_DGRAM)
    target, far = socket.socketpair(type=socket.SOCK_DGRAM)
    counters = os.memfd_create("carried")
    os.ftruncate(counters, packet_delay.COUNTERS.size)
    descriptors = source.fileno(), target.fileno(), counters
    command = [sys.executable, packet_delay.__file__, *map(str, descriptors), str(DELAY_S)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=descriptors
    ) as process:
        assert process.stdout is not None and process.stdout.read(1) == packet_delay.READY
        began = time.monotonic()
        near.send(b"first")
        near.send(b"second")
        assert far.recv(10) == b"first" and time.monotonic() - began >= DELAY_S
        assert far.recv(10) == b"second"
        process.communicate()
    assert packet_delay.COUNTERS.unpack(os.pread(counters, packet_delay.COUNTERS.size, 0)) in (
        (1, 5),
        (2, 11),
    )
    assert process.returncode == 0
    for each in (near, source, target, far):
        each.close()
    os.close(counters)


class Ends:
    """Two hosts with a slow link in each direction, and a UDP socket on each."""

    def __init__(self) -> None:
        self.hosts = Namespace(), Namespace()
        for host, address in zip(self.hosts, (HERE, THERE), strict=True):
            host.run(["ip", "-batch", "-"], f"link set lo up\naddr add {address[0]}/32 dev lo\n")
        near, far = self.hosts
        self.forth = DelayLink(near, far, addresses=(HERE[0], THERE[0]), name="-1-2", delay_s=DELAY_S)
        self.back = DelayLink(far, near, addresses=(THERE[0], HERE[0]), name="-2-1", delay_s=DELAY_S)
        self.here, self.there = self._bound(near, HERE), self._bound(far, THERE)

    def _bound(self, host: Namespace, address: tuple[str, int]) -> socket.socket:
        with host.inside():
            found = socket.socket(type=socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 * 1024 * 1024)
        found.bind(address)
        found.settimeout(PATIENCE_S)
        return found

    def round_s(self) -> float:
        """Return how long a packet takes there and back."""
        began = time.monotonic()
        self.here.sendto(b"?", THERE)
        self.there.sendto(self.there.recv(1), HERE)
        assert self.here.recv(1) == b"?"
        return time.monotonic() - began

    def counted(self, packets: int) -> Carried:
        """Return the counts of the link forth, which follow a packet that has arrived."""
        until(lambda: self.forth.carried.packets >= packets, "all packets are counted")
        return self.forth.carried

    def close(self) -> None:
        self.here.close()
        self.there.close()
        self.forth.close()
        self.back.close()
        for host in self.hosts:
            host.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    if not can_carry():
        pytest.skip("needs root and /dev/net/tun")
    ends = Ends()
    yield ends
    ends.close()


@pytest.mark.clients
@pytest.mark.slow
def test_a_round_takes_both_delays_and_little_more(ends: Ends) -> None:
    """No round is shorter; of many the shortest is not held up by a busy machine."""
    rounds = [ends.round_s() for _ in range(ROUNDS)]
    assert min(rounds) >= 2 * DELAY_S
    assert min(rounds) < 2 * DELAY_S + patient(SLACK_S)


@pytest.mark.clients
@pytest.mark.slow
def test_packets_arrive_in_order_without_loss_and_are_counted(ends: Ends) -> None:
    """All packets of a burst, and the bytes that the link says it has carried."""
    expected = [number.to_bytes(PAYLOAD_BYTES, "big") for number in range(PACKETS)]
    for payload in expected:
        ends.here.sendto(payload, THERE)
    assert [ends.there.recv(PAYLOAD_BYTES) for _ in range(PACKETS)] == expected
    assert ends.counted(PACKETS) == (PACKETS, PACKETS * (PAYLOAD_BYTES + HEADER_BYTES))
    assert ends.back.carried == (0, 0)
