"""The first process of the guest: it runs a disk, a cluster and loads, and reports to the host."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import random
import socket
import struct
import sys
import threading
import time
import traceback
import tty
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from raftlog.testing.ports import LOOPBACK
from raftlog.testing.progress import Stalled, Wait, signs_of_descendants
from raftlog_chaos.history import Op, Recorder
from raftlog_chaos.power_cut.loads import (
    LOADS,
    ChangedSetting,
    NotingPorts,
    identities,
    queue_of,
    reader_of,
    resume,
)
from raftlog_chaos.power_cut.watch import Watch
from raftlog_chaos.power_cut.words import (
    GAVE_UP,
    BootPlan,
    Changed,
    Committed,
    Found,
    LoadState,
    Logged,
    Mark,
    Reached,
    Said,
    Word,
    encode,
)
from raftlog_chaos.testbeds.processes import look
from raftlog_chaos.workloads.log_workload import LogWorkload
from raftlog_chaos.workloads.port import REQUEST_TIMEOUT_S, Definite, Indefinite
from raftlog_chaos.workloads.queue_port import stock_queue_ports
from raftlog_chaos.workloads.queue_workload import QueueWorkload
from raftlog_chaos.workloads.stock import COMMON

SERIAL_LINE: Final = "/dev/tty1"
DISK: Final = "/dev/ubda"
NODES: Final = (1, 2, 3)
FIRST_PORT: Final = 9092
MS_NOATIME: Final = 1024
LOOK_S: Final = 0.2
READY: Final = "Ctrl-C ends it."
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LAST_LINES: Final = 12
FEW_UNKNOWN: Final = 1_000
"""More changes than one boot makes: changes without an answer are passed over."""
QUIET: Final = ('"level": "info"', '"level":"info"', '"level": "debug"', '"level":"debug"')


class SerialLine:
    """The line to the host. Threads may share it; each word has left the guest when `send` returns."""

    def __init__(self) -> None:
        self._fd = os.open(SERIAL_LINE, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._fd)
        self._lock = threading.Lock()

    def send(self, word: Word) -> None:
        line = encode(word)
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


def mount(source: str, target: str, kind: str, options: str = "", *, flags: int = 0) -> None:
    """Mount a file system. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{source} on {target}")


