"""Claims about `raftlog server` before a node runs, and after it: its config, errors of a faulty config, signals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from raftlog.base.config import is_secret
from raftlog.cli import exits
from raftlog.cli.server import parser, read_config
from raftlog.cli.target import Target
from tests.kit.waits import run


def test_a_properties_file_a_toml_file_and_overrides_reach_the_node(tmp_path, monkeypatch):
    """Precedence: file < environment < flag."""
    monkeypatch.setenv("RAFTLOG_MIN_INSYNC_REPLICAS", "2")
    for name, text in (("node.properties", "num.partitions=3\n"), ("node.toml", "num.partitions = 3\n")):
        path = tmp_path / name
        path.write_text(text)
        config = read_config(path, ["default.replication.factor=2"])
        assert (config.num_partitions, config.default_replication_factor, config.min_insync_replicas) == (
            3,
            2,
            2,
        )


def test_every_fault_of_every_layer_is_printed_and_the_exit_code_is_2(tmp_path, capsys):
    """All faults at once, by name; no node was started."""
    path = tmp_path / "node.properties"
    path.write_text("num.partitons=3\nlisteners=nowhere\n")
    with pytest.raises(SystemExit) as caught:
        read_config(path, ["min.insync.replicas=0", "nonsense"])
    assert caught.value.code == exits.USAGE
    printed = capsys.readouterr().err
    for part in (
        "num.partitons",
        "did you mean num.partitions?",
        "listeners",
        "min.insync.replicas",
        "'nonsense'",
    ):
        assert part in printed
    assert str(path) in printed


def test_a_node_that_must_be_closed_does_not_start_and_names_the_settings(tmp_path, capsys, monkeypatch):
    """From a file, the environment and a flag: each is named, with what raftlog lacks."""
    monkeypatch.setenv("RAFTLOG_PRINCIPAL_BUILDER_CLASS", "org.example.Builder")
    path = tmp_path / "server.properties"
    path.write_text("ssl.keystore.location=/tls/keys.jks\n")
    with pytest.raises(SystemExit) as caught:
        read_config(path, ["sasl.kerberos.service.name=kafka"])
    assert caught.value.code == exits.USAGE
    printed = capsys.readouterr().err
    assert "ssl.keystore.location: is about security" in printed
    assert "principal.builder.class: raftlog loads no Java classes" in printed
    assert "sasl.kerberos.service.name: raftlog does not carry out this setting of SASL" in printed


@pytest.mark.parametrize("content", [b"[[[", b"\xff\xfe\x00"])
def test_a_corrupt_toml_file_is_refused_with_its_name(tmp_path, capsys, content):
    """A clear error instead of a traceback."""
    path = tmp_path / "node.toml"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as caught:
        read_config(path, [])
    assert caught.value.code == exits.USAGE
    assert "not TOML" in capsys.readouterr().err


def test_a_missing_file_is_refused_with_its_name(tmp_path, capsys):
    """A typing mistake in a path is as common as in a setting; faults due to the missing file are not reported."""
    path = tmp_path / "absent.toml"
    with pytest.raises(SystemExit) as caught:
        read_config(path, ["num.partitons=3"])
    assert caught.value.code == exits.USAGE
    assert capsys.readouterr().err == f"raftlog: --config {path}: No such file or directory\n"


def test_the_config_file_may_come_from_the_environment(monkeypatch):
    """Containers set RAFTLOG_CONFIG."""
    monkeypatch.setenv("RAFTLOG_CONFIG", "/etc/raftlog.toml")
    assert str(parser().parse_args([]).config) == "/etc/raftlog.toml"


def test_secret_comes_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAFTLOG_X_FILE for RAFTLOG_X, as container images do: the secret itself is in no process's environment."""
    (tmp_path / "secret").write_text("long and quite random\n")
    monkeypatch.setenv("RAFTLOG_CLUSTER_SECRET_FILE", str(tmp_path / "secret"))
    config = read_config(None, [])
    assert config.cluster_secret == b"long and quite random"
    assert not any(warning.event == "environment_variables_unknown" for warning in config.warnings)


def test_secrets_of_one_listener_come_from_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example its users, which are hidden from users that list a container's variables; other settings do not."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="long password";'
    (tmp_path / "users").write_text(users + "\n")
    (tmp_path / "node.properties").write_text(
        "controller.quorum.voters=1@localhost:9093\nnode.id=1\nlistener.security.protocol.map="
        "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\nlisteners=CLIENTS://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\ninter.broker.listener.name=CLIENTS\nsasl.enabled.mechanisms=PLAIN\n"
        "raftlog.cluster.secret=long and quite random\n"
    )
    variable = "RAFTLOG_LISTENER_NAME_CLIENTS_PLAIN_SASL_JAAS_CONFIG_FILE"
    monkeypatch.setenv(variable, str(tmp_path / "users"))
    config = read_config(tmp_path / "node.properties", [])
    assert "1 users of PLAIN" in str(config.logins)
    assert not config.warnings
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    with pytest.raises(SystemExit):
        read_config(tmp_path / "node.properties", [])
    assert f"{variable}: [Errno 2] No such file or directory" in capsys.readouterr().err
    other = "RAFTLOG_LISTENER_NAME_CLIENTS_SASL_ENABLED_MECHANISMS_FILE"
    assert not is_secret(other.removesuffix("_FILE"))


@pytest.mark.parametrize("content", [None, "  \n"], ids=["absent", "empty"])
def test_secret_file_without_a_secret_is_refused(
    content: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node that went on with the derived secret would let strangers in."""
    if content is not None:
        (tmp_path / "secret").write_text(content)
    monkeypatch.setenv("RAFTLOG_CLUSTER_SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(SystemExit) as stopped:
        read_config(None, [])
    assert stopped.value.code == 2
    assert "RAFTLOG_CLUSTER_SECRET_FILE" in capsys.readouterr().err


def test_the_mark_with_which_editors_begin_files_is_no_part_of_them(tmp_path, monkeypatch):
    """A byte order mark is invisible: it would be part of the first setting's name, and of a secret."""
    for name, text in (("node.properties", "num.partitions=3\n"), ("node.toml", "num.partitions = 3\n")):
        path = tmp_path / name
        path.write_text(text, "utf-8-sig")
        assert read_config(path, []).num_partitions == 3
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n", "utf-8-sig")
    monkeypatch.setenv("RAFTLOG_CLUSTER_SECRET_FILE", str(secret))
    marked = read_config(None, [])
    monkeypatch.delenv("RAFTLOG_CLUSTER_SECRET_FILE")
    monkeypatch.setenv("RAFTLOG_CLUSTER_SECRET", "0123456789abcdef")
    assert marked.cluster_secret == read_config(None, []).cluster_secret
    client = tmp_path / "client.properties"
    client.write_text("bootstrap.servers=here:1\n", "utf-8-sig")
    assert Target(file=client).servers == "here:1"


NODE_THAT_HAS_STOPPED = """
import os, signal, sys
from raftlog import process
from raftlog.cli.server import main

async def run(config, **options):
    pass

process.run = run
main(["--override", "node.id=1"])
for number in (signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
print("has stopped")
"""


def test_a_signal_to_a_node_that_has_stopped_does_not_end_it():
    """Its loop is closed while Python still ends: the second signal made the exit code that of a killed process."""
    ran = run([sys.executable, "-c", NODE_THAT_HAS_STOPPED], text=True)
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["has stopped"]), ran.stderr
