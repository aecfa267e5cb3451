"""Catalogs and stores that answer late or never: words meanwhile, an end, and each record in the table once."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.tables import patience
from raftlog.tables.formats import Format, Place, open_table
from raftlog.tables.table import StoreFailed
from raftlog.tables.writer import TableWriter
from tests.cli.live import CommandLine
from tests.kit.waits import finished, until
from tests.tables.conftest import BACKENDS, rows
from tests.tables.exactly_once import check_every_fault
from tests.tables.in_memory import SOURCE, Fault, no_wait
from tests.tables.test_object_store import LOGIN
from tests.tables.test_run import _start, orders, raftlog  # noqa: F401 - fixtures
from tests.tables.topics import assert_same, produce, read_log

pytestmark = pytest.mark.tables

PROGRAM = ("-m", "tests.tables.impatient")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A REST catalog."""
    from tests.tables.rest_server import RestServer

    with RestServer(tmp_path / "catalog").running() as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short limits in this process."""
    monkeypatch.setattr(patience, "ANSWER_S", 0.3)
    monkeypatch.setattr(patience, "SILENT_S", 0.1)


def _keys(where: str) -> list[tuple[int, int]]:
    return sorted((each["partition"], each["offset"]) for each in BACKENDS["iceberg"].read(where))


def _open(server: Any, folder: Path) -> Any:
    from raftlog.tables.columns import SCHEMA

    return open_table(Place(Format.ICEBERG, str(folder), server.url), "orders", SCHEMA)


def test_each_row_is_in_the_table_once_by_a_rest_catalog(server: Any, tmp_path: Path):
    """The scenario of test_writer.py with a catalog behind HTTP."""
    from raftlog.tables.columns import SCHEMA

    place = Place(Format.ICEBERG, str(tmp_path), server.url)
    names = (f"orders{number}" for number in range(1000))

    def new() -> Any:
        topic = next(names)
        where = str(tmp_path / topic)
        return (lambda: open_table(place, topic, SCHEMA)), (lambda: _keys(where))

    assert check_every_fault(new, (Fault.FAILED_AFTER,), rows) > 5


@pytest.mark.parametrize("delay", ["NEVER", "RESPONSE", "BEFORE_NEXT", "AFTER_NEXT"])
def test_a_commit_that_is_answered_too_late_is_in_the_table_once(
    server: Any, impatient: None, tmp_path: Path, delay: str
):
    """It is never carried out, or at once, or before or after the attempt that follows it."""
    from tests.tables.rest_server import COMMIT, Delay

    said: list[str] = []
    writer = TableWriter(_open(server, tmp_path), SOURCE, no_wait, said.append)
    writer.take_over({0: 0, 1: 0}, rows([]))
    said.clear()
    before = len(server.requests)
    server.delays[COMMIT.pattern] = Delay[delay]
    writer.append(rows([(0, 0), (0, 1)]), {0: 2})
    commits = sum(bool(COMMIT.fullmatch(each)) for each in server.requests[before:])
    assert commits == (1 if delay == "RESPONSE" else 2)
    assert said[0] == f"still waiting for the catalog at {server.url}, after 0 s"
    again = f"the catalog at {server.url} did not answer within 0.3 s; trying again (2 of 8)"
    assert (again in said) == (commits == 2)
    writer.append(rows([(1, 0)]), {1: 1})
    assert _keys(str(tmp_path / "orders")) == [(0, 0), (0, 1), (1, 0)]


def test_a_silent_catalog_ends_the_opening(server: Any, impatient: None, tmp_path: Path):
    """Its configuration is the first that is asked for."""
    server.is_silent = True
    with pytest.raises(StoreFailed, match=f"^the catalog at {server.url} did not answer within 0.3 s$"):
        _open(server, tmp_path)


def test_a_catalog_that_is_not_there_or_no_catalog_is_said_in_words(tmp_path: Path):
    """The login of the URL is not repeated."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    place = Place(Format.ICEBERG, str(tmp_path), f"http://me:secret@127.0.0.1:{free}")
    with pytest.raises(StoreFailed) as raised:
        open_table(place, "orders", None)  # type: ignore[arg-type] # it is not asked
    assert str(raised.value).startswith(
        f"the catalog at http://127.0.0.1:{free} cannot be reached: [Errno 111]"
    )
    assert place.asked == f"the catalog at http://127.0.0.1:{free}"


@pytest.mark.parametrize("format", Format)
def test_a_silent_object_store_is_given_up(
    format: Format, impatient: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """It accepts connections. The libraries would try for minutes."""
    from raftlog.tables.columns import SCHEMA

    monkeypatch.setattr(patience, "ANSWER_S", 3.0)  # pyarrow counts in seconds
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name, value in {**LOGIN, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        catalog = f"sqlite:///{tmp_path / 'catalog.db'}" if format is Format.ICEBERG else ""
        table = open_table(Place(format, "s3://lake/raw", catalog), "orders", SCHEMA)
        with pytest.raises(StoreFailed) as raised:
            table.create(SOURCE)
        assert any(each in str(raised.value) for each in ("timed out", "Timeout was reached"))


def test_sigterm_ends_a_command_that_waits_for_a_silent_catalog(
    raftlog: CommandLine,  # noqa: F811 - a fixture
    orders: str,  # noqa: F811 - a fixture
    server: Any,
    tmp_path: Path,
):
    """It says what it waits for, and after the next run each record is in the table once."""
    from tests.tables.rest_server import COMMIT

    produce(raftlog.bootstrap, orders, 100)
    run = ("table", "run", orders, "--to", str(tmp_path), "--format", "iceberg", "--catalog", server.url)
    running = _start(raftlog, *run, "--every", "0.1", program=PROGRAM)
    assert "100 records" in running.stdout.readline()
    server.is_silent = True
    produce(raftlog.bootstrap, orders, 100)
    until(lambda: COMMIT.fullmatch(server.requests[-1]), "a commit waits")
    running.send_signal(signal.SIGTERM)
    _out, err = finished(running)
    lines = err.splitlines()
    assert running.returncode == exits.FAILED, err
    assert f"raftlog: {orders}: still waiting for the catalog at {server.url}, after 1 s" in lines
    assert lines[-1].startswith("raftlog: stopped without its last commit, which took over 3 s;")
    server.is_silent = False
    assert raftlog(*run, "--until-end").returncode == 0
    assert_same(BACKENDS["iceberg"].read(str(tmp_path / orders)), read_log(raftlog.bootstrap, orders))
