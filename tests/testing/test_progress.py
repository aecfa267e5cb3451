"""Claims about waits: what counts as progress, what does not, and what a wait that ends says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from raftlog.testing import progress
from raftlog.testing.progress import (
    HELD_UP_S,
    LIFE_S,
    MAX_PAUSE_S,
    STALL_S,
    VARIABLE,
    Signs,
    Stalled,
    Wait,
    patient,
    signs_of_descendants,
    signs_of_process,
    wait_until,
    wait_until_async,
)
from tests.kit.waits import until


class FakeProcesses:
    """A clock that only we move, and what can be seen of processes."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.state: object = "asleep"
        self.signs = Signs("started", 0.0, 3)

    def wait(self) -> Wait:
        return Wait("they meet", seen=lambda: self.state, signs=lambda: self.signs, clock=lambda: self.now_s)

    def stalls_after(self, wait: Wait, each_second: Callable[[int], None] = lambda _: None) -> int:
        """Return the seconds after which no event counts as progress any more; at most three times LIFE_S."""
        for second in range(int(3 * LIFE_S)):
            each_second(second)
            try:
                wait.pause()
            except Stalled as error:
                self.said = str(error)
                return second
            self.now_s += 1.0
        raise AssertionError("the wait goes on and on")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    monkeypatch.delenv(VARIABLE, raising=False)
    return FakeProcesses()


def test_wait_ends_when_nothing_moves_for_a_minute(processes: FakeProcesses) -> None:
    """And the error has the condition, the time without progress, and the last state."""
    assert processes.stalls_after(processes.wait()) == STALL_S
    assert processes.said == "they meet: no progress for 60 of 60 s; last seen: asleep"


def test_wait_that_ends_soon_looks_at_no_process(processes: FakeProcesses) -> None:
    """A look at all processes takes longer than most waits; nothing is compared in the first second."""

    def look() -> Signs:
        raise AssertionError("it looked")

    Wait("soon", seen=look, signs=look, clock=lambda: processes.now_s).pause()


def test_state_that_changes_holds_up_the_end_for_as_long_as_it_does(processes: FakeProcesses) -> None:
    """Ten offsets in twenty minutes are slow, and yet progress."""

    def slowly(second: int) -> None:
        if second <= 1200 and second % 50 == 0:
            processes.state = second

    assert processes.stalls_after(processes.wait(), slowly) == 1200 + STALL_S
    assert "no progress for 60 of 1260 s; last seen: 1200" in processes.said


def test_log_that_only_grows_ends_a_wait_in_the_end(processes: FakeProcesses) -> None:
    """A node that says the same again and again is alive, but there is no end to that."""

    def chatter(second: int) -> None:
        processes.signs = Signs(second, 0.0, 3)

    assert LIFE_S < processes.stalls_after(processes.wait(), chatter) <= LIFE_S + 2 * STALL_S
    assert "processes were busy for 600 s without a result" in processes.said


def test_nodes_that_compute_hold_up_the_end_and_idle_ones_do_not(processes: FakeProcesses) -> None:
    """Three idle nodes use a fiftieth of a core; three that load their code on a tenth of one use all of that."""

    def using(share: float) -> Callable[[int], None]:
        def at(second: int) -> None:
            processes.signs = Signs("started", second * share, 3)

        return at

    assert processes.stalls_after(processes.wait(), using(0.02)) == STALL_S
    assert processes.stalls_after(processes.wait(), using(0.1)) > LIFE_S


def test_signs_of_life_count_anew_after_each_change_of_state(processes: FakeProcesses) -> None:
    """Slow steps may each take their ten minutes."""

    def steps(second: int) -> None:
        processes.signs = Signs(second, 0.0, 3)
        if second in (500, 1000):
            processes.state = second

    assert processes.stalls_after(processes.wait(), steps) > 1000 + LIFE_S


