"""What `pip install raftlog` alone can do: every command that asks a cluster, without another Kafka client."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.live import CommandLine
from tests.kit.waits import run

pytestmark = pytest.mark.slow

WITHOUT_CLIENTS = """
import json, sys
for name in ("kafka", "confluent_kafka", "aiokafka", "kafka.errors", "confluent_kafka.admin"):
    sys.modules[name] = None  # an import raises ImportError
from typer.testing import CliRunner
from raftlog.cli.app import app
results = []
for arguments, given in json.load(sys.stdin):
    ran = CliRunner().invoke(app, arguments, input=given, prog_name="raftlog", catch_exceptions=False)
    results.append((ran.exit_code, ran.stdout, ran.stderr))
print(json.dumps(results))
"""


def without_clients(raftlog: CommandLine, *commands: str, stdin: str = "") -> list[str]:
    """Run commands in one process that can import no Kafka client; return what each prints. None may fail."""
    asked = [([*each.split(), "-b", raftlog.bootstrap], stdin) for each in commands]
    ran = run([sys.executable, "-c", WITHOUT_CLIENTS], stdin=json.dumps(asked), text=True)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    for command, (code, out, err) in zip(commands, results, strict=True):
        assert (code, err) == (0, ""), (command, out, err)
    return [out for _, out, _ in results]


@pytest.mark.parametrize("command", ["chaos", "pipeline demo"])
def test_what_loads_a_cluster_by_a_stock_client_says_at_once_that_it_has_none(command: str) -> None:
    """Before a case runs or a node starts, and without a traceback."""
    asked = json.dumps([(command.split(), "")])
    ran = run([sys.executable, "-c", WITHOUT_CLIENTS], stdin=asked, text=True)
    assert ran.returncode == 0, ran.stderr
    said = "raftlog: this needs a Kafka client: pip install confluent-kafka\n"
    assert json.loads(ran.stdout) == [[1, "", said]]


def test_acl_commands_say_how_a_cluster_gets_an_authorizer(raftlog: CommandLine, name: str) -> None:
    """The setting with its value, and the cluster for trying it."""
    for verb in ("list", f"add --topic {name} --allow-principal User:a --producer"):
        ran = raftlog("acl", *verb.split())
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1
        assert "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in ran.stderr
        assert "`raftlog dev --secure`" in ran.stderr


def test_a_record_is_produced_and_consumed_alone_and_in_a_group(raftlog: CommandLine, name: str) -> None:
    """The first thing that a newcomer does after the installation."""
    created, sent, alone, shared = without_clients(
        raftlog,
        f"topic create {name} -p 2",
        f"produce -t {name} -K :",
        f"consume -t {name} -e -f %k=%s",
        f"consume -G group-{name} -X auto.offset.reset=earliest -e -f %k=%s {name}",
        stdin="a:first\n",
    )
    assert (created, sent, alone, shared) == (f"{name} created\n", "", "a=first", "a=first")


def test_every_other_command_that_asks_a_cluster_needs_no_client_library(
    raftlog: CommandLine, ten: str
) -> None:
    """Topics, partitions, groups, settings, users, rules, quotas, brokers, the quorum and the cluster."""
    group = f"plain-{ten}"
    without_clients(
        raftlog,
        f"consume -G {group} -o beginning -c 1 {ten}",
        f"share-group reset queue-{ten} -t {ten} --to-earliest --execute",
        f"consume --share queue-{ten} -e {ten}",
        "topic list",
        f"topic describe {ten}",
        f"topic alter {ten} -c retention.ms=1000000",
        f"topic add-partitions {ten} --num 1",
        f"topic trim {ten} --offset 1 -p 1",
        f"partition list {ten} --under-min-isr",
        f"partition describe {ten} 1",
        f"partition offsets {ten} --time 2020-01-01",
        f"partition elect {ten}",
        "partition reassignments",
        "group list",
        f"group describe {group}",
        f"group offsets {group}",
        f"group delete-offsets {group} -t {ten}",
        f"group delete {group}",
        f"config get topic {ten}",
        "broker list",
        "broker describe 1",
        "broker log-dirs",
        "quorum status",
        "cluster describe",
        "cluster health",
        f"quota set --user {ten} producer_byte_rate=1000",
        f"quota list --user {ten}",
        f"quota delete --user {ten}",
        f"user set {ten} --password-stdin",
        f"user delete {ten}",
        f"topic delete {ten}",
        stdin="a password\n",
    )
