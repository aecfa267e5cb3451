"""The moments at which records of a steady rate are due. Knows no protocol."""

from __future__ import annotations

import time


class Pace:
    """Counts the records that are due since it was made, up to all of `rate * seconds`; the time is over at `until`."""

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate = rate
        self._began_at = time.perf_counter()
        self._most = int(rate * seconds)
        self.until = self._began_at + seconds
        self.taken = 0

    def take(self) -> list[float]:
        """Take all records that are due now; return for each when it was due, which may be a while ago.

        Latency counts from then on: a client that waits for a slow server would leave out that wait otherwise.
        """
        passed = time.perf_counter() - self._began_at
        taken, self.taken = self.taken, max(self.taken, min(self._most, int(passed * self._rate) + 1))
        return [self._began_at + number / self._rate for number in range(taken, self.taken)]

    def wait_s(self) -> float:
        """Return the seconds until the next record is due; 0 if a record is due."""
        if self.taken >= self._most:
            return max(0.0, self.until - time.perf_counter())
        return max(0.0, self._began_at + self.taken / self._rate - time.perf_counter())

    @property
    def over(self) -> bool:
        """Whether the time is over and all records are taken, be it late."""
        return self.taken >= self._most and time.perf_counter() >= self.until
