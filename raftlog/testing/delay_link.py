"""Slow links between network namespaces, for kernels without netem: packets pass through a process that waits.

A link has one direction. The source's namespace gets a TUN device with a route to the target's address, the target's
namespace a TUN device from which the packets come. `packet_delay` moves them. Both devices, and with them the route,
are gone once the link is closed. Needs root and /dev/net/tun.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.testing import packet_delay
from raftlog.testing.netns import Namespace

TUN: Final = "/dev/net/tun"
TUNSETIFF: Final = 0x4004_54CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000
"""Packets come without a header of the device's own."""

MTU: Final = 65_000
"""Large, so that a link carries much with few packets."""

QUEUED_PACKETS: Final = 10_000
"""In the kernel, before the process reads them."""

ANY_SOURCE: Final = "/proc/sys/net/ipv4/conf/all/rp_filter"
"""0: answers to packets of a device may leave by another."""

END_S: Final = 10.0


class Carried(NamedTuple):
    """Counts of a link: the packets that it has passed on so far, and their bytes with the headers of IP."""

    packets: int
    size: int


class DelayLink:
    """Packets from a host to another are late by `delay_s`. Raises OSError."""

    def __init__(
        self, source: Namespace, target: Namespace, *, addresses: tuple[str, str], name: str, delay_s: float
    ) -> None:
        """`addresses`: of the source and the target. `name`: of the device in both, unique there, 13 characters."""
        self._files: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        try:
            departures = self._keep(_open_device(source, f"to{name}"))
            arrivals = self._keep(_open_device(target, f"of{name}"))
            route = f"route replace {addresses[1]}/32 dev to{name} src {addresses[0]}\n"
            source.run(["ip", "-batch", "-"], route)
            counters = self._keep(os.memfd_create("carried"))
            os.ftruncate(counters, packet_delay.COUNTERS.size)
            self._counters = mmap.mmap(counters, packet_delay.COUNTERS.size)
            self._start(departures, arrivals, counters, delay_s)
        except BaseException:
            self.close()
            raise

    def _keep(self, descriptor: int) -> int:
        self._files.append(descriptor)
        return descriptor

    def _start(self, departures: int, arrivals: int, counters: int, delay_s: float) -> None:
        descriptors = departures, arrivals, counters
        self._process = subprocess.Popen(  # noqa: S603 - a file of ours
            [sys.executable, "-I", "-S", packet_delay.__file__, *map(str, descriptors), repr(delay_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
        )
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != packet_delay.READY:
            raise OSError("the process of a slow link has ended")

    @property
    def carried(self) -> Carried:
        return Carried(*packet_delay.COUNTERS.unpack_from(self._counters))

    def close(self) -> None:
        """Remove it, and drop the packets that wait; may be called again."""
        if self._process is not None:
            self._process.communicate(timeout=END_S)
            self._process = None
        while self._files:
            os.close(self._files.pop())


def _open_device(where: Namespace, name: str) -> int:
    """Return the descriptor of a new device, which is gone once that is closed."""
    with where.inside():
        Path(ANY_SOURCE).write_text("0")
        device = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        with where.inside():
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
            with suppress(FileNotFoundError):  # a kernel without IPv6, which sends packets of its own
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        where.run(["ip", "-batch", "-"], f"link set {name} mtu {MTU} txqueuelen {QUEUED_PACKETS} up\n")
    except BaseException:
        os.close(device)
        raise
    return device


@functools.cache
def can_carry() -> bool:
    """Return whether such links can be made, by making a device in an unused namespace."""
    try:
        trial = Namespace()
    except OSError:
        return False
    try:
        os.close(_open_device(trial, "trial"))
    except OSError:
        return False
    finally:
        trial.close()
    return True
