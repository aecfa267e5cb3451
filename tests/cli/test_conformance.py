"""Claims about `raftlog conformance`: what it prints and writes, its exit codes, and brokers that cannot be asked."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import Cluster
from raftlog.testing.secure_cluster import SecureCluster
from raftlog_chaos.conformance.brokers import Brokers, brokers
from raftlog_chaos.conformance.card.result import Card, Result, Step, Value
from raftlog_chaos.conformance.history import Needs
from tests.cli.live import CommandLine, invoke
from tests.kit.settings import SMALL

KEPT = "produce/acks/1"
BETTER = "produce/shape/no partition"


@pytest.fixture(scope="module")
def side() -> Iterator[Brokers]:
    """A broker of raftlog with no topic of its own."""
    with brokers("raftlog") as (made,):
        yield made


@pytest.fixture
def alone(side: Brokers) -> CommandLine:
    """The command line at that broker."""
    return CommandLine(side.get(Needs()).servers()[0])


@pytest.fixture(scope="module")
def closed() -> Iterator[SecureCluster]:
    """A node that speaks TLS and wants a login."""
    with SecureCluster(1, settings=SMALL) as found:
        yield found


def login(cluster: SecureCluster, user: str, folder: Path) -> str:
    """Return a file with the settings of a user's clients."""
    file = folder / "login.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in cluster.client_settings(user).items()))
    return str(file)


def test_the_card_is_printed_and_written(alone: CommandLine, tmp_path: Path) -> None:
    """A table by subject, the reasons, JSON, and a page that fetches and executes no script."""
    written, page = tmp_path / "card.json", tmp_path / "card.html"
    ran = alone(
        "conformance", "--only", f"{KEPT},{BETTER}", "--json", str(written), "--html", str(page), "--story"
    )
    assert ran.returncode == exits.OK, ran.stderr
    assert "2 histories: 1 kept, 1 differs, on purpose" in ran.stdout
    assert "stands in the answer, as it does in other APIs" in ran.stdout
    assert "raftlog    (responses=[(name=topic)])" in ran.stdout
    card = json.loads(written.read_text())
    assert card["subjects"]["produce"]["kept"] == 1 and card["left"] == []
    assert [each["outcome"] for each in card["histories"]] == ["kept", "differs, on purpose"]
    html = page.read_text()
    assert "<script" not in html and "http" not in html and BETTER in html
    rows = alone.rows("topic", "list", "--internal")
    assert [each for each in rows if not each["topic"].startswith("__")] == []


def test_nothing_is_run_where_the_options_are_wrong(tmp_path: Path) -> None:
    """The line names the option."""
    missing = str(tmp_path / "none" / "card.json")
    for arguments, said in (
        (("--only", "nothing/*"), "--only: no history is called 'nothing/*'"),
        (("--json", missing), f"{missing}: no such directory"),
        (("-F", missing), f"{missing}: No such file or directory"),
        (("-X", "linger.ms=5"), "-X linger.ms: this command only knows"),
    ):
        code, _, err = invoke("conformance", "-b", "127.0.0.1:1", *arguments)
        assert (code, err.startswith(f"raftlog: {said}")) == (exits.USAGE, True), err


def test_a_cluster_with_topics_of_its_own_is_refused(cluster: Cluster, ten: str) -> None:
    """--force runs all the same; several brokers are a note, as Kafka's responses are from a single broker."""
    raftlog = CommandLine(cluster.bootstrap_servers)
    ran = raftlog("conformance", "--only", KEPT)
    assert ran.returncode == exits.FAILED
    assert "the cluster has topics of its own: " in ran.stderr and "--force" in ran.stderr
    ran = raftlog("conformance", "--only", KEPT, "--force", "--name", "three nodes")
    assert ran.returncode == exits.OK, ran.stderr
    assert ran.stdout.startswith("three nodes (") and "note: The cluster has 3 brokers" in ran.stdout
    assert raftlog("topic", "describe", ten).returncode == exits.OK


def test_a_broker_that_is_not_there_is_one_line() -> None:
    """The code is that of all commands."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        held.close()
        code, _, err = invoke("conformance", "-b", "127.0.0.1:1", "-m", "2")
    assert code == exits.UNREACHABLE
    assert err.startswith("raftlog: no broker answers at 127.0.0.1:1 (Connection refused)")


def test_a_broker_that_speaks_tls_is_named_so(closed: SecureCluster, tmp_path: Path) -> None:
    """With the settings of a client the same broker has its card."""
    raftlog = CommandLine(closed.bootstrap_servers)
    ran = raftlog("conformance", "--only", KEPT)
    assert (ran.returncode, ran.stderr.splitlines()) == (
        exits.DENIED,
        [
            f"raftlog: {closed.bootstrap_servers}: its listener uses TLS: "
            "name your client's settings (security.protocol and so on) with -F FILE"
        ],
    )
    ran = raftlog("conformance", "--only", KEPT, "--properties", login(closed, "admin", tmp_path))
    assert ran.returncode == exits.OK, ran.stderr
    assert "1 history: 1 kept" in ran.stdout


def test_a_broker_that_refuses_rights_leaves_histories_not_run(closed: SecureCluster, tmp_path: Path) -> None:
    """A missing right is no evidence about the broker's responses."""
    raftlog = CommandLine(closed.bootstrap_servers)
    ran = raftlog("conformance", "--only", KEPT, "-F", login(closed, "writer", tmp_path))
    assert ran.returncode == exits.DENIED, ran.stdout
    assert "not run (1): the user lacks a right: CreateTopics: TOPIC_AUTHORIZATION_FAILED" in ran.stdout


def test_a_page_shows_text_of_a_broker_as_text() -> None:
    """A broker may answer with anything."""
    from raftlog_chaos.conformance.card.page import render

    odd = "<script>alert(1)</script>"
    step = Step(asked=odd, fields=odd, answer="", differing=[Value(path="answer", kafka="a", broker=odd)])
    result = Result(history=f"produce/{odd}", claim=odd, outcome="differs", why=[odd], steps=[step])
    card = Card(
        tool="raftlog",
        broker=odd,
        bootstrap=odd,
        is_raftlog=False,
        kafka="4.3.0",
        recorded="2026-11-28",
        began="2026-11-28T00:00:00+00:00",
        seconds=1.0,
        own=1,
        notes=[odd],
        left=[odd],
        histories=[result],
    )
    assert "<script" not in render(card)
