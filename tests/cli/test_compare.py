"""Claims about `raftlog compare`: its options, its files, and a short run with real processes."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raftlog.cli import compare, exits
from raftlog.cli.compare import CompareOptions, run
from raftlog.testing.progress import descendants_of
from raftlog_chaos.compare.loads import file_system_of
from raftlog_chaos.compare.parts import latency, produce
from raftlog_chaos.compare.run import Run
from raftlog_chaos.compare.systems.raftlog import Alone
from tests.kit.waits import ended


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has raftlog's nodes forked: a comparison starts them as others' start, which no figure here is about."""
    monkeypatch.setattr(Alone, "forked", True)


@pytest.mark.parametrize(("option", "told"), [("only", "produce"), ("systems", "kafka-flush")])
def test_an_unknown_name_is_an_error_that_lists_all_names(option, told):
    """Before anything is started."""
    with pytest.raises(exits.Failure, match=f"no such .*: speed .*{told}") as caught:
        run(CompareOptions(**{option: "speed"}))
    assert caught.value.code == exits.USAGE


def test_a_run_without_a_figure_of_raftlog_has_failed(tmp_path, capsys):
    """And its files say why there is none."""
    options = CompareOptions(systems="machine", only="gaps", rounds=1, minutes=0.0001, out=tmp_path)
    assert run(options) == exits.FAILED
    assert "no time was left" in capsys.readouterr().err
    assert json.loads((tmp_path / "compare.json").read_text())["figures"] == []


def test_a_part_that_is_named_is_in_a_short_run_too(tmp_path, capsys):
    """By default a short run has only the main parts."""
    run(CompareOptions(systems="machine", only="queue", short=True, minutes=0.0001, out=tmp_path))
    assert "not measured: the machine (C), queue: " in capsys.readouterr().err


@pytest.mark.skipif(file_system_of(Path("/dev/shm")) != "tmpfs", reason="no file system in memory here")
def test_data_in_memory_is_reported(capsys):
    """Its syncs are free, which favours the system with the most syncs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run(CompareOptions(systems="machine", only="gaps", minutes=0.0001, out=Path(folder)))
    assert f"the disk: {folder} is on a tmpfs, where a sync is free" in capsys.readouterr().err


def test_data_is_kept_beside_the_figures_and_what_is_there_is_shown_in_any_case(
    tmp_path, capsys, monkeypatch
):
    """Even when the run itself fails, which it must not."""
    folders = []

    def fail(this: Run) -> None:
        folders.append(this.plan.folder)
        raise ZeroDivisionError

    monkeypatch.setattr(Run, "run", fail)
    with pytest.raises(ZeroDivisionError):
        run(CompareOptions(systems="machine", out=tmp_path / "here"))
    assert [each.parent for each in folders] == [tmp_path / "here"]
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == ["compare.html", "compare.json"]
    assert "the page: " in capsys.readouterr().err


@pytest.mark.clients
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
@pytest.mark.usefixtures("forked")
def test_raftlog_and_the_machine_are_measured_by_the_same_loads(tmp_path, capsys, monkeypatch):
    """A short run: the table has ratios, and the files have the same figures."""
    monkeypatch.setattr(compare, "SHORT_SECONDS", 0.5)
    monkeypatch.setattr(produce, "USUAL", (produce.Variant(),))
    options = CompareOptions(systems="raftlog,machine", only="produce,latency", short=True, out=tmp_path)
    assert run(options) == exits.OK
    printed = capsys.readouterr()
    assert "not measured: the machine (C), latency: its client here has no load 'arrival'" in printed.err
    figures = {each["name"]: each for each in json.loads((tmp_path / "compare.json").read_text())["figures"]}
    for name in ("1 KB", "ack at 1,000/s, p50", "at 1,000/s, CPU system"):
        assert set(figures[name]["samples"]) == {"raftlog", "machine"}, name
        assert all(value > 0 for each in figures[name]["samples"].values() for value in each.values()), name
    assert "vs the machine (C)" in printed.out
    assert "svg" in (tmp_path / "compare.html").read_text()


@pytest.mark.clients
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
@pytest.mark.usefixtures("forked")
def test_a_slower_disk_makes_acknowledgements_slower(tmp_path, monkeypatch):
    """A record waits for at least one sync of a follower."""
    monkeypatch.setattr(latency, "WARM_UP_S", 0.5)
    options = CompareOptions(
        systems="raftlog,machine", only="slow-disk", seconds=0.5, rounds=1, minutes=5, out=tmp_path
    )
    assert run(options) == exits.OK
    figures = {each["name"]: each for each in json.loads((tmp_path / "compare.json").read_text())["figures"]}
    for slower_ms in latency.SLOWER_MS:
        samples = figures[f"syncs {slower_ms:g} ms slower, ack at 1,000/s, p50"]["samples"]
        assert set(samples) == {"raftlog", "machine"}
        assert all(value > slower_ms for each in samples.values() for value in each.values()), samples


@pytest.mark.clients
@pytest.mark.nightly
@pytest.mark.usefixtures("forked")
def test_queues_are_measured_in_all_systems_that_are_here(tmp_path, monkeypatch):
    """With one at a time and hundreds, and few and many locks. A busy machine may be too slow for the steady rate."""
    monkeypatch.setattr(compare, "SHORT_SECONDS", 0.5)
    here = [each for each in ("redis-server", "rabbitmq-server") if shutil.which(each)]
    systems = ["raftlog", *(each.partition("-")[0] for each in here)]
    assert run(CompareOptions(systems=",".join(systems), only="queue", short=True, out=tmp_path)) == exits.OK
    figures = {each["name"]: each for each in json.loads((tmp_path / "compare.json").read_text())["figures"]}
    for locks, how in itertools.product(("1,000", "10,000"), ("one at a time", "by hundreds")):
        name = f"{locks} locks, accepted {how}"
        assert set(figures[name]["samples"]) == set(systems), name
        assert {f"{name}, p50", f"{name}, p99", f"{name}, CPU user"} <= set(figures), name


@pytest.mark.clients
@pytest.mark.nightly
def test_sigterm_ends_all_processes_and_keeps_the_files(tmp_path):
    """Nodes and clients end with the run, and the folder says what was measured up to then."""
    command = [sys.executable, "-m", "raftlog", "compare", "--systems", "raftlog", "--only", "ready,produce"]
    process = subprocess.Popen(
        [*command, "--seconds", "600", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if b": produce" in line:
                break
        started = [each.pid for each in descendants_of(process.pid)]
        process.send_signal(signal.SIGTERM)
        assert ended(process) == exits.INTERRUPTED
    finally:
        process.kill()
        process.communicate()
    assert len(started) >= 3
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    figures = json.loads((tmp_path / "compare.json").read_text())["figures"]
    assert "three nodes ready" in [each["name"] for each in figures]
