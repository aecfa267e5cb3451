"""Claims about docker-compose.yml and its image, with a real engine and stock clients."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from raftlog.testing.probe import view_cluster
from tests.compose.conftest import (
    BOOTSTRAP,
    ComposeProducer,
    compose,
    container,
    healthy,
    in_sync,
    inspect,
    read_all,
    run,
    wait_until,
)
from tests.kit.waits import PATIENCE_S

BASE_IMAGE = "python:3.11-slim-bookworm"  # the base image of deploy/Dockerfile
NODES = ("node1", "node2", "node3")
AFTER = 50
"""Records that must be acknowledged after a deed."""
pytestmark = pytest.mark.compose


def during(stream: ComposeProducer, deed: Callable[[], None]) -> None:
    """Do it while the stream writes; it goes on after."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            deed()
            before = len(stream.acked)
            wait_until(lambda: len(stream.acked) > before + AFTER, "writing goes on")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    stream.write(thread.is_alive)
    thread.join()
    assert not failed, failed


@pytest.mark.taste
def test_image_is_small_and_runs_without_rights_on_a_read_only_file_system() -> None:
    """A breach could do little, and pulling takes seconds: what stands on the base image has less than 90 MB.

    15 MB of that are `cryptography` and what it needs: certificates, and keys of identity providers. 6 MB are the
    packages that parse schemas.
    """
    image = inspect(inspect(container("node1"))["Image"])
    own = image["Size"] - inspect(BASE_IMAGE)["Size"]
    print(f"image: {image['Size'] / 1e6:.0f} MB, {own / 1e6:.0f} MB of them raftlog and its packages")
    assert own < 90e6
    assert image["Config"]["Labels"]["org.opencontainers.image.version"]
    node = inspect(container("node1"))
    assert node["HostConfig"]["ReadonlyRootfs"]
    assert compose("exec", "-T", "node1", "id", "-u").strip() == "10001"


@pytest.mark.taste
def test_nothing_is_compiled_when_a_node_starts() -> None:
    """The image brings the byte code of all that a node loads, since no node can write it there."""
    code = (
        "import os, sys, uvloop, raftlog.cli.server, raftlog.process, raftlog.admin.server\n"
        "found = [(name, getattr(module, '__cached__', None)) for name, module in sys.modules.items()]\n"
        "print(*(name for name, path in found if path and not os.path.exists(path)))"
    )
    assert compose("exec", "-T", "node1", "python", "-c", code).split() == []


def test_a_container_can_take_its_own_share_of_the_machine_only() -> None:
    """Memory, processes, open files and logs, as the engine has them in force."""
    host = inspect(container("node1"))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert host["PidsLimit"] == 256
    limits = {each["Name"]: (each["Soft"], each["Hard"]) for each in host["Ulimits"]}
    assert limits == {"nofile": (20_000, 20_000), "core": (0, 0)}
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "5", "max-size": "10m"}}


@pytest.mark.taste
def test_clients_on_the_host_and_in_containers_see_the_same(topic: str) -> None:
    """Two listeners, each advertised to the clients that can reach it."""
    stream = ComposeProducer(topic)
    end = time.monotonic() + 1
    stream.write(lambda: time.monotonic() < end)
    inside = compose("exec", "-T", "node2", "raftlog", "consume", "-b", "node1:9092", "-t", topic, "-e")
    assert sorted(map(int, inside.split())) == sorted(stream.acked)
    assert not stream.failures


def test_admin_api_answers_with_the_clusters_token_only() -> None:
    """The token is made at the first start, and only the cluster has it."""
    words = compose("run", "--rm", "-T", "secrets", "cat", "/run/raftlog/admin.tokens").split()
    assert words[:2] == ["operator", "admin"]
    for port in (19641, 19642, 19643):
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {words[2]}"}, 200)):
            connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
            connection.request("GET", "/v3/clusters", headers=headers)
            answer = connection.getresponse()
            assert answer.status == status
            json.loads(answer.read())
            connection.close()


