"""Measurements of the nodes' processes by the kernel: memory twenty times a second, files, attackers' connections."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

SAMPLE_S: Final = 0.05
HONEST: Final = "0100007F"
"""127.0.0.1 as /proc/net/tcp writes it: nodes and honest clients talk from there, attackers never do."""
NOBODY: Final = "00000000"
"""The other end of a socket that listens."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * PAGE_BYTES


def open_files(pid: int) -> int:
    """Return how many file descriptors a process has; 0 once it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


TIME_WAIT: Final = "06"
"""TIME_WAIT in the state column of /proc/net/tcp."""


def strangers(ports: Collection[int], table: str | None = None) -> Counter[int]:
    """Return by port how many connections of attackers processes hold. `table` is /proc/net/tcp's text.

    A connection with its other end in TIME_WAIT belongs to the kernel. Under a flood a late packet revives a closed
    connection (SYN cookies), and the other end answers keep-alive probes until its minute is over.
    """
    if table is None:
        table = Path("/proc/net/tcp").read_text()
    found: Counter[int] = Counter()
    rows = [row.split() for row in table.splitlines()[1:]]
    over = {(fields[2], fields[1]) for fields in rows if fields[3] == TIME_WAIT}
    for fields in rows:
        if (fields[1], fields[2]) in over:
            continue
        host, _, _ = fields[2].partition(":")
        port = int(fields[1].rpartition(":")[2], 16)
        is_held = fields[9] != "0"  # an inode of 0: the kernel alone remembers it
        if port in ports and is_held and host not in (HONEST, NOBODY):
            found[port] += 1
    return found


class Watch:
    """Samples the memory of processes between `start` and `stop`; it calls `on_excess` once for a process beyond the
    guard.
    """

    def __init__(
        self, pids: Mapping[int, int], *, guard_bytes: int, on_excess: Callable[[int], object]
    ) -> None:
        self._pids = dict(pids)
        self._guard_bytes = guard_bytes
        self._on_excess = on_excess
        self._peaks = dict.fromkeys(pids, 0)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.samples = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; also if it never began."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def begin(self) -> None:
        """Forget the peaks that were."""
        with self._lock:
            self._peaks = dict.fromkeys(self._pids, 0)
        self.sample()

    def peaks(self) -> dict[int, int]:
        """Return the most that each node had at any sample since `begin`, bytes."""
        self.sample()
        with self._lock:
            return dict(self._peaks)

    def sample(self) -> None:
        """Look once."""
        seen = {node: resident_bytes(pid) for node, pid in self._pids.items()}
        with self._lock:
            self.samples += 1
            for node, resident in seen.items():
                self._peaks[node] = max(self._peaks[node], resident)

    def _run(self) -> None:
        is_reported = False
        while not self._stopping.wait(SAMPLE_S):
            self.sample()
            most = max(self._peaks, key=self._peaks.__getitem__)
            if not is_reported and self._peaks[most] > self._guard_bytes:
                is_reported = True
                self._on_excess(most)
