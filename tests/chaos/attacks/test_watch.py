"""Measurements by the kernel: of a real process that takes memory and files, and of a table of connections."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from raftlog_chaos.attacks.watch import Watch, open_files, resident_bytes, strangers

MIB = 1 << 20
GREEDY = """
import sys
held = []
for line in sys.stdin:
    what = line.strip()
    if what == "memory":
        held.append(bytearray(b"x") * (80 << 20))
    elif what == "file":
        held.append(open("/dev/null"))
    elif what == "forget":
        held.clear()
    print("done", flush=True)
"""


class Greedy:
    """A process that takes memory and files on demand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def greedy() -> Iterator[Greedy]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", GREEDY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            each = Greedy(process)
            each.tell("nothing")
            yield each
        finally:
            process.kill()


def test_memory_that_was_there_for_a_moment_is_seen():
    """The peak stays, whatever the process has by now, until it is forgotten."""
    told: list[int] = []
    with greedy() as process:
        watch = Watch({7: process.pid}, guard_bytes=1 << 40, on_excess=told.append)
        watch.begin()
        idle = watch.peaks()[7]
        process.tell("memory")
        watch.sample()
        process.tell("forget")
        assert watch.peaks()[7] - idle >= 80 * MIB
        assert resident_bytes(process.pid) - idle < 40 * MIB
        watch.begin()
        assert watch.peaks()[7] - idle < 40 * MIB
    assert not told


def test_a_process_beyond_the_guard_is_reported_once():
    """The callback can end the attack before the machine is full."""
    told: list[int] = []
    with greedy() as process:
        watch = Watch({7: process.pid}, guard_bytes=60 * MIB, on_excess=told.append)
        watch.start()
        process.tell("memory")
        while not told:
            watch.sample()
        watch.stop()
    assert told == [7]


def test_a_file_that_is_kept_is_counted():
    """The descriptors of another process."""
    with greedy() as process:
        before = open_files(process.pid)
        process.tell("file")
        assert open_files(process.pid) == before + 1


def test_a_process_that_has_ended_has_nothing():
    """It is asked after its end as well."""
    with greedy() as process:
        pid = process.pid
    assert (resident_bytes(pid), open_files(pid)) == (0, 0)


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1
   1: 0100007F:2384 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 112 1
   2: 0100007F:2384 4200007F:D432 01 00000000:00000000 00:00000000 00000000     0        0 113 1
   3: 0100007F:2384 4200017F:D433 08 00000000:00000000 00:00000000 00000000     0        0 114 1
   4: 0100007F:2384 4200007F:D434 06 00000000:00000000 00:00000000 00000000     0        0 0 1
   5: 0100007F:2385 4200007F:D435 01 00000000:00000000 00:00000000 00000000     0        0 115 1
   6: 4200007F:D432 0100007F:2384 01 00000000:00000000 00:00000000 00000000     0        0 116 1
"""
"""Listening; honest; two of attackers; orphaned in the kernel; another port; the far end of a connection."""


def test_only_connections_that_attackers_opened_and_nodes_hold_are_counted():
    """By port; honest clients and brokers talk from another address."""
    assert strangers({0x2384}, TABLE) == {0x2384: 2}
    assert strangers({0x2384, 0x2385}, TABLE) == {0x2384: 2, 0x2385: 1}


def test_a_connection_whose_other_end_is_over_is_the_kernels() -> None:
    """A flood of connections left some that no node can see the end of, for as long as TIME_WAIT answers for them."""
    held = "0: 0100007F:2384 4201007F:AE3B 01 00000000:00000000 02:0000094B 00000000 0 0 8815956"
    other = "1: 4201007F:AE3B 0100007F:2384 {} 00000000:00000000 03:00000400 00000000 0 0 0"
    assert strangers({0x2384}, "\n".join(("head", held, other.format("06")))) == {}
    assert strangers({0x2384}, "\n".join(("head", held, other.format("01")))) == {0x2384: 1}
