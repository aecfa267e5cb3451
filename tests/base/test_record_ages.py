"""The time that decides deletion by age: no record becomes old because a clock is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftlog.base.disk import RealDisk
from raftlog.base.record_ages import (
    ANCHORED_S,
    CLOCK_CHECKPOINT,
    MAX_JUMP_MS,
    MOST_APART_MS,
    NOTHING_IS_OLD_MS,
    REPORTED_S,
    Ages,
    ClockState,
    OtherClocks,
    decode_time,
    encode_time,
    read_believed_time,
    write_believed_time,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LEAP_MS = 600_000
TRUE_MS = 1_700_000_000_000

ALONE = OtherClocks()
TWO_AGREE = OtherClocks(alive=2, reported=2, agreeing=2, believing=2)
TWO_DISAGREE = OtherClocks(alive=2, reported=2, ahead_ms=-DAY_MS)
TWO_IN_DOUBT = OtherClocks(alive=2, reported=2, agreeing=2, doubting=2)


class Clocks:
    """A wall clock that can be set, beside an uptime that cannot. `off_ms`: how far it is from the true time."""

    def __init__(self, off_ms: int = 0) -> None:
        self.uptime_s = 1_000.0
        self.off_ms = off_ms
        self.ages = Ages(self.wall_ms, lambda: self.uptime_s)

    def wall_ms(self) -> int:
        """Return what the wall clock shows."""
        return self.true_ms() + self.off_ms

    def true_ms(self) -> int:
        """Return what it should show."""
        return TRUE_MS + int(self.uptime_s * 1000)

    def judged_off_ms(self) -> int | None:
        """Return the offset of the time that decides age from the true time; None: no record is old."""
        now_ms = self.ages.now_ms()
        return None if now_ms == NOTHING_IS_OLD_MS else now_ms - self.true_ms()

    def start(self, stopped_ms: int | None, off_ms: int = 0, others: OtherClocks | None = ALONE) -> Clocks:
        """Start a node that believed its clock last so long ago (None: its disk does not say), and ask the others."""
        self.off_ms = off_ms
        last_ms = None if stopped_ms is None else self.true_ms() - stopped_ms
        self.ages.resume(last_ms, most_ms=LEAP_MS)
        assert self.judged_off_ms() is None, "before the others were asked"
        self.ages.note_others(others)
        return self


@pytest.fixture
def clocks() -> Clocks:
    """A node that runs, alone."""
    made = Clocks()
    assert made.judged_off_ms() == 0
    return made


# -- while a node runs


def test_a_clock_that_drifts_or_is_set_right_in_small_steps_is_followed(clocks: Clocks) -> None:
    """However far they lead in the end, as long as they are few enough."""
    for _ in range(1_000):
        clocks.uptime_s += ANCHORED_S
        clocks.off_ms += MAX_JUMP_MS
        assert clocks.ages.jump_ms() == 0
    assert clocks.judged_off_ms() == clocks.off_ms == 1_000 * MAX_JUMP_MS
    assert clocks.ages.latest_ms() == clocks.ages.now_ms()


def test_a_clock_that_goes_much_too_fast_is_no_clock_that_drifts(clocks: Clocks) -> None:
    """Looks are frequent, so that no single step is large."""
    for _ in range(100):
        clocks.uptime_s += 1.0
        clocks.off_ms += 1_000
    assert clocks.judged_off_ms() is None


def test_a_jump_ahead_makes_nothing_old(clocks: Clocks) -> None:
    """The believed time goes on; what is stamped for deletion takes the wall clock, and so lives longer."""
    clocks.off_ms = 30 * DAY_MS
    clocks.uptime_s += 600.0
    assert clocks.judged_off_ms() is None
    assert clocks.ages.jump_ms() == 30 * DAY_MS
    assert clocks.ages.believed_ms() == clocks.true_ms()
    assert clocks.ages.latest_ms() == clocks.wall_ms()


def test_a_jump_back_makes_nothing_old_when_it_is_undone(clocks: Clocks) -> None:
    """Age waits, and what is written meanwhile is stamped as if the clock had not gone back."""
    clocks.off_ms = -30 * DAY_MS
    clocks.uptime_s += 600.0
    assert clocks.judged_off_ms() is None
    assert clocks.ages.latest_ms() == clocks.ages.floor_ms == clocks.true_ms()
    clocks.off_ms = 0
    assert clocks.judged_off_ms() == clocks.ages.jump_ms() == 0


@pytest.mark.parametrize("way", [1, -1])
def test_a_jump_is_accepted_once_the_clock_has_gone_on_for_as_long_as_it_jumped(
    clocks: Clocks, way: int
) -> None:
    """So what goes in error has existed for half of its retention time. A further jump begins it anew."""
    clocks.off_ms = way * HOUR_MS
    assert clocks.judged_off_ms() is None
    clocks.uptime_s += 3_599.0
    clocks.off_ms = way * 2 * HOUR_MS
    assert clocks.judged_off_ms() is None
    clocks.uptime_s += 7_199.0
    assert clocks.judged_off_ms() is None
    clocks.uptime_s += 1.0
    assert clocks.judged_off_ms() == way * 2 * HOUR_MS


def test_an_operator_accepts_a_jump_at_once(clocks: Clocks) -> None:
    """Once; while the clock is trusted there is no jump to accept."""
    assert not clocks.ages.accept()
    clocks.off_ms = DAY_MS
    assert clocks.ages.accept()
    assert (clocks.judged_off_ms(), clocks.ages.jump_ms()) == (DAY_MS, 0)
    assert not clocks.ages.accept()


# -- at a start


@pytest.mark.parametrize("stopped_ms", [0, 5_000, LEAP_MS])
def test_a_node_that_starts_soon_goes_on(stopped_ms: int) -> None:
    """Alone, or where others agree with it or are fewer."""
    assert Clocks().start(stopped_ms).judged_off_ms() == 0
    assert Clocks().start(stopped_ms, others=TWO_AGREE).judged_off_ms() == 0
    one_disagrees = OtherClocks(2, 2, 1, 1)
    assert Clocks().start(stopped_ms, others=one_disagrees).judged_off_ms() == 0


@pytest.mark.parametrize("off_ms", [40 * DAY_MS, -40 * DAY_MS, LEAP_MS + 1])
@pytest.mark.parametrize("others", [ALONE, TWO_DISAGREE, TWO_IN_DOUBT])
def test_a_clock_far_from_the_time_on_the_disk_makes_nothing_old(off_ms: int, others: OtherClocks) -> None:
    """Whether the node is alone, the only node with a wrong clock, or all clocks of the cluster are wrong alike."""
    clocks = Clocks().start(0, off_ms, others)
    assert clocks.judged_off_ms() is None
    assert clocks.ages.state is ClockState.DOUBTED and clocks.ages.was_found_at_start
    assert clocks.ages.jump_ms() == off_ms
    assert clocks.ages.believed_ms() == clocks.true_ms()


def test_a_node_that_was_off_for_a_month_is_confirmed_by_the_others() -> None:
    """Most of them agree, and at least one node has trusted its clock all along."""
    assert Clocks().start(30 * DAY_MS, others=TWO_AGREE).judged_off_ms() == 0
    one_of_two_believes = OtherClocks(2, 2, 2, 1, 1)
    assert Clocks().start(30 * DAY_MS, others=one_of_two_believes).judged_off_ms() == 0
    half_of_them = OtherClocks(2, 1, 1, 1)
    assert Clocks().start(30 * DAY_MS, others=half_of_them).judged_off_ms() is None


def test_a_cluster_that_was_off_for_a_month_waits_for_a_month_or_an_operator() -> None:
    """It cannot be distinguished from a cluster with all clocks a month ahead. The wait needs nodes in contact."""
    clocks = Clocks().start(30 * DAY_MS, others=TWO_IN_DOUBT)
    clocks.uptime_s += 30 * 86_400.0 - 1
    clocks.ages.note_others(TWO_IN_DOUBT)
    assert clocks.judged_off_ms() is None
    clocks.uptime_s += 1.0 + REPORTED_S
    assert clocks.judged_off_ms() is None, "the others may have found out meanwhile"
    clocks.ages.note_others(TWO_IN_DOUBT)
    assert clocks.judged_off_ms() == 0
    asked = Clocks().start(30 * DAY_MS, others=TWO_IN_DOUBT)
    assert asked.ages.accept()
    assert asked.judged_off_ms() == 0


def test_a_wrong_clock_that_others_contradict_is_not_accepted_with_time() -> None:
    """However long it goes on."""
    clocks = Clocks().start(0, DAY_MS, TWO_DISAGREE)
    for _ in range(5):
        clocks.uptime_s += 86_400.0
        clocks.ages.note_others(TWO_DISAGREE)
        assert clocks.judged_off_ms() is None


def test_clocks_that_were_all_wrong_and_are_right_again_are_believed() -> None:
    """The believed time on the disk went on meanwhile, whatever the clocks showed."""
    disk_ms = None
    clocks = Clocks().start(0, 40 * DAY_MS, TWO_IN_DOUBT)
    clocks.uptime_s += 7_200.0
    disk_ms = clocks.ages.time_to_keep()
    assert disk_ms == clocks.true_ms()
    assert clocks.start(0, others=TWO_AGREE).judged_off_ms() == 0


def test_an_unconfirmed_clock_leaves_the_time_on_the_disk_and_the_uptime() -> None:
    """A controller without a broker stays so until it becomes active; its next start must not be in doubt."""
    clocks = Clocks(off_ms=LEAP_MS)
    clocks.ages.resume(clocks.true_ms(), most_ms=LEAP_MS)
    clocks.uptime_s += 86_400.0
    assert clocks.judged_off_ms() is None
    assert clocks.ages.time_to_keep() == clocks.true_ms(), "not the wall clock, which may be wrong"
    clocks = Clocks(off_ms=-1_000)
    clocks.ages.resume(clocks.true_ms(), most_ms=LEAP_MS)
    assert clocks.ages.time_to_keep() == clocks.wall_ms(), "nor a time ahead of it"


def test_a_wrong_clock_that_is_set_right_after_the_start_is_asked_about_again() -> None:
    """In between, no record is old."""
    clocks = Clocks().start(60_000, 40 * DAY_MS, TWO_DISAGREE)
    clocks.uptime_s += 60.0
    clocks.off_ms = 0
    assert clocks.judged_off_ms() is None
    clocks.ages.reading()
    clocks.ages.note_others(TWO_AGREE)
    assert clocks.judged_off_ms() == 0


@pytest.mark.parametrize("is_running", [True, False])
def test_an_answer_about_the_clock_before_it_jumped_confirms_nothing(is_running: bool) -> None:
    """A heartbeat is under way when the clock is set, as after the pause of a virtual machine."""
    clocks = Clocks().start(0, others=TWO_AGREE if is_running else None)
    clocks.ages.reading()
    clocks.off_ms = 400 * DAY_MS
    clocks.ages.note_others(TWO_AGREE)
    assert clocks.ages.state is ClockState.DOUBTED and clocks.judged_off_ms() is None
    clocks.ages.reading()
    clocks.ages.note_others(TWO_AGREE)
    assert clocks.judged_off_ms() == 400 * DAY_MS, "the answer to the next one is about the clock as it is"


# -- without a time on the disk


def test_a_new_node_believes_its_clock_unless_others_contradict_it_or_all_doubt_theirs() -> None:
    """A node that lost its disk must not confirm the wrong clocks of all others."""
    assert Clocks().start(None).judged_off_ms() == 0
    assert Clocks().start(None, others=TWO_AGREE).judged_off_ms() == 0
    assert Clocks().start(None, others=OtherClocks(2, 2, 2)).judged_off_ms() == 0, "all are new"
    assert Clocks().start(None, DAY_MS, TWO_DISAGREE).judged_off_ms() is None
    assert Clocks().start(None, DAY_MS, TWO_IN_DOUBT).judged_off_ms() is None
    assert Clocks().start(None, others=OtherClocks(alive=2)).judged_off_ms() is None, "not heard of yet"


def test_a_new_node_whose_clock_is_behind_its_metadata_doubts_it() -> None:
    """A batch is no older than the time of its write; the disk keeps no trace of the doubt."""
    clocks = Clocks(-DAY_MS)
    clocks.ages.resume(None, most_ms=LEAP_MS)
    clocks.ages.note_metadata(0)
    clocks.ages.note_metadata(clocks.true_ms())
    clocks.ages.note_others(ALONE)
    assert clocks.judged_off_ms() is None
    assert clocks.ages.state is ClockState.DOUBTED
    assert clocks.ages.time_to_keep() is None


@pytest.mark.parametrize(("off_ms", "judged_ms"), [(0, 0), (MOST_APART_MS, MOST_APART_MS), (DAY_MS, None)])
def test_a_controller_of_an_older_release_is_asked_by_what_it_wrote(
    off_ms: int, judged_ms: int | None
) -> None:
    """Its heartbeat responses have no clocks, but it has just written this broker's registration."""
    for stopped_ms in (None, 0):
        clocks = Clocks(off_ms)
        clocks.ages.resume(
            None if stopped_ms is None else clocks.wall_ms() - stopped_ms,
            most_ms=LEAP_MS,
        )
        clocks.ages.note_others(None)
        assert clocks.judged_off_ms() is None, "no batch came yet"
        clocks.ages.note_metadata(clocks.true_ms())
        clocks.uptime_s += 3_600.0
        clocks.ages.note_others(None)
        assert clocks.judged_off_ms() == judged_ms


