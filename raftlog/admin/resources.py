"""All routes: a file for each kind of resource. A new file is a new line here."""

from __future__ import annotations

from typing import Final

from raftlog.admin import metrics
from raftlog.admin.kafka_rest import (
    acls,
    brokers,
    clusters,
    configs,
    groups,
    partitions,
    reassignments,
    records,
    topics,
)
from raftlog.admin.native import (
    clock,
    decommissions,
    elections,
    events,
    explain,
    faults,
    group_why,
    health,
    index,
    moves,
    nodes,
    one_record,
    overview,
    probes,
    quorum,
    record_scans,
    reset,
    restarts,
    share_deliveries,
    share_groups,
    topic_records,
    transactions,
    users,
    why,
)
from raftlog.admin.native import records as reading
from raftlog.admin.native import topics as topic_views
from raftlog.admin.route import Route

ROUTES: Final[tuple[Route, ...]] = (
    *index.ROUTES,
    *probes.ROUTES,
    *clusters.ROUTES,
    *acls.ROUTES,
    *brokers.ROUTES,
    *configs.ROUTES,
    *topics.ROUTES,
    *reassignments.ROUTES,
    *partitions.ROUTES,
    *records.ROUTES,
    *groups.ROUTES,
    *reading.ROUTES,
    *topic_records.ROUTES,
    *record_scans.ROUTES,
    *one_record.ROUTES,
    *topic_views.ROUTES,
    *reset.ROUTES,
    *overview.ROUTES,
    *events.ROUTES,
    *elections.ROUTES,
    *metrics.ROUTES,
    *health.ROUTES,
    *quorum.ROUTES,
    *why.ROUTES,
    *group_why.ROUTES,
    *share_groups.ROUTES,
    *share_deliveries.ROUTES,
    *explain.ROUTES,
    *moves.ROUTES,
    *decommissions.ROUTES,
    *restarts.ROUTES,
    *transactions.ROUTES,
    *users.ROUTES,
    *clock.ROUTES,
    *faults.ROUTES,
    *nodes.ROUTES,
)
"""The first that fits a path is taken: /topics/-/configs stands before /topics/{topic_name}/configs."""
