"""Asking a node's HTTP API: answers, refusals, silence."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.testing.cluster import AdminCluster, Cluster
from tests.cli.live import CommandLine, invoke

pytestmark = pytest.mark.slow


def test_an_answer_is_what_the_node_says(cluster: Cluster) -> None:
    """Of each node."""
    for node_id in cluster.nodes:
        found = HttpApi(cluster.admin_url(node_id)).ask("GET", "/v3/clusters")
        assert len(found["data"]) == 1


def test_a_refusal_is_the_nodes_own_sentence_and_a_code(cluster: Cluster) -> None:
    """404 is 3, as on the wire."""
    with pytest.raises(Failure, match="cluster nowhere-1 ") as caught:
        HttpApi(cluster.admin_url()).ask("GET", "/v3/clusters/nowhere-1")
    assert caught.value.code == exits.NOT_FOUND


def test_a_kafka_port_is_not_taken_for_the_api(cluster: Cluster) -> None:
    """The commonest mix-up, answered at once or when the time is up."""
    with pytest.raises(Failure) as caught:
        HttpApi(f"http://{cluster.nodes[1].address}", timeout_s=2).ask("GET", "/v1/ready")
    assert caught.value.code == exits.UNREACHABLE


def test_a_broker_is_drained_and_leads_again_when_that_is_undone(
    cluster: Cluster, raftlog: CommandLine
) -> None:
    """Asked of another node; what other tests keep on this broker alone stays. The cluster is left as it was."""
    url, there = cluster.admin_url(1), HttpApi(cluster.admin_url(2))
    alone = [each for each in raftlog.rows("partition", "list") if each["replicas"] == [3]]
    try:
        assert invoke("broker", "drain", "3", "--http", url) == (
            0,
            "broker 3 leads only partitions that no other broker can lead\n",
            "",
        )
        drained = {"broker_id": 3, "draining": True, "leaderships": len(alone)}
        cluster.wait_until(
            lambda: there.ask("GET", "/v1/brokers/3/drain") == drained, "another node heard of it"
        )
    finally:
        undone = invoke("broker", "drain", "3", "--undo", "--http", url)
    assert undone[0] == 0 and "`raftlog partition elect`" in undone[1]
    cluster.wait_until(
        lambda: not there.ask("GET", "/v1/brokers/3/drain")["draining"], "another node heard of that"
    )
    there.ask("POST", "/v1/elections", {})
    refused = invoke("broker", "drain", "77", "--http", url)
    assert refused == (exits.NOT_FOUND, "", "raftlog: there is no broker 77\n")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:1", exits.UNREACHABLE),
        ("localhost:9644", exits.USAGE),
        ("ftp://x", exits.USAGE),
        ("http://localhost:abc", exits.USAGE),
    ],
)
def test_draining_without_an_answer_is_one_line(url: str, code: int) -> None:
    """An invalid URL is reported earlier."""
    ran = invoke("broker", "drain", "1", "--http", url, "--timeout", "1")
    assert (ran[0], ran[1]) == (code, "") and ran[2].count("\n") == 1 and url in ran[2]
    assert code != exits.UNREACHABLE or "--http http://HOST:PORT, RAFTLOG_HTTP" in ran[2]


def test_either_way_to_say_where_the_cluster_is_is_taken_by_every_command(
    cluster: Cluster, raftlog: CommandLine
) -> None:
    """-b as in all commands: the broker then returns the address of its API. --http takes precedence."""
    urls = [cluster.admin_url(node_id) for node_id in cluster.nodes]
    for words in (
        ("cluster", "health"),
        ("transaction", "list"),
        ("transaction", "find-hanging"),
        ("broker", "drain", "3", "--undo"),
    ):
        ran = raftlog(*words)
        assert ran.returncode == 0, ran.stderr
        assert invoke(*words, "--http", urls[0], "-b", "127.0.0.1:1")[0] == 0
    silent = invoke("cluster", "health", "-b", "127.0.0.1:1", "--timeout", "1")
    assert (silent[0], silent[1]) == (exits.UNREACHABLE, "")
    assert silent[2].startswith("raftlog: no broker answers at 127.0.0.1:1")


def test_a_port_of_another_service_is_recognized(cluster: Cluster) -> None:
    """Kafka and HTTP differ by a port only, and it is easily mistaken."""
    kafka, http = cluster.bootstrap_servers.split(",")[0], urlsplit(cluster.admin_url(1)).netloc
    code, _, said = invoke("cluster", "health", "--http", f"http://{kafka}")
    assert (
        code == exits.UNREACHABLE and "Kafka answers there: name a port of the HTTP API, such as 9644" in said
    )
    for words in (("topic", "list"), ("status",), ("top", "--num", "1")):
        code, _, said = invoke(*words, "-b", http)
        assert code == exits.UNREACHABLE and "HTTP answers there, not Kafka" in said, words
        assert "no broker answers" not in said


def test_a_nodes_other_http_service_is_recognized(cluster: Cluster) -> None:
    """Its answer was that there is nothing at /schemas. A subject that is not there is still just that."""
    api, registry = cluster.admin_url(1), cluster.schema_registry_url(1)
    for words in (
        ("schema", "list"),
        ("schema", "versions", "none"),
        ("schema", "register", "none", __file__, "--type", "avro"),
        ("schema", "check", "none", __file__, "--type", "avro"),
    ):
        assert invoke(*words, "--registry", api) == (
            exits.UNREACHABLE,
            "",
            f"raftlog: {api}: the HTTP API answers there, not the schema registry: name a port of the schema registry, "
            "such as 8081\n",
        )
    assert invoke("cluster", "health", "--http", registry) == (
        exits.UNREACHABLE,
        "",
        f"raftlog: {registry}: the schema registry answers there, not the HTTP API: name a port of the HTTP API, such "
        "as 9644\n",
    )
    code, _, said = invoke("schema", "versions", "none", "--registry", registry)
    assert code == exits.NOT_FOUND and "subject 'none'" in said


def test_the_api_of_another_cluster_is_refused(cluster: Cluster) -> None:
    """A container's port may be that of another cluster here: its health was printed, with exit code 0."""
    others = urlsplit(cluster.admin_url(1)).netloc
    with AdminCluster(1, settings={"raftlog.admin.advertised.listener": others}) as own:
        for words in (("cluster", "health"), ("broker", "drain", "1")):
            code, out, said = invoke(*words, "-b", own.bootstrap_servers)
            assert (code, out, said.count("\n")) == (exits.UNREACHABLE, "", 1)
            assert f"http://{others} is that of another cluster" in said
        assert invoke("cluster", "health", "--http", own.admin_url(1))[0] == exits.OK


def test_a_cluster_without_an_api_says_so(cluster: Cluster) -> None:
    """One line: what was looked for, and what to do."""
    with Cluster(1) as without:
        code, out, said = invoke("cluster", "health", "-b", without.bootstrap_servers)
    assert (code, out) == (exits.UNREACHABLE, "")
    assert "that of broker 1 listens at nowhere" in said and "set its address with --http" in said
