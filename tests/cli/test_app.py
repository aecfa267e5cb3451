"""Claims about the command line as a whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from raftlog.base.config import GroupConfig, NodeConfig, TopicConfig, settings_of
from raftlog.base.config.kafka import KAFKA_SETTINGS
from raftlog.cli.app import app
from tests.kit import waits
from tests.kit.marks import nightly

HEAVY = (
    "kio",
    "confluent_kafka",
    "aiohttp",
    "structlog",
    "pysyncobj",
    "asyncio",
    "raftlog.base.config",
    "kafka",
    "rich",
    "json",
    "raftlog.cli.topic",
)


def run(*arguments: str) -> str:
    """Return what a command prints; it must succeed."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_help_loads_nothing_that_only_a_sub_command_needs():
    """`raftlog --help` answers at once: start-up is imports, so these are what is counted, and not seconds."""
    code = f"""
import sys
sys.argv = ["raftlog", "--help"]
from raftlog.cli import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write(",".join(name for name in {HEAVY!r} if name in sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in result.stdout and "server" in result.stdout
    assert result.stderr == ""


def test_the_servers_path_does_not_load_typer():
    """A node's start-up time counts towards a cluster's; argparse is enough for three options."""
    code = """
import sys
sys.argv = ["raftlog", "server", "--override", "nonsense"]
from raftlog.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 2
assert "typer" not in sys.modules and "rich" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_the_module_runs_like_the_script():
    """python -m raftlog is raftlog."""
    result = subprocess.run(
        [sys.executable, "-m", "raftlog", "version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("raftlog ")


def test_the_config_table_is_printed_whole_in_each_form():
    """People, machines and the reference page read the same rows."""
    names = set(settings_of(NodeConfig))
    assert {row["name"] for row in json.loads(run("config", "--json"))} == names
    markdown = run("config", "--markdown")
    text = run("config")
    for name in names:
        assert f"| `{name}` |" in markdown
    assert {line.split()[0] for line in text.splitlines()} == names, "a line per setting in a pipe, for grep"
    assert any(re.match("min.insync.replicas +int +1 +Default", line) for line in text.splitlines())


@pytest.mark.parametrize(
    ("option", "table"), [("--topic", TopicConfig), ("--group", GroupConfig), ("--topics", TopicConfig)]
)
def test_topic_and_group_configs_are_tables_of_their_own(option, table):
    """All there are, and none of the node's."""
    found = {row["name"] for row in json.loads(run("config", option, "--json"))}
    assert found == set(settings_of(table)) and "node.id" not in found


def test_kafkas_settings_that_raftlog_lacks_are_a_table_that_says_what_becomes_of_each():
    """Accepted without effect, or no node starts with it: and why."""
    meanings = {row["name"]: row["doc"] for row in json.loads(run("config", "--kafka", "--json"))}
    assert meanings.keys() == KAFKA_SETTINGS.keys()
    assert meanings["num.io.threads"].endswith("without pools of threads (accepted, without effect)")
    assert meanings["ssl.protocol"].endswith("; no node starts with it")


def test_format_names_the_cluster_once_and_refuses_another(tmp_path):
    """kafka-storage format, without ceremony: the same folder keeps its id."""
    config = tmp_path / "node.properties"
    config.write_text(f"log.dirs={tmp_path}/a,{tmp_path}/b\n")
    run("format", "--config", str(config), "--cluster-id", "one")
    first = (tmp_path / "a" / "meta.properties").read_text()
    assert "cluster.id=one" in first and "version=1" in first and "node.id=1" in first
    assert "cluster.id=one" in (tmp_path / "b" / "meta.properties").read_text()
    assert "formatted already" in run("format", "--config", str(config))
    result = CliRunner().invoke(app, ["format", "--config", str(config), "--cluster-id", "two"])
    assert result.exit_code == 4
    assert (tmp_path / "a" / "meta.properties").read_text() == first


def test_format_marks_the_folder_that_a_controller_reads(tmp_path):
    """It has no partitions, so its name of the cluster stands in metadata.log.dir."""
    config = tmp_path / "controller.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://:9093\n"
        f"log.dirs={tmp_path}/a\nmetadata.log.dir={tmp_path}/m\n"
    )
    run("format", "--config", str(config), "--cluster-id", "one")
    assert "cluster.id=one" in (tmp_path / "m" / "meta.properties").read_text()
    assert not (tmp_path / "a").exists()


def test_the_version_is_an_option_as_well_as_a_command():
    """Which of the two one tries first differs from person to person."""
    assert run("--version") == run("version")


def test_a_setting_that_the_command_does_not_know_is_an_error_in_words():
    """-X takes what people remember of librdkafka's names."""
    result = subprocess.run(
        [sys.executable, "-m", "raftlog", "topic", "list", "-X", "foo=bar"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("raftlog: -X foo: this command only knows bootstrap.servers, ")


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["produce", "-t", "t"],
        nightly(["topic", "create", "t"]),
        nightly(["consume", "-t", "t"]),
    ],
)
def test_no_broker_is_one_clear_line_with_its_own_exit_code(command):
    """6: timeout or unreachable; and why, but not once for each attempt."""
    asked = [sys.executable, "-m", "raftlog", *command, "-b", "127.0.0.1:1", "--timeout", "1"]
    result = waits.run(asked, stdin="x\n", text=True)
    assert result.returncode == 6, result.stderr
    assert result.stderr.startswith("raftlog: ") and result.stderr.count("\n") == 1
    assert "no broker answers at 127.0.0.1:1 (" in result.stderr and "refused" in result.stderr


def test_consuming_from_a_time_after_the_last_one_is_wrong_usage():
    """No record would be printed, which would look like an empty topic."""
    result = CliRunner().invoke(app, ["consume", "-t", "orders", "-o", "s@2000", "-o", "e@1000"])
    assert result.exit_code == 2
    assert "-o s@2000 is after -o e@1000" in result.output


def test_the_version_has_a_form_for_machines():
    """The facts that a bug report needs."""
    found = json.loads(run("version", "--json"))
    assert run("version") == f"raftlog {found['raftlog']}\n"
    assert {"python", "platform"} <= set(found) and "confluent-kafka" in found["libraries"]


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_page_of_commands_is_typers_own(option: str) -> None:
    """`raftlog --help` is printed without typer, and says what typer says."""
    code = f"import sys; sys.argv = ['raftlog', {option!r}]; from raftlog.cli.app import app; app(prog_name='raftlog')"
    environment = {**os.environ, "COLUMNS": "80"}
    typers, ours = (
        subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=True, env=environment
        ).stdout
        for words in (["-c", code], ["-m", "raftlog", option])
    )
    assert ours == typers


