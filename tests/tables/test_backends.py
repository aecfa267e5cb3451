"""The contract of tables (raftlog.tables.table), held by the table in memory and by each format."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from raftlog.tables.progress import Attempt, Tampered, WrongSource, check_source
from raftlog.tables.table import Conflict, StoreFailed
from raftlog.tables.writer import TableWriter
from tests.tables.conftest import BACKENDS, Backend, rows
from tests.tables.exactly_once import ENDS, FIRST, check_every_fault
from tests.tables.in_memory import SOURCE, Fault, append_all, expected, no_wait

pytestmark = pytest.mark.tables

FENCE = Attempt(1, {}, {0: 0, 1: 0})


def _keys(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((each["partition"], each["offset"]) for each in found)


def test_a_new_table_has_its_source_and_no_offsets(backend: Backend, where: str):
    """Before it is made, there is none."""
    table = backend.open(where)
    assert table.load() is None
    table.create(SOURCE)
    head = table.load()
    assert head is not None
    assert (head.source, head.epoch, head.offsets) == (SOURCE, 0, {})
    with pytest.raises((Conflict, StoreFailed)):
        backend.open(where).create(SOURCE)


def test_rows_epoch_and_offsets_are_one_version(backend: Backend, where: str):
    """Another process reads them all, or none."""
    table = backend.open(where)
    table.create(SOURCE)
    before = table.load()
    assert before is not None
    table.append(before, FENCE, rows([]))
    fenced = backend.open(where).load()
    assert fenced is not None and (fenced.epoch, fenced.offsets) == (1, {0: 0, 1: 0})
    head = table.load()
    assert head is not None
    table.append(head, Attempt(1, head.offsets, {0: 2, 1: 0}), rows([(0, 0), (0, 1)]))
    reader = backend.open(where)
    after = reader.load()
    assert after is not None and (after.epoch, after.offsets) == (1, {0: 2, 1: 0})
    assert reader.read(("partition", "offset"), 1).to_pylist() == [{"partition": 0, "offset": 1}]
    assert after.version != fenced.version != before.version
    assert _keys(backend.read(where)) == [(0, 0), (0, 1)]


def test_leader_epochs_are_beside_the_offsets(backend: Backend, where: str):
    """A takeover keeps them, a partition that was read on elsewhere loses its own, and tables without them are read."""
    table = backend.open(where)
    writer = TableWriter(table, SOURCE, no_wait)
    writer.take_over({0: 0, 1: 0}, rows([]))
    assert writer.head.leader_epochs == {}
    writer.append(rows([(0, 0), (1, 0)]), {0: 1, 1: 1}, {0: 0, 1: 7})
    younger = TableWriter(backend.open(where), SOURCE, no_wait)
    younger.take_over({}, rows([]))
    assert younger.head.leader_epochs == {0: 0, 1: 7}
    younger.append(rows([]), {1: 9}, {0: 0})
    found = backend.open(where).load()
    assert found is not None and (found.offsets, found.leader_epochs) == ({0: 1, 1: 9}, {0: 0})


def test_an_append_on_an_older_version_conflicts(backend: Backend, where: str):
    """With rows or without, and no row gets in. The libraries would try again on the newest version by themselves."""
    first, second = backend.open(where), backend.open(where)
    first.create(SOURCE)
    heads = [each.load() for each in (first, second)]
    assert heads[0] is not None and heads[1] is not None
    first.append(heads[0], FENCE, rows([(0, 0)]))
    for chunk in ([], [(0, 0)]):
        with pytest.raises(Conflict):
            second.append(heads[1], FENCE, rows(chunk))
    assert _keys(backend.read(where)) == [(0, 0)]


def test_each_row_is_in_the_table_once_whatever_happens_at_any_call(backend: Backend, tmp_path: Path):
    """The scenario of test_writer.py, with a part of its faults since files take their time."""
    numbers = itertools.count()

    def new() -> Any:
        where = str(tmp_path / str(next(numbers)))
        return (lambda: backend.open(where)), (lambda: _keys(backend.read(where)))

    faults = (Fault.KILLED_AFTER, Fault.FAILED_AFTER, Fault.RIVAL_BEFORE, Fault.TIDIED_BEFORE)
    assert check_every_fault(new, faults, rows) > 20


def test_small_files_are_merged_and_no_row_or_offset_is_lost(backend: Backend, where: str):
    """A writer goes on after it."""
    table = backend.open(where)
    append_all(table, {0: 9, 1: 9}, rows)
    before = table.load()
    table.tidy()
    after = table.load()
    assert before is not None and after is not None
    assert (after.epoch, after.offsets) == (before.epoch, before.offsets)
    append_all(backend.open(where), {0: 12, 1: 10}, rows)
    assert _keys(backend.read(where)) == expected({0: 12, 1: 10})


def test_a_place_that_cannot_be_written_is_a_failure_with_words(backend: Backend):
    """The kernel refuses new folders among its own."""
    with pytest.raises(StoreFailed) as raised:
        backend.open("/proc/raftlog/orders").create(SOURCE)
    assert "\n" not in str(raised.value) and "\x1b" not in str(raised.value)


def test_a_foreign_delta_table_is_refused(where: str):
    """Another program's table at the place is not touched."""
    import deltalake
    import pyarrow as pa

    from raftlog.tables.columns import SCHEMA
    from raftlog.tables.delta import DeltaBackend

    deltalake.write_deltalake(where, pa.table({"a": [1]}))
    head = DeltaBackend(where, SCHEMA).load()
    assert head is not None
    with pytest.raises(WrongSource):
        check_source(head, SOURCE)


