"""`raftlog cluster …`: what the cluster is made of."""

from __future__ import annotations

from raftlog.cli.rows import Form, print_object, print_table
from raftlog.cli.target import Target
from raftlog.cli.verb import noun, verb

cluster = noun("Describe the cluster; is it healthy?")


@cluster.callback()
def _together() -> None:
    """Describe the cluster; is it healthy?"""


@verb(cluster, "describe", prints_rows=True)
def describe(target: Target, *, form: Form) -> None:
    """Show the cluster's id, its controller, its brokers, and how much it holds."""
    admin = target.admin
    about = admin.ask(admin.client.describe_cluster)
    metadata = admin.metadata()
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    controller = about.controller.id if about.controller else None
    found = {
        "cluster": about.cluster_id,
        "controller": controller,
        "brokers": len(about.nodes),
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "without_a_leader": sum(each.leader < 0 for each in partitions),
        "under_replicated": sum(len(each.isrs) < len(each.replicas) for each in partitions),
    }
    nodes = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "leads": sum(each.leader == node.id for each in partitions),
            "replicas": sum(node.id in each.replicas for each in partitions),
        }
        for node in sorted(about.nodes, key=lambda node: int(node.id))
    ]
    if form is not Form.TABLE:
        print_object({**found, "nodes": nodes}, form)
        return
    print_object(found, form)
    print()
    print_table(nodes, ("broker", "host", "port", "rack", "leads", "replicas"))