@pytest.mark.taste
def test_the_schema_registry_of_each_node_is_published() -> None:
    """A schema that one node registers is read at all; without the cluster's token none answers."""
    token = compose("run", "--rm", "-T", "secrets", "cat", "/run/raftlog/admin.tokens").split()[2]

    def ask(port: int, path: str, body: object = None, proof: str = f"Bearer {token}") -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
        headers = {"Authorization": proof, "Content-Type": "application/json"}
        connection.request("POST" if body else "GET", path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    status, made = ask(18081, "/subjects/compose-value/versions", {"schema": '"string"'})
    assert status == 200, made
    for port in (18081, 18082, 18083):
        status, found = ask(port, f"/schemas/ids/{made['id']}")
        assert (status, found.get("schema")) == (200, '"string"'), found
        assert ask(port, "/subjects", proof="Bearer wrong")[0] == 401


@pytest.mark.taste
def test_container_that_is_killed_loses_nothing_and_comes_back(topic: str) -> None:
    """kill -9 of a node by the engine, under a producer; it is started again and is in sync."""
    stream = ComposeProducer(topic)

    def kill() -> None:
        compose("kill", "node2")
        wait_until(lambda: max(in_sync(topic) or [3]) == 2, "the others carry on without it")
        compose("start", "node2")
        wait_until(lambda: in_sync(topic) == [3, 3, 3], "it is in sync again")

    during(stream, kill)
    assert not stream.failures
    assert sorted(read_all(topic)) == sorted(stream.acked)


def test_rolling_restart_of_all_nodes_costs_no_client_an_error(topic: str) -> None:
    """SIGTERM hands leaderships over first; every record is there once."""
    stream = ComposeProducer(topic)

    def roll() -> None:
        for node in NODES:
            compose("restart", node)
            wait_until(lambda node=node: healthy(node), f"{node} is healthy")
            wait_until(lambda: in_sync(topic) == [3, 3, 3], f"all in sync after {node}")

    during(stream, roll)
    print(f"rolling restart: {len(stream.acked)} records, longest gap {stream.longest_gap_s:.2f} s")
    assert not stream.failures
    assert sorted(read_all(topic)) == sorted(stream.acked)


def test_node_taken_from_the_network_comes_back_into_sync(topic: str) -> None:
    """docker network disconnect, as an operator would try it; every acknowledged record is still there."""
    stream = ComposeProducer(topic)
    node3 = inspect(container("node3"))
    (network,) = node3["NetworkSettings"]["Networks"]

    def cut_off() -> None:
        run("docker", "network", "disconnect", network, node3["Id"])
        wait_until(lambda: max(in_sync(topic) or [3]) == 2, "the others carry on without it")
        run("docker", "network", "connect", "--alias", "node3", network, node3["Id"])
        wait_until(lambda: in_sync(topic) == [3, 3, 3], "it is in sync again")

    during(stream, cut_off)
    assert not stream.failures
    assert sorted(read_all(topic)) == sorted(stream.acked)


def test_down_and_up_keeps_every_record(topic: str) -> None:
    """The volumes are the cluster; the containers are not."""
    stream = ComposeProducer(topic)
    end = time.monotonic() + 1
    stream.write(lambda: time.monotonic() < end)
    compose("down", "--timeout", "20")
    began = time.monotonic()
    compose("up", "--detach", "--wait")
    print(f"up to healthy: {time.monotonic() - began:.1f} s")
    assert sorted(read_all(topic)) == sorted(stream.acked)


def test_five_nodes_vote_and_a_sixth_only_holds_partitions() -> None:
    """deploy/five.env and the profile `broker`, on fresh volumes."""
    compose("down", "--volumes", "--timeout", "5")
    five = ("--env-file", "deploy/five.env", "--profile", "five", "--profile", "broker")
    try:
        compose(*five, "up", "--detach", "--wait")
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        wait_until(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 6, "six brokers")
        quorum = compose(
            *five, "exec", "-T", "broker6", "raftlog", "quorum", "status", "-b", "node5:9092", "-o", "json"
        )
        assert json.loads(quorum)["voters"] == [1, 2, 3, 4, 5]
    finally:
        compose(*five, "down", "--volumes", "--timeout", "1")


def test_secure_env_admits_its_users_and_no_others() -> None:
    """deploy/secure.env, on fresh volumes: TLS, logins and rules, for clients on this machine and in containers."""
    compose("down", "--volumes", "--timeout", "5")
    secure = ("--env-file", "deploy/secure.env")
    raftlog = (*secure, "exec", "-T", "users", "raftlog")
    inside = ("-b", "node1:9092,node2:9092,node3:9092", "-F")
    files = {user: f"/run/raftlog/clients/{user}.properties" for user in ("admin", "writer", "reader")}
    try:
        began = time.monotonic()
        compose(*secure, "up", "--detach", "--wait")
        print(f"secure, up to healthy: {time.monotonic() - began:.1f} s")
        users = json.loads(compose(*raftlog, "user", "list", "-J", *inside, files["admin"]))
        assert [each["user"] for each in users] == ["admin", "reader", "writer"]
        compose(*raftlog, "topic", "create", "orders", *inside, files["writer"])
        assert not compose(*raftlog, "topic", "delete", "orders", *inside, files["reader"], check=False)
        text = compose(
            *secure, "exec", "-T", "users", "sh", "-c", f"cat {files['writer']}; cat /run/raftlog/tls/ca.pem"
        )
        lines, _, authority = text.partition("-----BEGIN")
        login = dict(line.split("=", 1) for line in lines.split())
        login |= {"ssl.ca.pem": f"-----BEGIN{authority}", "bootstrap.servers": BOOTSTRAP}
        del login["ssl.ca.location"]
        _produce_from_here(login)
        read = compose(*raftlog, "consume", "-t", "orders", "-e", *inside, files["reader"])
        assert read.split() == ["from-the-host"]
        with pytest.raises(OSError):
            view_cluster("localhost", 19091)
        compose(*secure, "restart", "--timeout", "20", "node1")
        wait_until(lambda: healthy("node1"), "a node that is formatted already starts")
    finally:
        compose(*secure, "down", "--volumes", "--timeout", "1")


@pytest.fixture(scope="module")
def prometheus_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with this machine's Prometheus in the shape of prom/prometheus, which needs no registry."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus here")
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(program, folder / "prometheus")
    (folder / "Dockerfile").write_text(
        "FROM python:3.11-slim-bookworm\n"
        "COPY prometheus /bin/prometheus\n"
        "RUN install -d -o 65534 -g 65534 /prometheus\n"
        'ENTRYPOINT ["/bin/prometheus"]\n'
    )
    name = "raftlog-test-prometheus"
    run("docker", "build", "--quiet", "--tag", name, str(folder))
    return name


@pytest.mark.parametrize("options", [(), ("--env-file", "deploy/secure.env")], ids=["plain", "secure"])
def test_the_profile_monitoring_reads_every_node_with_a_readers_token(
    prometheus_image: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus is no root, has a read-only root, sees no secret but its token, and nodes let no other in."""
    monkeypatch.setenv("PROMETHEUS_IMAGE", prometheus_image)
    monitored = (*options, "--profile", "monitoring")
    nodes = ("node1", "node2", "node3", "prometheus")
    compose("down", "--volumes", "--timeout", "5")
    try:
        compose(*monitored, "up", "--detach", "--wait", *nodes)
        wait_until(lambda: _asked("sum(up)") == ["3"], "Prometheus reads three nodes")
        assert len(_asked("raftlog_node_info")) == 3
        inside = (*monitored, "exec", "-T", "prometheus", "sh", "-c")
        assert compose(*inside, "id -u; cat /run/raftlog/cluster.secret || echo none").split() == [
            "65534",
            "none",
        ]
        assert compose(*inside, "touch /here || echo refused").split() == ["refused"]
    finally:
        compose(*monitored, "down", "--volumes", "--timeout", "1")


def _asked(expression: str) -> list[str]:
    """Return the values that an expression has now."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://localhost:19090/api/v1/query?{query}", timeout=30) as response:
            found = json.load(response)["data"]["result"]
    except OSError:
        return []
    return [each["value"][1] for each in found]


def _produce_from_here(login: dict[str, str]) -> None:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer(dict(login))
    producer.produce("orders", b"from-the-host", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None]