def test_the_page_of_commands_needs_no_typer() -> None:
    """Importing it takes three times as long as the rest. A narrow terminal gets typer's lines."""
    code = """
import sys
sys.argv = ["raftlog", "--help"]
from raftlog.cli import main
main()
assert not {"typer", "dataclasses", "inspect", "asyncio"} & set(sys.modules), sys.modules
"""
    wide, narrow = (
        waits.run([sys.executable, "-c", code], text=True, env={**os.environ, "COLUMNS": columns})
        for columns in ("200", "60")
    )
    assert wide.returncode == 0, wide.stderr
    assert "Exit codes" in narrow.stdout and max(map(len, narrow.stdout.splitlines())) <= 60


@pytest.mark.parametrize(
    ("noun", "former"), [("user", "remove"), ("quota", "remove"), ("acl", "remove"), ("token", "expire")]
)
def test_every_noun_deletes_and_still_takes_its_former_word(noun: str, former: str) -> None:
    """Help shows one word for it."""
    shown = CliRunner().invoke(app, [noun, "--help"]).output
    assert "  delete " in shown and f"  {former} " not in shown
    assert CliRunner().invoke(app, [noun, former, "--help"]).exit_code == 0


def test_the_noun_transaction_still_takes_its_former_plural() -> None:
    """Help shows the singular only."""
    assert "  transactions " not in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["transactions", "list", "--help"]).exit_code == 0
