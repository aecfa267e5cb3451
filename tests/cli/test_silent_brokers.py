"""Every command that talks to a cluster, if no broker answers or one hangs: a line of text, no traceback."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from raftlog.cli import exits, http_api, target
from raftlog.cli.commands import COMMANDS
from raftlog.cli.tree import load
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.ports import HeldPorts
from tests.cli.live import CommandLine, invoke
from tests.client.scripted_broker import SILENT, ScriptedBroker

SCHEMA: Final = Path(__file__).parent / "live.py"
"""Some text; no broker sees it."""

ARGUMENTS: Final = {
    "acl add": "--topic t --allow-principal User:a --producer",
    "acl delete": "--topic t --force",
    "acl list": "",
    "broker configs": "2",
    "broker cordon": "77",
    "broker decommission": "77",
    "broker decommission-status": "2",
    "broker describe": "2",
    "broker drain": "77",
    "broker list": "",
    "broker log-dirs": "",
    "broker recommission": "77",
    "broker restart-risks": "2",
    "broker unregister": "77",
    "cluster describe": "",
    "cluster health": "",
    "cluster rebalance": "",
    "cluster restart": "--each true --dry-run",
    "cluster upgrade": "--dry-run",
    "config get": "broker 2",
    "config set": "topic nosuch retention.ms=1",
    "config unset": "topic nosuch retention.ms",
    "consume": "-t t -e",
    "group delete": "nosuch",
    "group delete-offsets": "nosuch --topic t",
    "group describe": "nosuch",
    "group list": "",
    "group offsets": "nosuch",
    "group reset": "nosuch --topic t --to-earliest",
    "node wait-safe": "--wait 0",
    "partition describe": "t 0",
    "partition elect": "",
    "partition list": "",
    "partition offsets": "t",
    "partition reassign": "nosuch:0 --replicas 1,2",
    "partition reassignments": "",
    "partition unthrottle": "nosuch",
    "produce": "-t t",
    "quorum add": "77 --controller 127.0.0.1:1",
    "quorum dynamic": "",
    "quorum remove": "77",
    "quorum replace": "77 78 --controller 127.0.0.1:1",
    "quorum replication": "",
    "quorum status": "",
    "quorum why": "",
    "quota delete": "--user nosuch",
    "quota list": "",
    "quota set": "--user nosuch producer_byte_rate=1",
    "schema check": f"nosuch {SCHEMA} --type avro",
    "schema compatibility": "",
    "schema delete": "nosuch",
    "schema get": "nosuch",
    "schema list": "",
    "schema register": f"nosuch {SCHEMA} --type avro",
    "schema versions": "nosuch",
    "share-group archive": "nosuch t:0",
    "share-group delete": "nosuch",
    "share-group delete-offsets": "nosuch --topic t",
    "share-group describe": "nosuch",
    "share-group list": "",
    "share-group release": "nosuch t:0",
    "share-group reset": "nosuch --topic t --to-earliest",
    "share-group why": "nosuch t 0 0",
    "status": "",
    "token create": "",
    "token delete": "aGVsbG8=",
    "token list": "",
    "token renew": "aGVsbG8=",
    "top": "--num 1",
    "topic add-partitions": "nosuch --partitions 2",
    "topic alter": "nosuch -c retention.ms=1",
    "topic create": "made",
    "topic delete": "nosuch",
    "topic describe": "t",
    "topic list": "",
    "topic trim": "nosuch --offset 0",
    "transaction abort": "--topic t --partition 0 --start-offset 0",
    "transaction describe": "nosuch",
    "transaction find-hanging": "",
    "transaction list": "",
    "user delete": "nosuch",
    "user list": "",
    "user set": "nosuch --password-stdin",
}
"""What each command is given here. Names that do not exist keep the cluster as it is."""
OTHERS: Final = {
    "debug bundle": "writes an archive without a broker, too",
    "context add": "only saves an address",
    "conformance": "compares answers, and has tests of its own",
    "pipeline archive": "a job of Spark",
    "pipeline aggregate": "a job of Spark",
    "pipeline audit": "a job of Spark",
    "pipeline mirror": "a job of Spark",
    "pipeline table": "a job of Spark",
    "table describe": "needs packages of its own, and has tests of its own",
    "table run": "needs packages of its own, and has tests of its own",
}


def commands_with_a_cluster() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the options of every command that takes -b or --http."""
    for name, entry in COMMANDS.items():
        command: Any = load(entry, name)
        verbs = getattr(command, "commands", None)
        for words, each in (
            {f"{name} {verb}": each for verb, each in verbs.items()}.items() if verbs else [(name, command)]
        ):
            options = frozenset(option for parameter in each.params for option in parameter.opts)
            if options & {"-b", "--http"} and not each.hidden:
                yield words, options


def test_every_command_is_tried_here() -> None:
    """A new command that talks to a cluster needs a line in the table."""
    assert {name for name, _ in commands_with_a_cluster()} == ARGUMENTS.keys() | OTHERS.keys()


def run(name: str, address: str, url: str, *more: str) -> tuple[int, bytes, str]:
    """Run a command; returns (exit code, output, errors). A traceback is raised."""
    reach = ("--http", url) if name == "node wait-safe" else ()
    ran = CommandLine(address)(*name.split(), *ARGUMENTS[name].split(), *reach, *more, stdin=b"password\n")
    return ran.returncode, ran.out, ran.stderr


@pytest.mark.parametrize("name", ARGUMENTS)
def test_without_a_broker_a_command_ends_with_one_line(name: str) -> None:
    """The reason, the address, and the exit code for it; a traceback would be raised here."""
    held = HeldPorts(1)
    where = f"127.0.0.1:{held.ports[0]}"
    held.release()
    code, out, said = run(name, where, f"http://{where}", "-m", "0.1")
    assert (code, out) == (exits.UNREACHABLE, b"")
    assert said.startswith("raftlog: ") and said.count("\n") == 1 and where in said


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("asked", [1, 3])
def test_where_one_broker_of_three_hangs_no_command_ends_with_a_traceback(asked: int) -> None:
    """`raftlog group list` did, when it was needed. Node 3 hangs, and is the only server that is named, or another."""
    with AdminCluster(3) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.wait_until_healthy()
        cluster.pause(3)
        for name in ARGUMENTS:
            code, out, said = run(name, cluster.nodes[asked].address, cluster.admin_url(asked), "-m", "1")
            assert code != exits.USAGE, f"{name}: {said}"
            assert code == exits.OK or said.startswith("raftlog: ") or out, f"{name}: {code}, {said}"


def test_brokers_without_a_controller_are_not_called_silent() -> None:
    """They answer what they know themselves, and forward what only a controller decides."""
    with ScriptedBroker(lambda *_request: SILENT) as broker:
        where = f"{broker.host}:{broker.port}"
        for name in ("topic create", "partition elect", "broker unregister"):
            code, _, said = run(name, where, f"http://{where}", "-m", "0.3")
            assert code == exits.UNREACHABLE, name
            assert "no broker" not in said and "controller" in said and where in said, name


def test_a_command_without_an_address_says_how_to_start_a_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A newcomer has none yet: `raftlog dev` is the next thing to type."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # no cluster runs there
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setattr(target, "LOCAL", where)
        code, _, said = invoke("topic", "list", "-m", "0.1")
        assert code == exits.UNREACHABLE and f"at {where}" in said and "start one with `raftlog dev`" in said
        here = http_api.ADMIN_API._replace(local=f"http://{where}")
        with pytest.raises(exits.Failure, match="start one with `raftlog dev`"):
            http_api.HttpApi(here.local, service=here).ask("GET", "/v1/health")
