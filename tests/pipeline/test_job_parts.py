"""The parts of jobs that need no Spark: owners of checkpoints, Parquet files, offset maps, walks, trips."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest

from raftlog.pipeline.jobs.control import JobError
from raftlog.pipeline.jobs.identity import claim_checkpoint, claim_results, has_batches
from raftlog.pipeline.jobs.offset_map import Run, runs, translate
from raftlog.pipeline.jobs.trips import count_demand, trips


def test_a_checkpoint_is_gone_on_with_by_its_own_job_only(tmp_path: Path):
    """The options that differ are named; the id stays."""
    checkpoint = tmp_path / "c"
    first = claim_checkpoint(checkpoint, "archive", {"subscribe": "a"})
    assert claim_checkpoint(checkpoint, "archive", {"subscribe": "a"}) == first
    with pytest.raises(JobError, match="subscribe was 'a' and is now 'b'"):
        claim_checkpoint(checkpoint, "archive", {"subscribe": "b"})
    with pytest.raises(JobError, match="job was 'archive' and is now 'mirror'"):
        claim_checkpoint(checkpoint, "mirror", {"subscribe": "a"})


def test_another_jobs_checkpoint_is_left_alone(tmp_path: Path):
    """Spark would go on from any offsets it finds."""
    (tmp_path / "offsets").mkdir()
    with pytest.raises(JobError, match="not empty and not a raftlog job's"):
        claim_checkpoint(tmp_path, "archive", {})
    assert [each.name for each in tmp_path.iterdir()] == ["offsets"]


def test_results_belong_to_one_checkpoint(tmp_path: Path):
    """Two archives in one folder would hold records twice; results that are gone are missed."""
    claim_results(tmp_path / "r", "one", begun=False)
    claim_results(tmp_path / "r", "one", begun=True)
    with pytest.raises(JobError, match=f"^path: {tmp_path / 'r'} "):
        claim_results(tmp_path / "r", "two", begun=False)
    with pytest.raises(JobError, match=f"^path: {tmp_path / 'gone'} "):
        claim_results(tmp_path / "gone", "one", begun=True)


def test_a_checkpoint_has_batches_once_one_is_committed(tmp_path: Path):
    """Spark's own files beside the commits do not count."""
    assert not has_batches(tmp_path)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    assert not has_batches(tmp_path)
    (tmp_path / "commits" / "0").touch()
    assert has_batches(tmp_path)


# --- mirrors

SOURCE = "cluster/t/0"
MIRRORED = "raftlog.mirror.source"


@pytest.mark.parametrize(
    ("headers", "offset"),
    [
        ([(MIRRORED, b"cluster/t/0/17")], 17),
        ([(MIRRORED, b"cluster/t/0/9"), ("h", b"x"), (MIRRORED, b"cluster/t/0/17")], 17),
        ([(MIRRORED, b"cluster/t/0/17"), (MIRRORED, b"other/t/0/3")], None),
        ([(MIRRORED, b"t/0/17")], None),
        ([(MIRRORED, b"cluster/t/1/17")], None),
        ([(MIRRORED, b"cluster/t/0/1e5")], None),
        ([(MIRRORED, "cluster/t/0/\u0663".encode())], None),
        ([(MIRRORED, b"cluster/t/0/-1")], None),
        ([(MIRRORED, b"cluster/t/0/" + b"9" * 5_000)], None),
        ([(MIRRORED, b"cluster/t/0/")], None),
        ([(MIRRORED, b"\xff\xfe")], None),
        ([(MIRRORED, None)], None),
        ([("h", b"cluster/t/0/17")], None),
        ([], None),
        (None, None),
    ],
)
def test_a_copy_is_recognised_by_the_last_header_of_its_cluster(
    headers: list[tuple[str, bytes | None]] | None, offset: int | None
):
    """Other headers with that name come from other writers, and must neither stop a mirror nor have it leave records
    out.
    """
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.mirror_task import copied_offset

    assert copied_offset(headers, SOURCE) == offset


def test_a_copy_leaves_headers_behind_that_say_it_is_one(tmp_path: Path):
    """A record that names the offset of another at its source would have that one left out."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.mirror_task import copied_offset, copy_headers

    brought = [{"key": MIRRORED, "value": b"cluster/t/0/99"}, {"key": "h", "value": None}]
    headers = copy_headers([*brought, brought[0]], f"{SOURCE}/17")
    assert headers == [("h", None), (MIRRORED, b"cluster/t/0/17")]
    assert copied_offset(headers, SOURCE) == 17
    assert copy_headers(None, "x") == [(MIRRORED, b"x")]


# --- Parquet


def records(days: list[int], *, partition: int = 0, first: int = 0) -> Any:
    pa = pytest.importorskip("pyarrow")
    noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    rows = [
        {
            "key": None,
            "value": str(offset).encode(),
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": noon + dt.timedelta(days=day),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"\x00"}],
        }
        for offset, day in enumerate(days, first)
    ]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    types = {"headers": headers, "timestamp": pa.timestamp("us", tz="UTC"), "key": pa.binary()}
    types |= {"partition": pa.int32(), "timestampType": pa.int32()}
    table = pa.Table.from_pylist(rows)
    schema = pa.schema(
        [(name, types.get(name, table.schema.field(name).type)) for name in table.column_names]
    )
    return table.cast(schema).to_batches()[0]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "/tmp", "..\\x", "", "t" * 250, "t\n"])
def test_a_topics_name_from_a_broker_is_no_path(tmp_path: Path, name: str):
    """A stranger that answers for a cluster must not choose where files are written."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.parquet import Target

    target = Target(str(tmp_path), "id", 0)
    assert target.folder("a.b_c-d", 0) == tmp_path / "topic=a.b_c-d" / "date=1970-01-01"
    with pytest.raises(JobError, match=re.escape(repr(name[:100]))):
        target.folder(name, 0)


