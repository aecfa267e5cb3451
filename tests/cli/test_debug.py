"""`raftlog debug bundle`: one archive for a bug report, and no secret in it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.cli.secrets_out import OUT, values_without_secrets, without_secrets
from tests.cli.live import CommandLine, invoke

PLANTED = "hush-hush-7"


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password={PLANTED}",
        f"ssl.key.password = {PLANTED}",
        f"raftlog.cluster.secret: {PLANTED}",
        f'{{"event": "x", "password": "{PLANTED}", "topic": "t"}}',
        f"{{'sasl.password': '{PLANTED}'}}",
        f'sasl.jaas.config=org.apache.PlainLoginModule required username="u" password="{PLANTED}";',
        f'listener.name.a.plain.sasl.jaas.config=X required user_ann="{PLANTED}" \\\n user_bob="{PLANTED}";',
        f"Authorization: Bearer {PLANTED}",
        f"curl -H 'Authorization: Basic {PLANTED}'",
        f"http://ann:{PLANTED}@host:9644/v1",
        f"RAFTLOG_CLUSTER_SECRET={PLANTED} raftlog server",
        f"token={PLANTED}, hmac={PLANTED}",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED}",
    ],
)
def test_a_secret_is_taken_out_wherever_it_is_named(text: str) -> None:
    """Settings, JSON lines, commands, headers, URLs, keys, also keys that a log cut off."""
    assert PLANTED not in without_secrets(text) and OUT in without_secrets(text)


def test_what_is_no_secret_stays() -> None:
    """Counts, flags, names of files, and the topic beside a password."""
    kept = '{"event": "token_expired", "tokens": 12, "password": null, "topic": "orders"}\nraftlog_tokens_total 3'
    assert without_secrets(kept) == kept
    assert '"topic": "t"' in without_secrets(f'{{"password": "{PLANTED}", "topic": "t"}}')
    assert without_secrets(f"someone wrote {PLANTED} here", {PLANTED}) == f"someone wrote {OUT} here"
    found = {
        "sasl.password": PLANTED,
        "raftlog.admin.tokens.file": "/tokens",
        "list": [{"text": f"x {PLANTED}"}],
    }
    assert values_without_secrets(found, {PLANTED}) == {
        "sasl.password": OUT,
        "raftlog.admin.tokens.file": "/tokens",
        "list": [{"text": f"x {OUT}"}],
    }


@pytest.mark.slow
def test_the_archive_has_everything_but_the_planted_secrets(
    raftlog: CommandLine, ten: str, tmp_path: Path
) -> None:
    """Logs, metadata, settings and metrics of all nodes. Secrets are in a log, in a config and in the login."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "node.log").write_text(
        f'{{"event": "login_failed", "password": "{PLANTED}", "user": "ann"}}\n{PLANTED}\n'
    )
    config = tmp_path / "node.properties"
    config.write_text(f"node.id=1\nraftlog.cluster.secret={PLANTED}\n")
    client = tmp_path / "client.properties"
    client.write_text(f"sasl.username=ann\nsasl.password={PLANTED}\n")
    to = tmp_path / "bundle.zip"
    ran = raftlog(
        "debug", "bundle", "--to", str(to), "--log", str(logs), "--config", str(config), "-F", str(client)
    )
    assert ran.returncode == exits.OK, ran.stderr
    with zipfile.ZipFile(to) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert to.stat().st_mode & 0o077 == 0
    assert [name for name, text in files.items() if PLANTED in text] == []
    assert "login_failed" in files["logs/logs-node.log"] and "node.id=1" in files["config/node.properties"]
    assert ten in {each["topic"] for each in json.loads(files["cluster.json"])["partitions"]}
    for broker in (1, 2, 3):
        settings = {row["name"]: row["value"] for row in json.loads(files[f"settings/broker-{broker}.json"])}
        assert settings["broker.id" if "broker.id" in settings else "node.id"] == str(broker)
        assert settings["raftlog.cluster.secret"] is None
        if f"http/node-{broker}/health.json" in files:
            assert "raftlog_" in files[f"http/node-{broker}/metrics.txt"]
    assert raftlog("debug", "bundle", "--to", str(to)).returncode == exits.EXISTS


def test_a_cluster_that_does_not_answer_gives_a_bundle_of_its_logs(tmp_path: Path) -> None:
    """That is when a bundle is needed; the archive and the exit code say that no broker answered."""
    (tmp_path / "node.log").write_text("node_failed\n")
    to = tmp_path / "bundle.zip"
    words = (
        "debug",
        "bundle",
        "--to",
        str(to),
        "--log",
        str(tmp_path / "node.log"),
        "-b",
        "127.0.0.1:1",
        "-m",
        "0.2",
    )
    code, _, said = invoke(*words)
    assert code == exits.UNREACHABLE and "missing: cluster: no broker answers at 127.0.0.1:1" in said
    with zipfile.ZipFile(to) as archive:
        assert "no broker answers" in archive.read("missing.txt").decode()
        (log,) = [name for name in archive.namelist() if name.startswith("logs/")]
        assert archive.read(log) == b"node_failed\n"
