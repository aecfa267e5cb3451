"""A member of a share group as a child process that runs `share_client`: it can be paused and killed like a machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from raftlog.base.errors import InvalidRecordState, InvalidRequest
from raftlog.testing.progress import patient
from raftlog_chaos.history import Outcome
from raftlog_chaos.workloads.port import Indefinite, decode_value
from raftlog_chaos.workloads.queue_admin import QueueAdmin
from raftlog_chaos.workloads.queue_workload import Acquired, QueuePorts, Said
from raftlog_chaos.workloads.stock import COMMON

POLL_S: Final = 0.5
COMMIT_S: Final = 10.0
CALL_S: Final = 40.0
"""A client that does not answer for longer is killed: see `stock`."""
REFUSALS: Final = frozenset({InvalidRecordState.code, InvalidRequest.code})
"""The errors that say for certain that an acknowledgement had no effect; librdkafka sends each only once."""
LINE_BYTES: Final = 64 << 20
SETTINGS: Final[Mapping[str, Any]] = {**COMMON, "fetch.wait.max.ms": 200, "max.poll.records": 50}


class StockQueuePort:
    """See QueuePort. The process starts with the first call."""

    def __init__(self, settings: Mapping[str, Any], process: int, group: str, topics: Sequence[str]) -> None:
        own = {"group.id": group, "client.id": f"worker-{process}"}
        self._first = [{**SETTINGS, **settings, **own}, list(topics), COMMIT_S]
        self._process = process
        self._child: asyncio.subprocess.Process | None = None

    async def acquire(self) -> list[Acquired]:
        found = []
        for topic, partition, offset, value, count in await self._call("acquire", POLL_S):
            key = f"{topic}-{partition}"
            found.append(Acquired(key, offset, decode_value(key, value.encode()), count))
        return found

    async def acknowledge(self, said: Sequence[Said]) -> dict[str, Outcome]:
        rows = [(each.kind, *_split(each.key), each.offset) for each in said]
        outcomes: dict[str, Outcome] = {each.key: "info" for each in said}
        for topic, partition, code in await self._call("acknowledge", rows):
            outcomes[f"{topic}-{partition}"] = "ok" if code == 0 else ("fail" if code in REFUSALS else "info")
        return outcomes

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._child is not None:
            await self._child.wait()

    async def close(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(Indefinite):
                await self._call("close")
        await self.kill()

    def _signal(self, number: int) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def _call(self, *command: Any) -> list[Any]:
        """Return the answer of the process. Raises Indefinite, and kills a process that does not answer."""
        try:
            async with asyncio.timeout(patient(CALL_S)):
                child = await self._started()
                _write(child, command)
                answer = await _line(child)
        except TimeoutError:
            await self.kill()
            raise Indefinite(f"worker {self._process} did not return from {command[0]}") from None
        except (ConnectionError, EOFError) as error:
            raise Indefinite(f"worker {self._process} ended: {error}") from None
        if isinstance(answer, str):
            raise Indefinite(answer)
        return list(answer)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "raftlog_chaos.workloads.share_client",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_BYTES,
                env=_environment(),
            )
            _write(self._child, self._first)
        return self._child


def stock_queue_ports(bootstrap: str, settings: Mapping[str, Any]) -> QueuePorts:
    """Return what opens members and an administrator of a share group. `settings` are librdkafka's."""
    hosts = [each.rpartition(":") for each in bootstrap.split(",")]
    addresses = [(host, int(port)) for host, _, port in hosts]
    own = {"bootstrap.servers": bootstrap, **settings}

    def open_member(process: int, group: str, topics: Sequence[str]) -> StockQueuePort:
        return StockQueuePort(own, process, group, topics)

    return QueuePorts(open_member, partial(QueueAdmin, addresses))


def _write(child: asyncio.subprocess.Process, line: Any) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(line).encode() + b"\n")


async def _line(child: asyncio.subprocess.Process) -> Any:
    """Return the next answer. Raises EOFError where the process has ended."""
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError("its output ends")
    return json.loads(line)


def _split(key: str) -> tuple[str, int]:
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)


def _environment() -> dict[str, str]:
    """Return this process's environment, in which the child finds raftlog_chaos wherever it was found here."""
    source = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source}