def prepare(plan: BootPlan) -> Path:
    """Mount everything, bring loopback up, and return the folder of the cluster, which is on the guest's disk."""
    base = Path(plan.base)
    mount("proc", "/proc", "proc")
    mount("tmpfs", plan.base, "tmpfs")
    if not os.path.ismount("/dev"):
        mount("devtmpfs", "/dev", "devtmpfs")
    for name in ("disk", "host", "tmp"):
        (base / name).mkdir()
    mount("none", str(base / "host"), "hostfs", plan.folder)
    mount(DISK, str(base / "disk"), plan.file_system, plan.options, flags=MS_NOATIME)
    os.environ["TMPDIR"] = str(base / "tmp")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(asking, SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    return base / "disk" / "cluster"


class LogTail:
    """Follows a file that grows line by line, from where it ends now; `report` gets each line."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._position = path.stat().st_size if path.exists() else 0

    def run(self) -> None:
        rest = b""
        while True:
            if self._path.exists():
                with self._path.open("rb") as file:
                    file.seek(self._position)
                    *lines, rest = (rest + file.read()).split(b"\n")
                    self._position = file.tell()
                for line in lines:
                    self._report(line.decode(errors="replace"))
            time.sleep(LOOK_S)


class Boot:
    """One life of the cluster: started, read to its end, and used until the power fails."""

    def __init__(self, plan: BootPlan, line: SerialLine, folder: Path) -> None:
        self.plan = plan
        self.line = line
        self.folder = folder
        self._began_at = time.monotonic()
        self._chance = random.Random(f"{plan.seed}/{plan.boot}")
        self._client_settings = settings = {
            "bootstrap.servers": ",".join(f"{LOOPBACK}:{port}" for port in self._ports.values()),
            **COMMON,
        }
        self._ports_of_clients = NotingPorts(settings, self._note_commit)
        self._queue_ports = stock_queue_ports(str(settings["bootstrap.servers"]), COMMON)
        self._recorders = {name: self._recorder(name, plan.loads.get(name, LoadState())) for name in LOADS}
        self._dev: asyncio.subprocess.Process | None = None
        self._said: list[str] = []

    @property
    def _ports(self) -> dict[int, int]:
        return {node_id: FIRST_PORT + number for number, node_id in enumerate(NODES)}

    def _recorder(self, name: str, state: LoadState) -> Recorder:
        def keep(op: Op) -> None:
            op.process += state.processes
            op.index += state.lines
            self.line.send(Said(name, op))

        return Recorder(lambda: self.plan.first_ns + int(self._now_s() * 1e9), keep)

    def _note_commit(self, group: str, offsets: Mapping[str, int]) -> None:
        self.line.send(Committed(group, dict(offsets)))

    def _now_s(self) -> float:
        return time.monotonic() - self._began_at

    def _reached(self, phase: str) -> None:
        self.line.send(Reached(phase, round(self._now_s(), 3)))

    def _found(self, text: str) -> None:
        self.line.send(Found(text))

    # -- the cluster

    async def run(self) -> None:
        """Go through all phases, and on until the power fails."""
        self._reached("booted")
        self._follow_logs()
        await self._start()
        if self.plan.boot:
            if not await self._is_whole():
                self._reached(GAVE_UP)
                await asyncio.Event().wait()
            await self._read()
        self._reached("loading")
        await self._load()

    def _follow_logs(self) -> None:
        """Pass on new log lines of nodes above info level: the cut may take them."""
        for node_id in NODES:
            path = self.folder / f"node-{node_id}" / "node.log"
            tail = LogTail(path, partial(self._log, node_id))
            threading.Thread(target=tail.run, name=f"log-{node_id}", daemon=True).start()

    def _log(self, node_id: int, line: str) -> None:
        if any(each in line for each in QUIET):
            return
        self.line.send(Logged(node_id, line))

    async def _start(self) -> None:
        arguments = [
            sys.executable,
            "-m",
            "raftlog",
            "dev",
            "--data",
            str(self.folder),
            "--nodes",
            str(len(NODES)),
        ]
        for name, value in self.plan.settings.items():
            arguments += ["--override", f"{name}={value}"]
        self._dev = await asyncio.create_subprocess_exec(
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            stdin=asyncio.subprocess.DEVNULL,
        )
        self._reached("started")
        assert self._dev.stdout is not None
        while READY not in (text := (await self._dev.stdout.readline()).decode()):
            if not text:
                self._found("the cluster does not start again:\n" + "\n".join(self._said))
                self._reached(GAVE_UP)
                await asyncio.Event().wait()
            self._said.append(text.rstrip())
        self._reached("ready")
        data = [self.folder / f"node-{node_id}" / "data" for node_id in NODES]
        Watch(data, lambda mark: self.line.send(Mark(mark)))
        self._listening = asyncio.create_task(self._listen(self._dev.stdout))

    async def _listen(self, said: asyncio.StreamReader) -> None:
        """The starting command reports nodes that end by themselves."""
        while text := (await said.readline()).decode():
            node = text.partition(" ")[2].partition(" ")[0]
            log = self.folder / f"node-{node}" / "node.log"
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
            self._found("\n".join([text.rstrip(), *last]))

    async def _is_whole(self) -> bool:
        """Wait until the cluster is whole by itself; return False if it cannot be any more."""
        addresses = {node_id: (LOOPBACK, port) for node_id, port in self._ports.items()}
        lacks = ["not asked yet"]
        wait = self._wait("the cluster is whole", lambda: "; ".join(lacks))
        while lacks:
            try:
                wait.pause()
            except Stalled as error:
                self._found(str(error))
                return False
            await asyncio.sleep(LOOK_S)
            view = await look(addresses, paused=frozenset())
            lacks = view.lacks(NODES)
            gone = sorted(self._acked_keys() - view.partitions.keys())
            if gone and view.ready == frozenset(NODES):
                self._found(f"{', '.join(gone)}: not in the metadata, but records were acknowledged there")
                return False
        self._reached("whole")
        return True

    def _acked_keys(self) -> frozenset[str]:
        return frozenset(key for state in self.plan.loads.values() for key in state.acked)

    def _wait(self, what: str, seen: Any) -> Wait:
        return Wait(what, seen=seen, signs=signs_of_descendants, stall_s=self.plan.stall_s)

    # -- what was promised

    async def _read(self) -> None:
        """Read everything to its end, and see whether commits hold."""
        names = [name for name, state in self.plan.loads.items() if state.acked]
        checks = (self._check_commits(), self._check_setting())
        await asyncio.gather(*(self._read_load(name) for name in names), *checks)
        self._reached("read")

    async def _read_load(self, name: str) -> None:
        await self._take_ids(name)
        load = reader_of(
            name, self.plan.loads[name], self._recorders[name], self._ports_of_clients, self._chance
        )
        load.start()
        # the nodes' signs of life do not count: a whole cluster either gives what is due or has lost it
        missing = await load.finish(self.plan.stall_s)
        for key, offset in missing.items():
            self._found(f"{key}: not read up to offset {offset}, which was acknowledged")
        self._tell_faults(load)
        await self._empty_queue(name)
        written, acked = load.generator.written, load.generator.acked
        self.plan.loads[name] = LoadState(written=dict(written), acked=dict(acked))  # transformers went on

    async def _take_ids(self, name: str) -> None:
        """Take the transactional ids: transactions that the cut left open end at once, and not by their timeout."""
        for identity in identities(name):
            port = self._ports_of_clients(0, "writer")
            with contextlib.suppress(Exception):
                await port.take_id(identity)
            await port.close()

    async def _empty_queue(self, name: str) -> None:
        """Let workers accept all that is left of a share group's records."""
        queue = queue_of(name, self._recorders[name], self._queue_ports, self._chance)
        if queue is None:
            return
        queue.start()
        left = await queue.finish(self.plan.loads[name].acked, self.plan.stall_s)
        for key, offset in left.items():
            self._found(f"{key}: the share group begins at {queue.starts.get(key)}, before offset {offset}")
        self._tell_faults(queue)

    def _tell_faults(self, load: LogWorkload | QueueWorkload) -> None:
        for each in load.faults:
            self._found(each)
        load.faults.clear()

    async def _check_commits(self) -> None:
        for group, offsets in self.plan.committed.items():
            lost = dict(offsets)
            wait = self._wait(f"the offsets of {group} are there", lambda: dict(lost))  # noqa: B023 - used within the turn
            with contextlib.suppress(Stalled):
                while lost:
                    wait.pause()
                    try:
                        lost = await self._lost_commits(group, offsets)
                        break
                    except Indefinite:
                        await asyncio.sleep(LOOK_S)
            for key, offset in lost.items():
                self._found(f"group {group}: the commit of {key} at {offset} was acknowledged, and is gone")

    async def _lost_commits(self, group: str, offsets: Mapping[str, int]) -> dict[str, int]:
        port = self._ports_of_clients(0, "reader")
        try:
            found = await port.committed(list(offsets), group)
        finally:
            await port.close()
        return {key: offset for key, offset in offsets.items() if found[key] < offset}

    async def _check_setting(self) -> None:
        if not self.plan.changed:
            return
        changed = ChangedSetting(self._client_settings)
        found = reason = None
        wait = self._wait("the topic whose setting was changed can be asked", lambda: reason)
        try:
            while found is None:
                wait.pause()
                found, reason = await asyncio.to_thread(changed.number)
        except Stalled as error:
            self._found(str(error))
            return
        if found < self.plan.changed:
            self._found(f"change {self.plan.changed} of a setting was acknowledged, and {found} is in force")

    # -- the loads

    async def _load(self) -> None:
        loads: list[LogWorkload | QueueWorkload] = []
        for name in LOADS:
            state = self.plan.loads.get(name, LoadState())
            recorder = self._recorders[name]
            loads.append(resume(name, state, recorder, self._ports_of_clients, self._chance))
            queue = queue_of(name, recorder, self._queue_ports, self._chance)
            loads += [queue] if queue is not None else []
        for each in loads:
            each.start()
        changing = asyncio.create_task(asyncio.to_thread(self._change_settings))
        while True:
            for each in loads:
                self._tell_faults(each)
            if changing.done():
                changing.result()
            await asyncio.sleep(LOOK_S)

    def _change_settings(self) -> None:
        changed = ChangedSetting(self._client_settings)
        created = False
        while not created:  # the host watches for progress
            with contextlib.suppress(Definite):
                changed.create()
                created = True
        number = self.plan.changed + FEW_UNKNOWN
        while True:
            number += 1
            if changed.change(number):
                self.line.send(Changed(number))
                time.sleep(LOOK_S)
            else:
                time.sleep(REQUEST_TIMEOUT_S)  # it may still come, and must not come after the next request


async def main(plan: BootPlan) -> None:
    """Carry out a boot."""
    folder = prepare(plan)
    line = SerialLine()
    try:
        await Boot(plan, line, folder).run()
    except BaseException:
        line.send(Found(f"the guest's own program failed:\n{traceback.format_exc()}"))
        line.send(Reached(GAVE_UP, 0.0))
        threading.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=BootPlan)))
