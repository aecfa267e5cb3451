"""One direction of a slow link as a process: reads packets from a TUN device, and writes them to another device later.

It runs as a script of its own, without raftlog, so that it starts at once. Packets keep their order. The queue has a
limit. Beyond it packets wait in the kernel's queue of the source device, which drops the rest, as a router does. The
process ends with its standard input.

Arguments: the descriptors of the source, the target and the counters, and the delay in seconds.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Queue
from typing import Final

COUNTERS: Final = struct.Struct("=QQ")
"""Packets and bytes that have left the queue for the target."""

MAX_QUEUED_PACKETS: Final = 4_000
MAX_PACKET_BYTES: Final = 65_536

READY: Final = b"."
"""Written to the standard output once packets are moved."""

Packets = Queue[tuple[float, bytes]]
"""Packets with the times at which they are due, oldest first."""


def take_in(source: int, packets: Packets, delay_s: float) -> None:
    """Queue packets as they come, for ever."""
    while True:
        packet = os.read(source, MAX_PACKET_BYTES)
        packets.put((time.monotonic() + delay_s, packet))


def pass_on(target: int, packets: Packets, counters: mmap.mmap) -> None:
    """Write each packet when it is due, for ever."""
    number = size = 0
    while True:
        due_at, packet = packets.get()
        time.sleep(max(0.0, due_at - time.monotonic()))
        os.write(target, packet)
        number, size = number + 1, size + len(packet)
        COUNTERS.pack_into(counters, 0, number, size)


def _start(work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


def main() -> None:
    """Move packets until standard input ends."""
    source, target, counters = map(int, sys.argv[1:4])
    with suppress(PermissionError):
        os.nice(-10)  # a late packet is a longer delay
    packets: Packets = Queue(MAX_QUEUED_PACKETS)
    _start(take_in, source, packets, float(sys.argv[4]))
    _start(pass_on, target, packets, mmap.mmap(counters, COUNTERS.size))
    os.write(sys.stdout.fileno(), READY)
    sys.stdin.read()


if __name__ == "__main__":
    main()