def test_timestamps_of_no_year_go_into_the_first_or_last_day_there_is(tmp_path: Path):
    """A producer may choose any: one such record must not stop an archive for ever."""
    pa = pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.parquet import Target, write_files

    batch = records([0, 1, 2, 3])
    times = pa.array([-(2**62), 2**62, 0, -(2**61)], pa.timestamp("us", tz="UTC"))
    index = batch.schema.get_field_index("timestamp")
    done = [*write_files(Target(str(tmp_path), "id", 0), [batch.set_column(index, "timestamp", times)])]
    folders = {each.name for each in (tmp_path / "topic=t").iterdir()}
    assert folders == {"date=0001-01-01", "date=9999-12-31", "date=1970-01-01"}
    assert sum(each.to_pylist()[0]["rows"] for each in done) == 4


def offsets_read(folder: Path) -> list[int]:
    ds = pytest.importorskip("pyarrow.dataset")
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted(table["offset"].to_pylist())


def test_a_batch_written_again_replaces_its_own_files(tmp_path: Path):
    """A plain reader sees one copy, after a second attempt and beside another batch, also days before 1970."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.parquet import Target, write_files

    days = [0, 1, 0, -30_000]
    for batch, first in ((0, 0), (0, 0), (1, 4), (0, 0)):
        done = [*write_files(Target(str(tmp_path), "id", batch), [records(days, first=first)])]
        assert sum(each.to_pylist()[0]["rows"] for each in done) == 4
    assert offsets_read(tmp_path) == [*range(8)]
    assert {each.name for each in (tmp_path / "topic=t").iterdir()} == {
        "date=2026-03-01",
        "date=2026-03-02",
        "date=1944-01-11",
    }


def test_a_task_that_dies_leaves_nothing_to_a_reader(tmp_path: Path):
    """Files have their names when all records of the task are in."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.parquet import Target, write_files

    def dying() -> Any:
        yield records([0, 1])
        raise LookupError

    with pytest.raises(LookupError):
        [*write_files(Target(str(tmp_path), "id", 0), dying())]
    assert not [*tmp_path.rglob("*.parquet")]


def test_more_days_than_open_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The limit and what to do are in the message."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs import parquet

    monkeypatch.setattr(parquet, "OPEN_FILES", 3)
    with pytest.raises(JobError, match="more than 3 days in one batch; lower max_records"):
        [*parquet.write_files(parquet.Target(str(tmp_path), "id", 0), [records([0, 1, 2, 3])])]


# --- the map of a mirror


def test_offsets_side_by_side_are_one_run():
    """A gap on either side begins another."""
    assert runs("t", 0, [(5, 50), (6, 51), (8, 52), (9, 60)]) == [
        Run("t", 0, 5, 50, 2),
        Run("t", 0, 8, 52, 1),
        Run("t", 0, 9, 60, 1),
    ]


def test_a_position_is_translated_to_where_its_reader_goes_on():
    """After the last record read; in a gap, after the record before it; unknown before the first."""
    known = [Run("t", 0, 5, 50, 2), Run("t", 0, 8, 52, 1), Run("t", 1, 0, 7, 9)]
    assert [translate(known, "t", 0, offset=each) for each in (5, 6, 7, 8, 9, 20)] == [
        None,
        51,
        52,
        52,
        53,
        53,
    ]
    assert translate([*known, Run("t", 0, 8, 90, 1)], "t", 0, offset=9) == 91


# --- the walk of an audit


def test_a_walk_finds_repeated_offsets_and_falling_numbers():
    """Each with an example that says where."""
    pytest.importorskip("pyarrow")
    from raftlog.pipeline.jobs.audit_task import Walk

    walk = Walk("t", 3)
    for offset, key, number in (
        (0, b"a", 1),
        (1, b"b", 9),
        (2, b"a", 2),
        (2, b"a", 2),
        (5, b"a", 1),
        (6, b"b", None),
    ):
        walk.step(offset)
        walk.number(key, number)
    found = walk.found()
    assert {name: found[name] for name in ("records", "repeated", "disordered", "unnumbered")} == {
        "records": 6,
        "repeated": 1,
        "disordered": 1,
        "unnumbered": 1,
    }
    assert json.loads(str(found["examples"])) == [
        "t-3: offset 2 after 2",
        "t-3: no records between offsets 2 and 5",
        "t-3: offset 5: 1 after 2 of key b'a'",
        "t-3: offset 6 has no number to order by",
    ]


# --- trips


def test_trips_are_the_same_for_a_seed_and_counted_plainly():
    """Every line is a trip of the demand or malformed."""
    lines = [*trips(12_000, 7)]
    assert lines == [*trips(12_000, 7)]
    assert lines != [*trips(12_000, 8)]
    demand, malformed = count_demand(lines)
    assert malformed == 2
    assert sum(each.trips for each in demand.values()) == 11_998
    assert sum(each.fare_cents for each in demand.values()) == sum(
        json.loads(line)["fare_cents"] for line in lines if line.startswith('{"trip"') and "picked_up" in line
    )


def test_trips_have_the_shape_of_a_city():
    """Rush hours are busier than nights, and the busiest zone far busier than the median zone."""
    demand, _ = count_demand(trips(12_000, 7))
    hours = [sum(each.trips for (hour, _), each in demand.items() if int(hour[-2:]) == h) for h in range(24)]
    zones = sorted(sum(each.trips for (_, z), each in demand.items() if z == zone) for zone in range(1, 61))
    assert hours[18] > 3 * hours[4]
    assert zones[-1] > 5 * zones[30]
