"""The machine itself: a program in C that handles the same bytes and nothing else. It is compiled on demand."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raftlog.base.disk import make_folders
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog_chaos.compare.loads import Load, Measured
from raftlog_chaos.compare.processes import Child
from raftlog_chaos.compare.systems.system import Failed, Missing, Refused, System, wait_for

SOURCE: Final = Path(__file__).parents[1] / "reference.c"
COMPILE_S: Final = 60.0
BATCH_BYTES: Final = 256 << 10
"""The bytes of a frame where only throughput counts."""


class Machine(System):
    """A leader and two followers."""

    key = "machine"
    title = "the machine (C)"
    kinds = frozenset({"produce", "consume", "ack"})
    warm_up_s = 0.0
    restarts = False

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        super().__init__(folder, nodes)
        self._children: list[Child] = []
        self._held: HeldPorts | None = None
        self._slower_us = 0

    @classmethod
    def version(cls) -> str:
        compiler = shutil.which("cc")
        if compiler is None:
            raise Missing("there is no C compiler (cc) here")
        found = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=False)  # noqa: S603
        return f"cc {found.stdout.strip()}"

    def start(self) -> float:
        if self.nodes != 3:
            raise Refused("it has three nodes")
        make_folders(self.folder)
        program = self._compile()
        self._held, slower = HeldPorts(self.nodes), str(self._slower_us)
        leader, *followers = self._held.ports
        for port in (*followers, leader):
            others = [str(each) for each in followers] if port == leader else []
            command = [program, "serve", str(port), str(self.folder / f"log-{port}"), slower, *others]
            self._children.append(Child(command, log_path=self.folder / f"node-{port}.log"))
        return wait_for(lambda: _listens(leader), "the leader listens")

    def _compile(self) -> str:
        program = str(self.folder / "reference")
        for machine in (["-march=native"], []):
            command = ["cc", "-O2", *machine, "-o", program, str(SOURCE)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_S)  # noqa: S603
            except subprocess.TimeoutExpired:
                raise Failed(f"cc does not compile {SOURCE.name} in {COMPILE_S:.0f} s") from None
            if done.returncode == 0:
                return program
        raise Missing(f"cc does not compile {SOURCE.name}: {done.stderr.strip().splitlines()[-1:]}")

    def close(self) -> None:
        for child in self._children:
            child.kill()
        self._children.clear()
        if self._held is not None:
            self._held.release()

    def slow_syncs(self, slower_s: float) -> None:
        """Have each node rest after each fdatasync."""
        self._slower_us = round(slower_s * 1e6)

    def pids(self) -> Sequence[int]:
        return [child.pid for child in self._children if child.running]

    def create_topic(self, name: str, partitions: int) -> None:
        if partitions != 6:
            raise Refused("it has one log")

    def client(self, load: Load) -> Sequence[str]:
        assert self._held is not None
        program, port = str(self.folder / "reference"), str(self._held.ports[0])
        if load.kind == "consume":
            return [program, "read", port, str(load.seconds)]
        frame_bytes = load.record_bytes if load.rate else BATCH_BYTES
        acks = "a" if load.acks == "all" else load.acks
        return [program, "load", port, acks, *map(str, (frame_bytes, load.seconds, load.warmup_s, load.rate))]

    def run(self, load: Load) -> Measured:
        """Run a load; its frames or bytes are reported as the records that they stand for."""
        measured = super().run(load)
        if not load.rate:
            unit = 1 if load.kind == "consume" else BATCH_BYTES
            measured.answer.records = measured.answer.records * unit // load.record_bytes
        return measured


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
