"""Work follows what changed and what happens, never what exists, counted in steps and bytes.

`make growth` counts the same curves up to 100,000 partitions, 100 brokers and 10,000 groups.
"""

from __future__ import annotations

import pytest

from raftlog.metadata.persistent_map import PersistentMap, changed_keys
from raftlog_chaos.growth import laws
from raftlog_chaos.growth.__main__ import as_table
from raftlog_chaos.growth.laws import CONSTANT, LINEAR, LOGARITHMIC, Curve
from raftlog_chaos.growth.steps import count_bytes, count_steps


def test_the_control_plane_follows_its_laws() -> None:
    """Metadata changes, failures of brokers and controllers, heartbeats and ticks; 300 partitions, 12 brokers."""
    curves = laws.control_curves((10, 300), (3, 12))
    assert all(each.is_lawful() for each in curves), "\n".join(as_table(curves))
    assert len(curves) == 10


def test_whole_nodes_follow_their_laws() -> None:
    """An idle second, a record and a request for a topic cost the same with 800 partitions; idle groups are free."""
    curves = laws.node_curves((10, 800), (10, 50))
    assert all(each.is_lawful() for each in curves), "\n".join(as_table(curves))
    assert all(count > 0 for each in curves for _, count in each.points)


@pytest.mark.nightly
def test_real_processes_follow_their_laws() -> None:
    """At rest and for a record they call the same, with ten times the partitions and with five brokers."""
    curves = laws.process_curves(laws.PROCESS_PARTITIONS, laws.PROCESSES)
    assert all(each.is_lawful() for each in curves), "\n".join(as_table(curves))


@pytest.mark.parametrize(
    ("law", "counts", "lawful"),
    [
        (CONSTANT, (100, 101, 124), True),
        (CONSTANT, (100, 101, 200), False),
        (CONSTANT, (200, 101, 100), False),
        (LOGARITHMIC, (100, 130, 159), True),
        (LOGARITHMIC, (100, 130, 161), False),
        (LOGARITHMIC, (200, 101, 100), True),
        (LOGARITHMIC, (200, 101, 163), False),
        (LINEAR, (100, 1_000, 10_000), True),
        (LINEAR, (100, 500, 2_500), True),
        (LINEAR, (100, 1_000, 20_000), False),
    ],
)
def test_a_curve_says_whether_its_law_holds(law: str, counts: tuple[float, ...], lawful: bool) -> None:
    """A linear curve may have a part that is paid once; the cost of each element may not grow."""
    curve = Curve("some", "steps", "things", law, tuple(zip((10, 100, 1_000), counts, strict=True)))
    assert curve.is_lawful() == lawful
    assert as_table([curve])[2].endswith("| holds |" if lawful else "| BROKEN |")


def test_steps_count_loops_and_bytes_count_copies() -> None:
    """A comprehension over a thousand costs a thousand steps, and a copy counts though it is dropped."""
    few, many = (PersistentMap({str(key): key for key in range(count)}) for count in (10, 1_000))
    assert count_steps(lambda: few.updated({"x": 1})).total() < 50
    assert count_steps(lambda: list(changed_keys(few, many))).total() > 1_000
    assert count_steps(lambda: [-each for each in range(1_000)]).total() == 0, (
        "only raftlog's own code counts"
    )
    assert count_bytes(lambda: dict(many)) > 30_000
    assert count_bytes(lambda: few.updated({"x": 1})) < 3_000
