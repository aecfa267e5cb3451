"""A guest kernel as a process: booted on a disk image, heard over a serial line, killed with all that runs in it.

The image is a file of the host, so only the guest kernel's writes to its disk survive.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from raftlog.base.disk import write_file
from raftlog_chaos.power_cut.words import Listener, Word
from raftlog_chaos.runs.rig import Unavailable

PROGRAM: Final = "linux.uml"
PACKAGE: Final = "user-mode-linux"
MEMORY: Final = "1200M"
PIPE_BYTES: Final = 1 << 20
"""The buffer of the serial line, so that the guest does not wait for a slow host."""
BASES: Final = ("/mnt", "/media", "/srv", "/opt", "/home")
"""Folders that every system has; the guest covers one of them that contains no needed path."""
REGISTERS: Final = Path(__file__).with_name("registers.c")
LARGE_STATE: Final = frozenset({"amx_tile"})
"""Flags of processors with more registers than the guest kernel knows."""
INIT: Final = """#!/bin/sh
{variables}exec {python} -B -m raftlog_chaos.power_cut.inside {plan}
"""
GUARD: Final = 'read _; kill -s KILL -- "-$0"'
"""A shell's script: its standard input ends with the process that holds it."""


def lacks() -> str:
    """Return why this machine can boot no guest; empty if it can."""
    if shutil.which(PROGRAM) is None:
        return f"there is no {PROGRAM} here: apt-get install {PACKAGE}"
    if _needs_registers() and shutil.which("cc") is None:
        return f"this processor has more registers than {PROGRAM} knows, and there is no cc to help it"
    return ""


def free_base(needed: Iterable[str]) -> str:
    """Return a folder that no needed path lies in. Raises Unavailable."""
    paths = [Path(each).resolve() for each in needed]
    for base in map(Path, BASES):
        if base.is_dir() and not any(each.is_relative_to(base) for each in paths):
            return str(base)
    raise Unavailable(f"the guest needs one of {', '.join(BASES)} for itself")


class Guest:
    """One boot. `folder` holds what the host keeps of it; `disk` is the image."""

    def __init__(self, folder: Path, disk: Path, plan: Path, variables: dict[str, str]) -> None:
        script = folder / "init"
        lines = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        write_file(script, INIT.format(variables=lines, python=sys.executable, plan=plan))
        script.chmod(0o755)
        self._line, theirs = os.pipe()
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with (folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(  # noqa: S603 - the guest kernel
                _command(script, disk, theirs),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=[theirs],
                start_new_session=True,
                env=_environment(folder),
            )
        self._guard = subprocess.Popen(  # noqa: S603 - kills the guest when this process is gone, however it ended
            ["/bin/sh", "-c", GUARD, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        os.close(theirs)
        self._listener = Listener()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._line, selectors.EVENT_READ)
        self.over = False
        """No more output will come: the guest is gone."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self, timeout_s: float) -> Sequence[Word]:
        """Return its messages within that time; empty if there are none or it is gone."""
        if self.over or not self._selector.select(timeout_s):
            return ()
        received = os.read(self._line, PIPE_BYTES)
        self.over = not received
        return tuple(self._listener.take(received))

    def cut(self) -> Sequence[Word]:
        """Kill the guest's process group; returns the last words that had left it by then."""
        self._kill()
        words: list[Word] = []
        while not self.over:
            words += self.hear(1.0)
        self.close()
        return words

    def close(self) -> None:
        """Kill what still runs, and let go of the line; may be called again."""
        self._kill()
        if self._selector.get_map():
            self._selector.close()
            os.close(self._line)
        self.over = True

    def _kill(self) -> None:
        if self._process.returncode is None:  # not reaped yet, so the group's number is still its own
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._guard.kill()
            self._guard.communicate()


def _command(script: Path, disk: Path, line: int) -> list[str]:
    return [
        PROGRAM,
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
        f"init={script}",
        f"ubd0={disk}",
        f"mem={MEMORY}",
        *("con=null", "con0=null,fd:1", f"con1=null,fd:{line}"),
    ]


def _environment(folder: Path) -> dict[str, str]:
    environment = dict(os.environ)
    if Path("/dev/shm").is_dir():  # noqa: S108 - where the guest's memory is a file
        environment["TMPDIR"] = "/dev/shm"  # noqa: S108
    if _needs_registers():
        environment["LD_PRELOAD"] = str(_registers(folder))
    return environment


def _needs_registers() -> bool:
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return False
    return not LARGE_STATE.isdisjoint(flags.split())


def _registers(folder: Path) -> Path:
    """Return the library that helps the guest kernel with large registers, compiled once for each run."""
    library = folder / "registers.so"
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(REGISTERS)], check=True)  # noqa: S603, S607
    return library
