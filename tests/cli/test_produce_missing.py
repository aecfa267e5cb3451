"""`raftlog produce` to a topic that does not exist, where brokers create none: an error before input is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.cli import exits, produce
from raftlog.cli.exits import Failure
from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.cli.test_end_signals import running
from tests.kit.waits import ended


@pytest.fixture(scope="module")
def strict() -> Iterator[CommandLine]:
    """A node that creates no topics by itself."""
    with Cluster(1, settings={"auto.create.topics.enable": "false"}) as cluster:
        yield CommandLine(cluster.bootstrap_servers)


@pytest.mark.slow
def test_a_pipe_that_is_open_is_not_waited_for(strict: CommandLine) -> None:
    """The command ends although its input has neither a record nor an end."""
    with running(strict, "produce", "-t", "missing") as process:
        process.wait(60)
        assert ended(process) == exits.NOT_FOUND
    ran = strict("produce", "-t", "missing", stdin=b"a\n")
    assert (ran.returncode, ran.out) == (exits.NOT_FOUND, b"")
    (line,) = ran.stderr.splitlines()
    assert "there is no topic missing, and the brokers create none (auto.create.topics.enable=false)" in line
    assert "raftlog topic create missing" in line
    assert strict("topic", "create", "missing", "-p", "1").returncode == 0
    assert strict("produce", "-t", "missing", stdin=b"a\n").returncode == 0


@pytest.mark.slow
def test_a_user_who_may_not_read_settings_hears_it_at_the_first_record(
    strict: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few seconds, and long before the end of a pipe; no line says that no record came."""
    read: list[int] = []

    def messages(*_: object) -> Iterator[bytes]:
        for number in range(1_000):
            read.append(number)
            yield b"v"

    def setting_of(*_: object) -> str:
        raise Failure("not authorized")

    monkeypatch.setattr(produce, "setting_of", setting_of)
    monkeypatch.setattr(produce, "messages", messages)
    ran = strict("produce", "-t", "unseen", stdin=b"v\n")
    assert (ran.returncode, read) == (exits.NOT_FOUND, [0])
    assert ran.stderr == "raftlog: topic unseen: there is no such topic or partition\n"
