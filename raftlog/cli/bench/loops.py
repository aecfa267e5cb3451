"""The event loops of a cluster's nodes as figures of `raftlog bench`: how long each was stalled by itself."""

from __future__ import annotations

from raftlog.cli.bench.figure import Figure
from raftlog.testing.cluster import AdminCluster
from raftlog_chaos.bench.loop_lag import LATE, OWN, Lag, look

LAG_AIM_MS = 100.0


def look_at(cluster: AdminCluster) -> dict[int, Lag]:
    """Look at the nodes that run."""
    return {node_id: look(cluster.admin_url(node_id)) for node_id in sorted(cluster.running_ids())}


def own_stall(part: str, name: str, before: dict[int, Lag], after: dict[int, Lag]) -> Figure:
    """Return the longest turn of a loop between two looks."""

    def longest_ms(which: str) -> float:
        return 1000 * max(after[each].longest_s(before[each], which) for each in after)

    note = f"all late ones within {longest_ms(LATE):g} ms, waiting for disks and cores included"
    return Figure(part, f"{name}, own stall", longest_ms(OWN), "ms", LAG_AIM_MS, note=note)
