"""Child processes of a comparison: started, signalled, and surely ended by their ids."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

LAST_BYTES: Final = 4_000


class Child:
    """One process and its log. It is killed when the comparison ends.

    The kernel kills it if the comparison is killed itself, but only where there is `setpriv`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_path = log_path
        self.paused = False
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self._log_starts_at = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - programs that a comparison is about
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def stdout(self) -> IO[Any]:
        """The pipe that it prints to; only of a child that was started with a pipe."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait(self, timeout_s: float) -> int:
        """Return its exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        """Kill -9 it, and wait until it is gone. May be called again."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def last_words(self) -> str:
        """Return the last line of its log that is not empty."""
        with self.log_path.open("rb") as log:
            log.seek(max(self._log_starts_at, self.log_path.stat().st_size - LAST_BYTES))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
