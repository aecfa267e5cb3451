"""Network namespaces without names: each is an open file, and gone once the last process that is in it or holds it is.

They leave no names on the machine, so a killed run needs no clean-up. A thread is in one namespace at a time; threads
and processes that it starts begin in the same. Linux only, and only with CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from raftlog.testing.progress import patient

T = TypeVar("T")

CLONE_NEWNET: Final = 0x4000_0000
_MINE: Final = "/proc/thread-self/ns/net"
COMMAND_TIMEOUT_S: Final = 60.0


class Namespace:
    """A network of its own, with only a loopback that is down. Raise OSError (EPERM) without the privilege.

    `Namespace(of_this_thread=True)` is the calling thread's namespace.
    """

    def __init__(self, *, of_this_thread: bool = False) -> None:
        self._fd = -1
        if of_this_thread:
            self._open()
        else:
            self._make()

    def _make(self) -> None:
        """Let a thread of its own go into a new namespace, which outlives it by being held open."""

        def go_there() -> None:
            _system_call("unshare", CLONE_NEWNET)
            self._open()

        _in_a_thread(go_there)

    def _open(self) -> None:
        self._fd = os.open(_MINE, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        """The name by which other processes of this user can reach it, while this one holds it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def enter(self) -> None:
        """Let the calling thread go there."""
        _system_call("setns", self._fd, CLONE_NEWNET)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let the calling thread be there for a while."""
        before = Namespace(of_this_thread=True)
        self.enter()
        try:
            yield
        finally:
            before.enter()
            before.close()

    def run(self, command: Sequence[str], script: str = "") -> None:
        """Run a command there, with a script on its standard input. Raises OSError with what it said if it fails."""

        def go_and_run() -> subprocess.CompletedProcess[str]:
            self.enter()
            return subprocess.run(  # noqa: S603 - commands of ours
                command,
                input=script,
                text=True,
                capture_output=True,
                timeout=patient(COMMAND_TIMEOUT_S),
                check=False,
            )

        ended = _in_a_thread(go_and_run)
        if ended.returncode:
            raise OSError(f"{' '.join(command)}: {ended.stderr.strip() or ended.returncode}")

    def close(self) -> None:
        """Let go of it; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _in_a_thread(call: Callable[[], T]) -> T:
    """Return what a call returns on a thread of its own, which may go where it can't come back from."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _system_call(name: str, *arguments: int) -> None:
    """Call libc, for what the os module only has from Python 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