def _iceberg_table(where: str) -> Any:
    from raftlog.tables.iceberg import open_catalog

    folder, topic = where.rsplit("/", 1)
    return open_catalog(f"file://{folder}", "").load_table(("raftlog", topic))


def _add_foreign_snapshot(where: str) -> None:
    _iceberg_table(where).append(rows([]))


def test_a_foreign_snapshot_is_no_reason_to_stop_or_to_begin_anew(where: str):
    """Another engine rewrites files while a writer is at work: the writer's next attempt is on top of that."""
    backend = BACKENDS["iceberg"]
    writer = TableWriter(backend.open(where), SOURCE, no_wait)
    writer.take_over({0: 0, 1: 0}, rows([]))
    _add_foreign_snapshot(where)
    writer.append(rows([(0, 0)]), {0: 1})
    _add_foreign_snapshot(where)
    append_all(backend.open(where), ENDS, rows)
    assert _keys(backend.read(where)) == expected(ENDS)


def test_offsets_outlive_the_snapshots_of_raftlog(where: str):
    """Another engine compacted the table and expired all older snapshots."""
    backend = BACKENDS["iceberg"]
    append_all(backend.open(where), FIRST, rows)
    _add_foreign_snapshot(where)
    table = _iceberg_table(where)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert len(table.snapshots()) == 1
    append_all(backend.open(where), ENDS, rows)
    assert _keys(backend.read(where)) == expected(ENDS)


def test_a_table_that_was_rolled_back_gets_its_rows_again(where: str):
    """Offsets come from the snapshot that is the newest now."""
    backend = BACKENDS["iceberg"]
    append_all(backend.open(where), FIRST, rows)
    table = _iceberg_table(where)
    first = table.snapshots()[1].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert len(table.scan().to_arrow()) < len(expected(FIRST))
    append_all(backend.open(where), ENDS, rows)
    assert _keys(backend.read(where)) == expected(ENDS)


def test_retries_of_the_library_would_double_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A planted bug: pyiceberg tries four times on top of newer snapshots, its default, and the scenario finds it."""
    from raftlog.tables import iceberg

    monkeypatch.setitem(iceberg.PROPERTIES, "commit.retry.num-retries", "4")
    backend, numbers = BACKENDS["iceberg"], itertools.count()

    def new() -> Any:
        where = str(tmp_path / str(next(numbers)))
        return (lambda: backend.open(where)), (lambda: _keys(backend.read(where)))

    with pytest.raises((AssertionError, Tampered)):
        check_every_fault(new, (Fault.RIVAL_BEFORE,), rows)
