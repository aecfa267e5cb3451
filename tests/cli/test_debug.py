"""`raftlog debug bundle`: one archive for a bug report, and no secret in it."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import pytest

from raftlog.cli import debug, exits
from raftlog.cli.secrets_out import CUT, LINE_CHARS, OUT, values_without_secrets, without_secrets
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
        f"ssl.key.password=correct horse {PLANTED}",
        f"sasl.password=abc,def;{PLANTED}",
        f"[password=a){PLANTED}]",
        f"sasl.password=}}{PLANTED}",
        f'{{"reason": "{{\\"sasl.password\\": \\"{PLANTED}\\"}}"}}',
        f'got {{"name":"sasl.password","value":"{PLANTED}"}}',
        f'{{"name":"sasl.password","value":"{PLANTED}"}}',
        f'ran ["--password", "{PLANTED}"]',
        f'{{"argv": ["--password", "{PLANTED}"]}}',
        f"raftlog --password {PLANTED}",
        f"sasl.password\t{PLANTED}",
        f"redis://:{PLANTED}@host",
        f"https://{PLANTED}@host",
        f"http://u:p/{PLANTED}@host",
        f"http://u:p@{PLANTED}@host",
        f"ssl.keystore.key=MIIE {PLANTED}",
        f"key.passphrase: {PLANTED}",
        f"pwd={PLANTED}",
        f"stored_key={PLANTED}",
        f"server_key={PLANTED} salt={PLANTED}",
        f'Authorization: Digest username="u", response="{PLANTED}"',
        f"Authorization: SCRAM {PLANTED}",
        f"password: |\n  {PLANTED}\n",
        f"passwords:\n- {PLANTED}",
        f"b'password': b'{PLANTED}'",
        f'jaas = """\nlogin {PLANTED}\n"""',
        f"password=u'{PLANTED}'",
        f"sasl.jaas.config=X required \\\n a \\\n b={PLANTED}",
        f'{{"tokens": "{PLANTED}", "password": {{"is": "{PLANTED}"}}}}',
        f"login with password {PLANTED} failed",
        f"the password is {PLANTED}.",
        f"Password was set to '{PLANTED}'",
        f"secret key {PLANTED}",
        f"password is 'my pass {PLANTED}'",
        f"password is 'my password a1b2 {PLANTED}', token \"{PLANTED} x\"",
        f"the secret was 'my {PLANTED}",
        f"bob:{PLANTED}@1a.example.com:9092",
        f"bob:{PLANTED}@1a",
        f"aUser:{PLANTED}@host",
        f"passwords {PLANTED} and token abc{PLANTED}, token\t {PLANTED}",
        f'{{"reason": "wrong password {PLANTED} of ann"}}',
        f"connect to ann:{PLANTED}@host:9092 failed",
        f"ann:{PLANTED}@host",
        f"redis=:{PLANTED}@10.0.0.1",
        f"ann:a@b:{PLANTED}@host,http://x",
        f"('ann:{PLANTED}@host', 9092)",
        f"user=ann:9093,2{PLANTED}@host:9093",
        f"1@a:9093,2@b:{PLANTED}@host",
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


@pytest.mark.parametrize(
    "text",
    [
        "password changed for user ann",
        "the token expired: log in again",
        "wrong password (SCRAM-SHA-256, see KIP-48)",
        "no credentials mechanism=SCRAM-SHA-512 client=10.0.0.1:5000",
        "tokens 1200 of 5000",
        "at most 10 delegation tokens (10,000 are the limit)",
        "the secret is in /etc/raftlog/token, and --token-file names it",
        "controller.quorum.voters=1@a.example:9093,2@b.example:9093,3@[::1]:9093",
        "voters 1@a:9093:q83vEjRWeJA-qL3vEjRWeA,2@b:9093:q83vEjRWeJA-qL3vEjRWeB",
        "password 'swordfish' or password p4ss=word",
        "User:ann@EXAMPLE.COM may read orders",
        "ann@example.com wrote orders:0@1200 at 10:30",
        "image raftlog:1.0@sha256:0f3a",
        "mailto:ann@example.com",
    ],
)
def test_text_about_secrets_stays_readable(text: str) -> None:
    """After a name and a space only a word like a password goes out; voters and principals have no logins."""
    assert without_secrets(text) == text


def test_a_number_is_a_secret_unless_its_name_counts() -> None:
    """A password may be a number; a lifetime is none. Neither is base64 a setting with its value."""
    assert without_secrets("password 12345678, token YWJj==") == f"password {OUT}, token {OUT}"
    assert without_secrets("password=12345678") == f"password={OUT}"
    assert without_secrets('{"password": 12345678}') == f'{{"password": "{OUT}"}}'
    kept = "delegation.token.max.lifetime.ms=604800000\ntoken_count=3"
    assert without_secrets(kept) == kept


def test_what_is_taken_out_stays_so() -> None:
    """Text that passes twice, as in a reason within JSON, is that of the first pass."""
    once = without_secrets(f"a=1 password={PLANTED} b=2\nnext=1")
    assert once == f"a=1 password={OUT}\nnext=1" and without_secrets(once) == once


@pytest.mark.parametrize(
    "part",
    [
        "-",
        "a.",
        "tokentoken",
        "jaas",
        "token ",
        "token 'abcdefghi",
        "token 'a token \"b",
        "a:b@1",
        'token="',
        "user_",
        "://",
        "Basic ",
        "token\\",
        "[{",
        "token is to be ",
        "password 1",
        "a:b@",
        "'a:1@",
        "1@a:1,",
        "password a-",
    ],
)
def test_the_time_of_a_line_does_not_grow_with_its_square(part: str) -> None:
    """A line is cut before it is searched, so no line costs more than one of that length."""
    line = part * (10 * LINE_CHARS)
    assert len(without_secrets(line)) <= LINE_CHARS + len(CUT)
    started = time.process_time()
    without_secrets("\n".join([line[:LINE_CHARS]] * 30))
    assert time.process_time() - started < 3


def test_a_bundle_has_no_records(tmp_path: Path) -> None:
    """Folders of nodes and partitions are passed over, segments have logs' suffix; others must begin as text."""
    log_dir = tmp_path / "here" / "data"
    for folder in (log_dir / "orders-0", tmp_path / "here" / "copied-0"):
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_text(PLANTED)
        (folder / f"{0:020}.log.deleted").write_text(PLANTED)
    (log_dir / "meta.properties").write_text("node.id=1\n")
    (log_dir / "raft.log").write_text(PLANTED)
    (tmp_path / "here" / "binary.log").write_bytes(b"\0\1" + PLANTED.encode())
    (tmp_path / "here" / "node.log").write_text("node_failed\n")
    files = _bundle(
        tmp_path, "--log", str(tmp_path / "here"), "--log", str(log_dir / "orders-0" / f"{0:020}.log")
    )
    assert [name for name, text in files.items() if PLANTED in text] == []
    assert [name for name in files if name.startswith("logs/")] == ["logs/here-node.log"]
    assert (
        f"{log_dir}: a node's data" in files["missing.txt"] and "binary.log: no text" in files["missing.txt"]
    )


