"""All routes: a file for each kind of resource. A new file is a new line here."""

from __future__ import annotations

from typing import Final

from raftlog.admin import metrics
from raftlog.admin.route import Route
from raftlog.admin.v1 import probes
from raftlog.admin.v3 import clusters

ROUTES: Final[tuple[Route, ...]] = (
    *probes.ROUTES,
    *clusters.ROUTES,
    *metrics.ROUTES,
)