# -- other clocks


def test_too_many_other_clocks_that_say_something_else_stop_a_node_that_runs() -> None:
    """Until most agree. Of three, the two that agree go on; of two, both stop."""
    clocks = Clocks().start(0, others=TWO_AGREE)
    with capture_logs() as logs:
        clocks.ages.note_others(OtherClocks(2, 2, 1, 1))
        assert clocks.judged_off_ms() == 0
        clocks.ages.note_others(TWO_DISAGREE)
        clocks.ages.note_others(TWO_DISAGREE)
        assert clocks.judged_off_ms() is None and clocks.ages.time_to_keep() is None
        assert clocks.ages.contradiction == TWO_DISAGREE
        clocks.ages.note_others(OtherClocks(1, 1))
        assert clocks.judged_off_ms() is None
        clocks.ages.note_others(OtherClocks(2, 0))
        assert clocks.judged_off_ms() is None, "a new controller has not heard of them yet"
        clocks.ages.note_others(TWO_AGREE)
        assert clocks.judged_off_ms() == 0
    assert [each["event"] for each in logs] == ["clocks_disagree", "clocks_agree_again"]


def test_an_operator_overrules_the_others_until_they_agree() -> None:
    """A later contradiction is one again."""
    clocks = Clocks().start(0, others=TWO_DISAGREE)
    assert clocks.judged_off_ms() is None
    assert clocks.ages.accept()
    clocks.ages.note_others(TWO_DISAGREE)
    assert clocks.judged_off_ms() == 0
    clocks.ages.note_others(TWO_AGREE)
    clocks.ages.note_others(TWO_DISAGREE)
    assert clocks.judged_off_ms() is None


