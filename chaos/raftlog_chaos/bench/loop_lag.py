"""A node's own metrics of its event loop: how late it ran what was due, between two looks."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from typing import Final, NamedTuple

LATE: Final = "raftlog_event_loop_lag_seconds"
"""The whole of it."""
OWN: Final = "raftlog_event_loop_own_lag_seconds"
"""The part for which the loop itself computed."""
TIMEOUT_S: Final = 30.0

_BUCKET = re.compile(r'^(\w+)_bucket\{le="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)


class Lag(NamedTuple):
    """Cumulative counts by upper bound, seconds, of the two histograms."""

    counts: dict[str, Counter[float]]

    def longest_s(self, since: Lag, name: str) -> float:
        """Return the bound that all observations since an earlier look were within; 0 if there were none."""
        grown = self.counts[name] - since.counts[name]
        if not grown:
            return 0.0
        total = max(grown.values())
        return min(bound for bound, count in grown.items() if count == total)


def look(admin_url: str) -> Lag:
    """Scrape one node. Raises OSError."""
    with urllib.request.urlopen(f"{admin_url}/metrics", timeout=TIMEOUT_S) as answer:  # noqa: S310 (a node of ours)
        text = answer.read().decode()
    counts: dict[str, Counter[float]] = {LATE: Counter(), OWN: Counter()}
    for name, bound, count in _BUCKET.findall(text):
        if name in counts:
            counts[name][float(bound)] = int(float(count))
    return Lag(counts)
