"""Claims about client processes: what they answer, that they end in time, and what the system used meanwhile."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from raftlog.testing.ports import LOOPBACK
from raftlog.testing.progress import VARIABLE, descendants_of
from raftlog_chaos.compare.clients import redis
from raftlog_chaos.compare.clients.pace import Pace
from raftlog_chaos.compare.clients.redis import words
from raftlog_chaos.compare.clients.speech import quantiles_ms
from raftlog_chaos.compare.loads import Load, LoadFailed, TooSlow, file_system_of, run_client, usage_of
from raftlog_chaos.compare.processes import Child

LOAD = Load(kind="produce", record_bytes=1_000, seconds=0.1, warmup_s=0.0)
ANSWER = '{"records": 2000, "seconds": 0.5, "client_s": 0.1}'


def run(script: str, folder: Path):
    return run_client([sys.executable, "-c", script], LOAD, pids=[os.getpid()], folder=folder)


def test_an_answer_becomes_rates(tmp_path):
    """Records a second, and megabytes of their size."""
    measured = run(f"print('begin\\nend\\n{ANSWER}')", tmp_path)
    assert measured.records_per_s == 4_000
    assert measured.megabytes_per_s == 4.0
    assert measured.gigabytes == 0.002


def test_a_client_that_dies_is_reported_with_its_last_words(tmp_path):
    """The last line of its standard error."""
    words = "no broker"
    with pytest.raises(LoadFailed, match=words):
        run(f"import sys; print('begin', flush=True); sys.exit({words!r})", tmp_path)


def test_a_client_with_a_wrong_answer_has_failed(tmp_path):
    """A line that is no answer is none."""
    with pytest.raises(LoadFailed, match=r'{"wrong": 1}'):
        run("print('begin\\nend\\n{\"wrong\": 1}')", tmp_path)


def test_a_client_that_hangs_is_too_slow_and_ended(tmp_path, monkeypatch):
    """A comparison always waits with a limit."""
    monkeypatch.setenv(VARIABLE, "0.01")
    before = {each.pid for each in descendants_of(os.getpid())}
    with pytest.raises(TooSlow):
        run("import signal; signal.pause()", tmp_path)
    assert {each.pid for each in descendants_of(os.getpid())} <= before


def test_a_child_is_gone_when_it_was_killed(tmp_path):
    """Twice is no mistake."""
    child = Child([sys.executable, "-c", "import signal; signal.pause()"], log_path=tmp_path / "log")
    assert child.running
    child.kill()
    child.kill()
    assert not child.running
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_process_that_is_gone_has_used_nothing(tmp_path):
    """A killed node must not end the measurement of the others."""
    ours = usage_of([os.getpid()], tmp_path)
    both = usage_of([os.getpid(), 1 << 30], tmp_path)
    assert both.since(ours).cpu_s < 1
    assert ours.resident_bytes > 1_000_000


def test_a_file_system_is_known_by_its_type():
    """On a file system in memory a sync is free, which the run reports."""
    assert file_system_of(Path("/proc")) == "proc"


def test_quantiles_are_nearest_ranks_in_milliseconds():
    """One sample is all of them."""
    assert quantiles_ms([0.002]) == pytest.approx((2.0, 2.0, 2.0))
    assert quantiles_ms([number / 1000 for number in range(1, 1001)]) == pytest.approx((500.0, 990.0, 999.0))


def test_a_pace_never_lets_more_records_be_due_than_its_rate_has():
    """However late it is asked."""
    pace = Pace(1_000_000_000, 0.0)
    assert pace.take() == []
    assert pace.over
    pace = Pace(10, 3600.0)
    assert len(pace.take()) == 1
    assert pace.take() == []
    assert 0 < pace.wait_s() <= 0.1


def test_a_pace_is_over_once_all_of_its_records_are_taken():
    """A stall at the end of the measured time leaves out none, and each has the moment when it was due."""
    pace = Pace(10_000, 0.01)
    while time.perf_counter() < pace.until:
        continue
    assert not pace.over
    due_at = pace.take()
    assert len(due_at) == 100
    assert [round(later - due_at[0], 6) for later in due_at[:3]] == [0.0, 0.0001, 0.0002]
    assert pace.over


class SlowRedis(threading.Thread):
    """Answers each pipeline DELAY_S after it came."""

    DELAY_S = 0.02

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        connection, _ = self._listener.accept()
        came = b""
        with connection, self._listener:
            while read := connection.recv(1 << 20):
                came += read
                if came.endswith(words(b"WAIT", b"2", b"5000")):
                    threading.Event().wait(self.DELAY_S)
                    connection.sendall(b"$3\r\n1-1\r\n" * came.count(b"XADD") + b":2\r\n")
                    came = b""


def test_latency_has_the_wait_of_records_that_were_due_while_a_pipeline_was_under_way():
    """On average half of what the pipeline before took, in addition to what the record's own took."""
    server = SlowRedis()
    answer = redis.ack(Load(kind="ack", servers=[server.address], rate=1_000, seconds=0.5, record_bytes=100))
    assert answer.records == 500
    assert answer.took_ms is not None
    p50, p99, _ = answer.took_ms
    assert p50 > 1.3 * 1000 * server.DELAY_S
    assert p99 > 1.8 * 1000 * server.DELAY_S


@pytest.mark.nightly
def test_the_whole_machine_has_spent_what_no_process_was_charged_for(tmp_path):
    """Less what the client says that it has spent itself."""
    spin = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\n"
    script = f"print('begin', flush=True); {spin.format(0.5)}print('end\\n{ANSWER}')"
    measured = run(script, tmp_path)
    assert measured.used.machine_s >= 0.2  # steal may hide some of the half second, not most
    assert run(script.replace('"client_s": 0.1', '"client_s": 1000'), tmp_path).used.machine_s == 0


def test_a_redis_command_is_an_array_of_bulk_strings():
    """RESP, Redis's protocol."""
    assert words(b"XADD", b"key", b"*") == b"*3\r\n$4\r\nXADD\r\n$3\r\nkey\r\n$1\r\n*\r\n"
