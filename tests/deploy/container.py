"""A container of a pod without a container runtime: a process with the mounts, the user and the network of its spec.

Its root is this machine's, as an overlay in a mount namespace of its own, and read-only if the spec says so. Volumes
are bind mounts at their paths. The image is this environment: `raftlog` is on the PATH. The namespaces are gone with
the process. There is no limit of memory or CPU, no PID namespace and no seccomp profile.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from raftlog.testing.netns import Namespace

IMAGE: Final = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""The variables of the image, as deploy/Dockerfile sets them."""
ENTRYPOINT: Final = ("raftlog",)
LOG_TAIL: Final = 3000


class Mount(NamedTuple):
    """A file or folder of this machine at a path of the container."""

    source: Path
    target: str
    read_only: bool


class User(NamedTuple):
    """The security context: user and group, and whether the container keeps its capabilities."""

    uid: int
    gid: int
    drops_all: bool

    @classmethod
    def of(cls, pod: Mapping[str, Any], container: Mapping[str, Any]) -> User:
        both = pod.get("securityContext", {}) | container.get("securityContext", {})
        drops_all = both.get("capabilities", {}).get("drop") == ["ALL"]
        return cls(both.get("runAsUser", 0), both.get("runAsGroup", 0), drops_all)

    @property
    def command(self) -> list[str]:
        """The command that another command is run by."""
        command = [
            "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--no-new-privs",
        ]
        return [*command, "--inh-caps=-all", "--bounding-set=-all"] if self.drops_all else command


class Container:
    """One container: `start` runs its command, again after it has ended. Standard output goes to a file."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        mounts: Sequence[Mount],
        user: User,
        read_only: bool,
        network: Namespace,
    ) -> None:
        self._folder, self._command, self._mounts = folder, command, mounts
        self._user, self._read_only, self._network = user, read_only, network
        self._environment = IMAGE | dict(environment)
        self._log_path = folder.parent / f"{folder.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the command. It ends with this process, whose end it notices by its standard input."""
        self._folder.mkdir(exist_ok=True)
        script = (
            f"{self._script()}\nexec chroot {self._root} {shlex.join([*self._user.command, *self._command])}"
        )
        with self._log_path.open("ab") as log, self._network.inside():
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--propagation=private", "sh", "-ec", script],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def _root(self) -> str:
        return shlex.quote(f"{self._folder}/root")

    def _script(self) -> str:
        """Return a shell's script that mounts the container's root, in a mount namespace."""
        base, root = shlex.quote(str(self._folder)), self._root
        lines = [
            f"mount -t tmpfs none {base}",
            f"mkdir {base}/upper {base}/work {root}",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={base}/upper,workdir={base}/work {root}",
            *(f"mount --rbind /{each} {root}/{each}" for each in ("proc", "sys", "dev")),
            f"chmod a+x {root}/root",  # Python may be installed there, and the user is not root
        ]
        for source, target, read_only in self._mounts:
            there = shlex.quote(f"{self._folder}/root{target}")
            if source.is_dir():
                lines.append(f"mkdir -p {there}")
            lines.append(f"mount --bind {shlex.quote(str(source))} {there}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {there}")
        if self._read_only:
            lines.append(f"mount -o remount,bind,ro {root}")
        return "\n".join(lines)

    def execute(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Run another command in the container that runs; its output is a pipe."""
        assert self._process is not None
        there = ["nsenter", f"--target={self._process.pid}", "--mount", "--net", "--root"]
        return subprocess.Popen(
            [*there, *self._user.command, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            text=True,
        )

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        assert self._process is not None, "it has not been started"
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the process to end, at most so long; returns whether it has."""
        return ends_within(self._process, seconds)

    def log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-LOG_TAIL:]

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        if self._process is None:
            return
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def ends_within(process: subprocess.Popen[Any] | None, seconds: float) -> bool:
    """Wait for a process to end, at most so long; returns whether it has."""
    assert process is not None
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
