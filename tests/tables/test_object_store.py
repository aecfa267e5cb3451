"""Tables in an object store: S3 as moto plays it, in a thread of the tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.tables.formats import Format, Place, open_table
from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.tables.conftest import rows
from tests.tables.exactly_once import check_every_fault
from tests.tables.in_memory import Fault

pytestmark = pytest.mark.tables

LOGIN = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    for name, value in {**LOGIN, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    import boto3

    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="lake")
    yield "s3://lake/raw"
    server.stop()


def _rows_of(place: Place, topic: str) -> list[tuple[int, int]]:
    """Return the keys of the rows, as the writer's own libraries read them."""
    from raftlog.tables.columns import SCHEMA

    table: Any = open_table(place, topic, SCHEMA)
    table.load()
    if place.format is Format.DELTA:
        import polars

        found = polars.read_delta(place.where(topic)).to_dicts()
    else:
        found = table._table.scan().to_arrow().to_pylist()
    return sorted((each["partition"], each["offset"]) for each in found)


@pytest.mark.parametrize("format", Format)
def test_each_row_is_in_the_table_once_in_an_object_store(
    format: Format, bucket: str, tmp_path: Path
) -> None:
    """The scenario of test_writer.py: a version is a conditional write of Delta, or a row of Iceberg's catalog."""
    from raftlog.tables.columns import SCHEMA

    catalog = f"sqlite:///{tmp_path / 'catalog.db'}" if format is Format.ICEBERG else ""
    place = Place(format, bucket, catalog)
    numbers = itertools.count()

    def new() -> Any:
        topic = f"orders-{next(numbers)}"
        return (lambda: open_table(place, topic, SCHEMA)), (lambda: _rows_of(place, topic))

    assert check_every_fault(new, (Fault.KILLED_AFTER, Fault.RIVAL_BEFORE), rows) > 10


def test_iceberg_in_an_object_store_needs_a_catalog() -> None:
    """A database in a folder is no choice there, and Delta has no catalog."""
    for format, catalog in ((Format.ICEBERG, ""), (Format.DELTA, "http://localhost:8181")):
        with pytest.raises(ValueError) as raised:
            Place(format, "s3://lake", catalog)
        assert "catalog" in str(raised.value)


def test_a_place_that_cannot_be_is_one_line_and_no_second_attempt(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store without a login, and a file where a folder is to be. No library writes beside."""
    for name in LOGIN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    raftlog = CommandLine(cluster.bootstrap_servers)
    assert raftlog("topic", "create", topic, "-p", "1").returncode == 0
    ran = raftlog.process("table", "run", topic, "--to", "s3://lake/raw", "--until-end")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (exits.FAILED, "", 1), ran.stderr
    assert "no login for the object store was found: set AWS_ACCESS_KEY_ID" in ran.stderr
    (tmp_path / "lake").mkdir()
    for place, file in (("notes", "notes"), ("notes/lake", "notes"), ("lake", f"lake/{topic}")):
        (tmp_path / file).touch()
        for format in Format:
            to = tmp_path / place
            ran = raftlog("table", "run", topic, "--to", str(to), "--format", format)
            said = f"raftlog: --to {to}: {tmp_path / file} is a file, and tables are folders\n"
            assert (ran.returncode, ran.stderr) == (exits.USAGE, said)
    table = tmp_path / "delta" / topic
    (table / "_delta_log").mkdir(parents=True)
    ran = raftlog("table", "run", topic, "--to", str(table.parent), "--format", "iceberg")
    said = f"raftlog: --to {table.parent}: {table} is a table of the format delta; choose another place\n"
    assert (ran.returncode, ran.stderr) == (exits.USAGE, said)
    to = tmp_path / ("n" * 300)
    ran = raftlog("table", "run", topic, "--to", str(to))
    assert (ran.returncode, ran.stderr) == (exits.USAGE, f"raftlog: --to {to}: File name too long\n")
