"""Guests as processes: watched, killed as a group, and gone with their parent. The kernel is a program of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.progress import wait_until
from raftlog_chaos.power_cut.kernel import PROGRAM, Guest
from raftlog_chaos.power_cut.words import Found, Reached, Word

KERNEL = """\
#!{python}
import os, subprocess, sys, time
line = int(sys.argv[-1].rpartition(":")[2])
child = subprocess.Popen(["sleep", "1000"])
os.write(line, b'{{"type":"Reached","phase":"booted","seconds":1.0}}\\n')
os.write(line, b'{{"type":"Found","text":"%d"}}\\n{{"type":"Fou' % child.pid)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that says two words and a half, and has a child."""
    path = tmp_path / "bin" / PROGRAM
    path.parent.mkdir()
    path.write_text(KERNEL.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    booted = Guest(tmp_path, tmp_path / "disk.img", tmp_path / "boot.json", {"PLANT": "x"})
    yield booted
    booted.close()


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def words_of(guest: Guest) -> list[Word]:
    words: list[Word] = []
    wait_until(lambda: words.extend(guest.hear(0.1)) or len(words) >= 2, "two words", seen=lambda: len(words))
    return words


def test_a_guest_is_heard_and_a_cut_takes_all_its_processes(guest: Guest, tmp_path: Path) -> None:
    """The word that was being said when the power failed was never said."""
    booted, child = words_of(guest)
    assert booted == Reached("booted", 1.0) and isinstance(child, Found)
    assert is_alive(guest.pid) and is_alive(int(child.text))
    assert guest.cut() == []
    assert guest.over and not is_alive(guest.pid)
    wait_until(lambda: not is_alive(int(child.text)), "its child is gone")
    script = (tmp_path / "init").read_text()
    assert "export PLANT='x'" in script and str(tmp_path / "boot.json") in script
    assert (tmp_path / "init").stat().st_mode & 0o111


def test_a_guest_that_ends_by_itself_is_over(guest: Guest) -> None:
    """A kernel that panics, say."""
    _, child = words_of(guest)
    assert isinstance(child, Found)
    os.kill(int(child.text), signal.SIGKILL)
    os.kill(guest.pid, signal.SIGKILL)
    wait_until(lambda: guest.hear(0.1) or guest.over, "it is over")
    assert guest.hear(0.1) == ()


def test_a_guest_is_gone_when_its_host_is_killed(tmp_path: Path) -> None:
    """kill -9 of the one process leaves no other behind."""
    program = f"""
        import sys, time
        from pathlib import Path
        from raftlog_chaos.power_cut.kernel import Guest
        folder = Path({str(tmp_path)!r})
        print(Guest(folder, folder / "disk.img", folder / "boot.json", {{}}).pid, flush=True)
        time.sleep(1000)
    """
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    host.kill()
    host.communicate()
    wait_until(lambda: not is_alive(pid), "the guest is gone")
