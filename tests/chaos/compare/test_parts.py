"""Claims about what parts make of a measured load: figures of enough records and ticks only."""

from __future__ import annotations

import pytest

from raftlog_chaos.compare.loads import Answer, Load, Measured, Usage
from raftlog_chaos.compare.parts.cost import MIN_TICKS, per_gigabyte, per_record
from raftlog_chaos.compare.parts.latency import MIN_RECORDS, quantiles


def measured(records: int = 1_000, *, system_s: float = 1.0) -> Measured:
    answer = Answer(records=records, seconds=2.0, client_s=0.1, took_ms=(1.0, 2.0, 3.0))
    return Measured(Load(kind="ack", record_bytes=1_000), answer, Usage(2.0, system_s, 4.0, None, 0))


@pytest.mark.parametrize(("records", "told"), [(MIN_RECORDS - 1, 2), (MIN_RECORDS, 3)])
def test_a_thousandth_is_reported_of_enough_records_only(records, told):
    """Two records decide p99.9 of 2,000."""
    found = quantiles("ack", measured(records))
    assert [each.name for each in found] == ["ack, p50", "ack, p99", "ack, p99.9"][:told]


def test_cpu_time_is_reported_by_record_and_gigabyte_with_that_of_the_whole_machine():
    """Kernel threads sync for raftlog, and no process is charged for it."""
    values = {each.name: (each.value, each.unit, each.better) for each in per_record("x", measured())}
    assert values == {
        "x, CPU user": (2_000.0, "µs/record", "less"),
        "x, CPU system": (1_000.0, "µs/record", "less"),
        "x, CPU of the whole machine": (4_000.0, "µs/record", "less"),
    }
    assert [each.value for each in per_gigabyte("x", measured())] == [2_000.0, 1_000.0, 4_000.0]


@pytest.mark.parametrize(("ticks", "better"), [(MIN_TICKS - 1, None), (MIN_TICKS, "less")])
def test_few_ticks_make_no_ratio(ticks, better):
    """The kernel counts in hundredths of a second."""
    _, system, _ = per_record("x", measured(system_s=ticks / 100))
    assert system.better == better
