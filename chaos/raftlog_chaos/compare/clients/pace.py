"""The moments at which records of a steady rate are due. Knows no protocol."""

from __future__ import annotations

import time


class Pace:
    """Counts the records that are due since `began_at`, up to all of `rate * seconds`."""

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate = rate
        self._began_at = time.perf_counter()
        self._most = int(rate * seconds)
        self._until = self._began_at + seconds
        self.taken = 0

    def due(self) -> int:
        """Return how many records are due now and have not been taken."""
        passed = time.perf_counter() - self._began_at
        return min(self._most, int(passed * self._rate) + 1) - self.taken

    def wait_s(self) -> float:
        """Return the seconds until the next record is due; 0 if one is."""
        if self.taken >= self._most:
            return max(0.0, self._until - time.perf_counter())
        return max(0.0, self._began_at + self.taken / self._rate - time.perf_counter())

    @property
    def over(self) -> bool:
        """Whether the time is over, all records taken or not."""
        return time.perf_counter() >= self._until