def test_files_of_the_same_name_are_numbered(tmp_path: Path) -> None:
    """Configs and logs of two nodes are called the same; a config is written as it is read."""
    given = []
    for node in ("n1", "n2"):
        folder = tmp_path / node / "log"
        folder.mkdir(parents=True)
        (folder / "node.log").write_text(f"{node}\n")
        config = tmp_path / node / "server.toml"
        config.write_text(f'node.id = "{node}"\nsasl.jaas.config = """\n{PLANTED}\n"""\n# {PLANTED}\n')
        given += ["--config", str(config), "--log", str(folder)]
    files = _bundle(tmp_path, *given)
    assert (files["logs/log-node.log"], files["logs/log-node-2.log"]) == ("n1\n", "n2\n")
    assert "node.id=n1" in files["config/server.toml"] and "node.id=n2" in files["config/server-2.toml"]
    assert PLANTED not in files["config/server.toml"]


def test_a_bundle_names_what_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginnings of long logs, logs beyond their number, and beyond the bytes of all."""
    monkeypatch.setattr(debug, "LOG_BYTES", 100)
    monkeypatch.setattr(debug, "ALL_LOG_BYTES", 150)
    monkeypatch.setattr(debug, "MOST_LOGS", 3)
    for number in range(4):
        (tmp_path / f"{number}.log").write_text("0123456789\n" * 20)
    files = _bundle(tmp_path, "--log", str(tmp_path))
    assert files["missing.txt"].count("its first") == 2
    assert "2.log: the bundle has 150 bytes of logs already" in files["missing.txt"]
    assert "1 of 4 logs" in files["missing.txt"]
    logs = [text for name, text in files.items() if name.startswith("logs/")]
    assert len(logs) == 2 and all(set(text.splitlines()) == {"0123456789"} for text in logs)


def _bundle(tmp_path: Path, *words: str) -> dict[str, str]:
    to = tmp_path / "bundle.zip"
    code, _, _ = invoke("debug", "bundle", "--to", str(to), *words, "-b", "127.0.0.1:1", "-m", "0.2")
    assert code == exits.UNREACHABLE
    with zipfile.ZipFile(to) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


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
