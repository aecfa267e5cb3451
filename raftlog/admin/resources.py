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
    broker_facts,
    client_quotas,
    clock,
    decommissions,
    elections,
    events,
    explain,
    faults,
    group_lines,
    group_why,
    health,
    held_offsets,
    index,
    measures,
    moves,
    nodes,
    overview,
    probes,
    quorum,
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
    *group_lines.ROUTES,
    *reading.ROUTES,
    *topic_records.ROUTES,
    *topic_views.ROUTES,
    *measures.ROUTES,
    *held_offsets.ROUTES,
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
    *broker_facts.ROUTES,
    *restarts.ROUTES,
    *transactions.ROUTES,
    *users.ROUTES,
    *client_quotas.ROUTES,
    *clock.ROUTES,
    *faults.ROUTES,
    *nodes.ROUTES,
)
"""The first that fits a path is taken: /topics/-/configs stands before /topics/{topic_name}/configs."""