def test_time_in_which_the_waiting_process_itself_stood_still_does_not_count(
    processes: FakeProcesses,
) -> None:
    """A suspended machine, or a stopped harness, has seen no progress; that is not the cluster's fault."""
    wait = processes.wait()
    wait.pause()
    processes.now_s += 3600.0
    wait.pause()
    assert processes.stalls_after(wait) == STALL_S - HELD_UP_S


def test_patience_multiplies_every_limit(processes: FakeProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """RAFTLOG_PATIENCE=4 for a machine that is slower still; what is no factor is refused by name."""
    monkeypatch.setenv(VARIABLE, "4")
    assert processes.stalls_after(processes.wait()) == 4 * STALL_S
    assert patient(30.0) == 120.0
    for text in ("much", "0", "-1", "nan", "1e9"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(ValueError, match=f"{VARIABLE}: a factor from 0.01 to 1000, not '{text}'"):
            patient(1.0)


def test_looking_leaves_the_machine_to_the_processes_waited_for(
    processes: FakeProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that costs much CPU is followed by a long pause, and no pause is longer than a second."""
    used_s = [0.0, 0.0, 0.1, 5.0]
    monkeypatch.setattr(progress.time, "thread_time", lambda: used_s.pop(0))
    wait = processes.wait()
    assert wait.pause() == progress.MIN_PAUSE_S
    assert wait.pause() == pytest.approx(0.3)
    assert wait.pause() == MAX_PAUSE_S


async def test_both_kinds_of_waiting_return_once_it_holds() -> None:
    """They say how long it took, and raise what the condition raises."""
    looks = iter([False, False, True])
    assert wait_until(lambda: next(looks), "the third look") >= 0.0
    later = iter([False, True])

    async def holds() -> bool:
        return next(later)

    assert await wait_until_async(holds, "the second look") >= 0.0
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, "never")


def test_wait_without_any_process_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real clock, with little patience."""
    monkeypatch.setenv(VARIABLE, "0.02")
    with pytest.raises(Stalled, match="a miracle: no progress for 1 of"):
        wait_until(lambda: False, "a miracle", seen=lambda: None, signs=progress.no_signs)


def test_signs_show_live_and_stopped_processes_and_what_was_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """Of children and their children; CPU time is summed up; young processes do not count, as they may be requests."""
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    log = tmp_path / "log"
    with log.open("w") as out:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=out, start_new_session=True)
    try:
        before = signs_of_descendants().cpu_s
        until(lambda: signs_of_descendants().cpu_s > before + 0.2, "the grandchild computes")
        monkeypatch.setattr(progress, "YOUNG_S", 3600.0)
        assert signs_of_process(child.pid).printed == frozenset()
        monkeypatch.setattr(progress, "YOUNG_S", 0.0)
        living = signs_of_descendants()
        assert living.processes >= 2 and (child.pid, False, 0) in living.printed
        log.write_text("news")
        assert (child.pid, False, 4) in signs_of_descendants().printed
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: (child.pid, True, 4) in signs_of_descendants().printed, "it stands still")
        assert signs_of_process(child.pid).processes == 1
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert signs_of_process(child.pid) == Signs(frozenset(), 0.0, 0)


def test_log_that_repeats_its_events_is_no_sign(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A node without a leader logs the same events with other terms until the test ends. A new event is a sign."""
    monkeypatch.setattr(progress, "YOUNG_S", 0.0)
    log = tmp_path / "log"
    with log.open("w") as out:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=out)

    def write(*events: str) -> object:
        with log.open("a") as out:
            out.writelines(f'{{"event":"{each}","term":{log.stat().st_size}}}\n' for each in events)
        found: Any = signs_of_process(child.pid).printed
        ((_, _, printed),) = found
        return printed

    first = write("vote_asked", "vote_refused")
    assert first == write("vote_asked") == write("vote_refused", "vote_asked") != write("leader_elected")
    assert write(*["idle"] * progress.TAIL_BYTES) == {b"idle"}, "the end of the log is searched, and not all"
    child.communicate(b"\n")
