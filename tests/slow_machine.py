"""Runs commands as a slow machine would: `python -m tests.slow_machine [--how NAME] [-- COMMAND ...]`, or `make slow`.

Without a COMMAND the demo and a sample of the tests run, in both of these ways:

- loops: on one core, with the lowest priority, beside two loops that never pause. A process gets less than a hundredth
  of the core, so the sample is small.
- share: with a tenth of a core in all, by a cgroup (v2 or v1); without the right to make a cgroup, all processes stand
  still nine tenths of the time (SIGSTOP and SIGCONT).

All must pass, since waits end by lack of progress. Fixed limits of client libraries remain: RAFTLOG_PATIENCE is 4 here.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from raftlog.testing.progress import VARIABLE, descendants_of, wait_until

BIN = Path(sys.executable).parent
SHARE = 0.1
PERIOD_S = 0.1
"""Of a cgroup's quota."""
RHYTHM_S = 1.0
"""Of standing still and going on; each round looks for new processes, which takes time, too."""
PATIENCE = "4"
CGROUPS = Path("/sys/fs/cgroup")
LOOP = "while True: pass"
DEMO = (str(BIN / "raftlog"), "demo", "--records", "20000")
SMALL_SAMPLE = (
    *(sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--timeout", "3600"),
    *("tests/testing/test_cluster.py", "tests/clients/test_introduction.py"),
)
COMMANDS = {"loops": (DEMO, SMALL_SAMPLE), "share": (DEMO, (*SMALL_SAMPLE, "tests/node"))}

Run = Callable[[Sequence[str]], int]


@contextmanager
def beside_loops() -> Iterator[Run]:
    """Run commands on one core and nicely, beside two loops."""
    core = str(min(os.sched_getaffinity(0)))
    on_it = ["taskset", "-c", core]
    loops = [subprocess.Popen([*on_it, sys.executable, "-c", LOOP]) for _ in range(2)]
    try:
        yield lambda command: _run([*on_it, "nice", "-n", "19", *command])
    finally:
        for each in loops:
            each.kill()
            each.wait()


@contextmanager
def on_a_share() -> Iterator[Run]:
    """Run commands on a tenth of a core."""
    group = _make_cgroup()
    if group is None:
        print("no cgroup can be made here: processes stand still instead", flush=True)
        yield _run_in_rhythm
        return
    try:
        yield lambda command: _run(command, lambda: _enter(group))
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "all processes of the share end")
        group.rmdir()


WAYS: dict[str, Callable[[], AbstractContextManager[Run]]] = {"loops": beside_loops, "share": on_a_share}


def _run(command: Sequence[str], first: Callable[[], object] | None = None) -> int:
    environment = {VARIABLE: PATIENCE, **os.environ}
    return subprocess.run(command, env=environment, preexec_fn=first, check=False).returncode


def _make_cgroup() -> Path | None:
    """Make a cgroup of that share; returns its folder, or None if that can't be done here."""
    name, quota_us, period_us = (
        f"raftlog-slow-{os.getpid()}",
        round(PERIOD_S * SHARE * 1e6),
        round(PERIOD_S * 1e6),
    )
    limits = (
        (CGROUPS, {"cpu.max": f"{quota_us} {period_us}"}),
        (CGROUPS / "cpu", {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(quota_us)}),
    )
    for parent, files in limits:
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for file, text in files.items():
                if not (group / file).exists():
                    raise FileNotFoundError(file)
                (group / file).write_text(text)
            return group
        except OSError:
            group.rmdir()
    return None


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _run_in_rhythm(command: Sequence[str]) -> int:
    """Run a command, and stop its processes most of the time."""
    ended = threading.Event()
    rhythm = threading.Thread(target=_beat, args=(ended,))
    rhythm.start()
    try:
        return _run(command, os.setsid)  # every process of our own group runs
    finally:
        ended.set()
        rhythm.join()


def _beat(ended: threading.Event) -> None:
    while not ended.is_set():
        ours = [each.pid for each in descendants_of(os.getpid()) if not each.stands_still]
        _signal(ours, signal.SIGSTOP)
        ended.wait(RHYTHM_S * (1 - SHARE))
        _signal(reversed(ours), signal.SIGCONT)
        ended.wait(RHYTHM_S * SHARE)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--how", choices=WAYS, help="only in this way")
    parser.add_argument("command", nargs="*", help="only this command")
    given = parser.parse_args()
    rows = []
    for name, way in WAYS.items():
        if given.how not in (None, name):
            continue
        with way() as run:
            for command in [given.command] if given.command else COMMANDS[name]:
                began = time.monotonic()
                code = run(command)
                rows.append((name, code, time.monotonic() - began, " ".join(map(str, command))))
    for name, code, took_s, command in rows:
        print(f"{name:6} {'passed' if code == 0 else f'exit {code}':8} {took_s:6.0f} s  {command}")
    return int(any(code for _, code, _, _ in rows))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the loops end with it
    sys.exit(main())
