"""Writes the Grafana dashboard from the table below: `python3 deploy/monitoring/make_dashboard.py`.

A panel is a row of the table; Grafana's JSON of it is too long to read. A test compares the file with the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).parent / "grafana" / "dashboards" / "raftlog.json"
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CLUSTER = 'cluster="$cluster"'
"""One cluster, by the label that its targets have; targets without that label are those of the cluster with no name."""
END_INDEX = f"raftlog_raft_end_index{{{CLUSTER}}}"
NODES = f'{CLUSTER},instance=~"$node"'
TOPICS = f'{CLUSTER},topic=~"$topic"'


class Panel(NamedTuple):
    """A panel: expressions by legend. A `stat` shows numbers, which are red unless they are the good one."""

    title: str
    about: str
    expressions: dict[str, str]
    unit: str = "short"
    stat: bool = False
    good: int = 0


def _rate(metric: str, by: str, selector: str = NODES) -> str:
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str, selector: str = NODES) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))"


ROWS: dict[str, list[Panel]] = {
    "Is it well": [
        Panel("Nodes", "Nodes that answer.", {"": f'sum(up{{{CLUSTER},job=~"$job"}})'}, stat=True, good=-1),
        Panel(
            "Controllers",
            "It must be one.",
            {"": f"sum(raftlog_node_is_controller{{{CLUSTER}}})"},
            stat=True,
            good=1,
        ),
        Panel(
            "Offline",
            "Partitions without a leader.",
            {"": f"max(raftlog_cluster_partitions_leaderless{{{CLUSTER}}})"},
            stat=True,
        ),
        Panel(
            "Under min ISR",
            "Partitions where acks=all fails.",
            {"": f"max(raftlog_cluster_partitions_under_min_isr{{{CLUSTER}}})"},
            stat=True,
        ),
        Panel(
            "Under-replicated",
            "Partitions that miss a replica.",
            {"": f"max(raftlog_cluster_partitions_under_replicated{{{CLUSTER}}})"},
            stat=True,
        ),
        Panel(
            "Fenced",
            "Brokers that do not take part.",
            {"": f"max(raftlog_cluster_brokers_fenced{{{CLUSTER}}})"},
            stat=True,
        ),
    ],
    "What clients do": [
        Panel(
            "Records in",
            "By topic, a second.",
            {"{{topic}}": _rate("raftlog_topic_messages_in_total", "topic", TOPICS)},
            "cps",
        ),
        Panel(
            "Records out",
            "To consumers, by topic, a second; counted by offsets.",
            {"{{topic}}": _rate("raftlog_topic_messages_out_total", "topic", TOPICS)},
            "cps",
        ),
        Panel(
            "Bytes in and out",
            "All topics, a second; replication apart.",
            {
                "in": f"sum(rate(raftlog_topic_bytes_in_total{{{TOPICS}}}[$__rate_interval]))",
                "out": f"sum(rate(raftlog_topic_bytes_out_total{{{TOPICS}}}[$__rate_interval]))",
                "replication": f"sum(rate(raftlog_topic_replication_bytes_out_total{{{TOPICS}}}[$__rate_interval]))",
            },
            "Bps",
        ),
        Panel(
            "Produce latency",
            "From a request's last byte to its response, replication included.",
            {
                "p50": _quantile(0.5, "raftlog_request_seconds", "api", f'api="Produce",{NODES}'),
                "p99": _quantile(0.99, "raftlog_request_seconds", "api", f'api="Produce",{NODES}'),
            },
            "s",
        ),
        Panel("Requests", "By API, a second.", {"{{api}}": _rate("raftlog_requests_total", "api")}, "reqps"),
        Panel(
            "Group lag",
            "Records that a group has not committed.",
            {
                "{{consumergroup}} {{topic}}": f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{TOPICS}}})"
            },
        ),
        Panel(
            "Failed requests",
            "Produces and fetches that failed, a second.",
            {
                "produce": f"sum(rate(raftlog_topic_produces_failed_total{{{TOPICS}}}[$__rate_interval]))",
                "fetch": f"sum(rate(raftlog_topic_fetches_failed_total{{{TOPICS}}}[$__rate_interval]))",
            },
            "cps",
        ),
    ],
    "Share groups": [
        Panel(
            "Share group lag",
            "Records that a share group has not done.",
            {"{{group}} {{topic}}": f"sum by (group, topic) (raftlog_share_group_lag{{{TOPICS}}})"},
        ),
        Panel(
            "Deliveries",
            "Records that members acquired, that they acquired again, and that no member gets again; a second.",
            {
                "{{group}}": _rate("raftlog_share_group_deliveries_total", "group"),
                "{{group}} again": _rate("raftlog_share_group_redeliveries_total", "group"),
                "{{group}} given up": _rate("raftlog_share_group_archived_total", "group"),
            },
            "cps",
        ),
        Panel(
            "Held",
            "Records that members hold.",
            {"{{group}} {{topic}}": f"sum by (group, topic) (raftlog_share_group_locks{{{TOPICS}}})"},
        ),
        Panel(
            "State writes, p99",
            "What acknowledgements wait for, by the leader.",
            {"{{instance}}": _quantile(0.99, "raftlog_share_state_write_seconds", "instance")},
            "s",
        ),
        Panel(
            "Dead letters",
            "Letters that were written, attempts that failed, and records that were given up without; a second.",
            {
                "{{group}}": _rate("raftlog_share_group_dead_letters_total", "group"),
                "{{group}} failed": _rate("raftlog_share_group_dead_letter_failures_total", "group"),
                "{{group}} lost": _rate("raftlog_share_group_dead_letters_lost_total", "group"),
            },
            "cps",
        ),
    ],
    "Replication and the quorum": [
        Panel(
            "ISR changes",
            "Replicas that left and joined, a second.",
            {
                "shrinks": f"max(rate(raftlog_isr_shrinks_total{{{CLUSTER}}}[$__rate_interval]))",
                "expands": f"max(rate(raftlog_isr_expands_total{{{CLUSTER}}}[$__rate_interval]))",
            },
            "cps",
        ),
        Panel("Partitions led", "By node.", {"{{instance}}": f"raftlog_partitions_led{{{NODES}}}"}),
        Panel(
            "Lag of voters",
            "Entries of the metadata log behind the node that has most.",
            {"{{instance}}": f"scalar(max({END_INDEX})) - {END_INDEX}"},
        ),
        Panel(
            "Term",
            "It grows with each election of a controller.",
            {"{{instance}}": f"raftlog_raft_term{{{CLUSTER}}}"},
        ),
    ],
    "Nodes": [
        Panel(
            "Sync, p99",
            "fdatasync of logs, which acks=all waits for.",
            {"{{instance}}": _quantile(0.99, "raftlog_log_sync_seconds", "instance")},
            "s",
        ),
        Panel(
            "Event loop, p99 late",
            "How late the loop runs: all requests wait so long.",
            {"{{instance}}": _quantile(0.99, "raftlog_event_loop_lag_seconds", "instance")},
            "s",
        ),
        Panel(
            "CPU",
            "Cores in use.",
            {"{{instance}}": f"rate(process_cpu_seconds_total{{{NODES}}}[$__rate_interval])"},
        ),
        Panel("Memory", "Resident.", {"{{instance}}": f"process_resident_memory_bytes{{{NODES}}}"}, "bytes"),
        Panel(
            "Memory for clients",
            "What clients and brokers make a node keep, by account.",
            {"{{instance}} {{account}}": f"raftlog_memory_used_bytes{{{NODES}}}"},
            "bytes",
        ),
        Panel(
            "Connections", "By kind.", {"{{kind}}": f"sum by (kind) (raftlog_connections_by_kind{{{NODES}}})"}
        ),
        Panel(
            "Logs",
            "Bytes of all replicas.",
            {"{{instance}}": f"sum by (instance) (raftlog_partition_size_bytes{{{NODES}}})"},
            "bytes",
        ),
        Panel("Open files", "", {"{{instance}}": f"process_open_fds{{{NODES}}}"}),
    ],
    "Transactions": [
        Panel(
            "Transactional ids",
            "By state.",
            {"{{state}}": f"sum by (state) (raftlog_transactional_ids{{{CLUSTER}}})"},
        ),
        Panel(
            "Oldest open transaction",
            "Readers of committed records wait for it.",
            {"": f"max(raftlog_transaction_oldest_open_seconds{{{CLUSTER}}})"},
            "s",
        ),
    ],
}


def expressions() -> list[str]:
    """Return every expression of the dashboard."""
    return [each for panels in ROWS.values() for panel in panels for each in panel.expressions.values()]


def _thresholds(panel: Panel) -> dict[str, Any]:
    if not panel.stat or panel.good < 0:
        return {"mode": "absolute", "steps": [{"color": "green", "value": None}]}
    steps = [{"color": "red", "value": None}] if panel.good else []
    steps += [{"color": "green", "value": panel.good or None}, {"color": "red", "value": panel.good + 1}]
    return {"mode": "absolute", "steps": steps}


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": _thresholds(panel)}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.expressions.items())
        ],
    }


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS.items():
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": title,
                "panels": [],
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            }
        )
        top += 1
        width, height = (WIDTH // 6, 4) if panels[0].stat else (WIDTH // 2, 8)
        for place, panel in enumerate(panels):
            row, column = divmod(place, WIDTH // width)
            at = {"x": column * width, "y": top + row * height, "w": width, "h": height}
            made.append(_panel(panel, len(made) + 1, at))
        top += height * -(-len(panels) // (WIDTH // width))
    return made


def _values(metric: str, label: str) -> str:
    return f"label_values({metric}{{{CLUSTER}}}, {label})"


def _variable(name: str, label: str, query: str, *, one: bool = False) -> dict[str, Any]:
    """Return a variable of which several values can be chosen, all at first; or `one`, the first at first."""
    several = {
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        **({"includeAll": False, "multi": False} if one else several),
    }


def make_dashboard() -> str:
    """Return the dashboard as Grafana's JSON."""
    dashboard = {
        "uid": "raftlog",
        "title": "raftlog",
        "tags": ["raftlog", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("cluster", "Cluster", "label_values(raftlog_node_info, cluster)", one=True),
                _variable("job", "Job", _values("raftlog_node_info", "job")),
                _variable("node", "Node", _values("raftlog_node_info", "instance")),
                _variable("topic", "Topic", _values("raftlog_topic_messages_in_total", "topic")),
            ]
        },
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=1) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(make_dashboard())