# -- the file


def test_the_file_of_the_believed_time_is_whole_or_absent(tmp_path: Path) -> None:
    """Each of its bits counts."""
    disk, folder = RealDisk(), str(tmp_path)
    assert read_believed_time(disk, folder) is None
    write_believed_time(disk, folder, TRUE_MS)
    assert read_believed_time(disk, folder) == TRUE_MS
    whole = encode_time(TRUE_MS)
    assert decode_time(whole) == TRUE_MS
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / CLOCK_CHECKPOINT).write_bytes(flipped)
        with capture_logs() as logs:
            assert read_believed_time(disk, folder) is None
        assert [each["event"] for each in logs] == ["clock_checkpoint_unreadable"]
    for torn in range(len(whole)):
        (tmp_path / CLOCK_CHECKPOINT).write_bytes(whole[:torn])
        assert read_believed_time(disk, folder) is None


def test_a_time_is_written_when_the_clock_is_believed_anew() -> None:
    """At once, since the next start may come soon."""
    clocks, written = Clocks(), list[int | None]()
    clocks.ages.on_believed = lambda: written.append(clocks.ages.time_to_keep())
    clocks.start(30 * DAY_MS, others=ALONE)
    assert not written
    clocks.ages.note_others(TWO_AGREE)
    assert written == [clocks.true_ms()]
