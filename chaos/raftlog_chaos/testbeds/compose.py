"""A testbed of the containers in docker-compose.yml, which can be killed, paused, partitioned and restarted.

The cluster is a Compose project of its own. It publishes the ports in docker-compose.yml, so no other cluster of that
file may run at the same time. Links are cut with iptables in the containers' network namespaces. This needs root on
the host; the image stays as it is. Closing the testbed removes the containers, their network and their volumes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from raftlog.base.config import environment_name
from raftlog.base.disk import make_folders, write_file
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.testing.progress import patient, wait_until_async
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.testbeds import processes
from raftlog_chaos.testbeds.testbed import NODE_ID, Ability, ClusterState

ABILITIES: Final = frozenset(
    {Ability.KILL, Ability.TERMINATE, Ability.PAUSE}
    | (
        {Ability.CUT, Ability.CUT_ONE_WAY, Ability.LOSSY_LINK}
        if os.geteuid() == 0 and shutil.which("nsenter") and shutil.which("iptables")
        else set()
    )
)
NODES: Final = 3
HOST_PORT: Final = 19090
"""Node N is published at this port + N."""
COMMAND_S: Final = 600.0
"""Timeout of a docker command; the first run builds the image."""
LOG_LINES: Final = 200_000


class _Container(NamedTuple):
    """The state of one container, from `docker inspect`."""

    state: str
    """"running", "paused", "exited", ..."""
    pid: int
    address: str
    exit_code: int
    health: str
    """"starting", "healthy", "unhealthy"; "" without a check."""


class ComposeTestbed:
    """The three containers of one project."""

    name = "compose"

    def __init__(self, directory: Path, compose: tuple[str, ...]) -> None:
        self.nodes = tuple(range(1, NODES + 1))
        self.abilities = ABILITIES
        self.registries: Mapping[int, str] = {}
        self.admin_urls: Mapping[int, str] = {}
        self.client_settings: Mapping[str, str] = {}
        self.bootstrap = ",".join(f"localhost:{HOST_PORT + node_id}" for node_id in self.nodes)
        self._directory = directory
        self._compose = compose
        self._ids: dict[int, str] = {}
        self._down: set[int] = set()
        self._fallen: dict[int, str] = {}
        self._bad: dict[tuple[int, int], float] = {}
        """The packet loss of each (source, target) link, from 0 to 1.0, which is a cut."""
        self._seen: dict[int, _Container] = {}
        self._logged = 0
        """The size of all logs so far, in bytes."""

    # --- the cluster

    async def open(self) -> None:
        """Start all containers. Raises Unavailable with docker's message, or Stalled."""
        await self._run(*self._compose, "up", "--detach")
        for node_id in self.nodes:
            container = await self._run(*self._compose, "ps", "--all", "--quiet", f"node{node_id}")
            self._ids[node_id] = container.strip()
        await wait_until_async(self._is_healthy, "every container is healthy", seen=self._progress)

    async def _is_healthy(self) -> bool:
        """Return whether all containers are healthy. Raises Unavailable if a container has exited."""
        self._seen = await self._inspect()
        ended = [node_id for node_id, each in self._seen.items() if each.state == "exited"]
        if ended:
            raise Unavailable(f"node {ended[0]} ended while starting")
        self._logged = sum([len(await self._log_of(node_id)) for node_id in self.nodes])
        return all(each.health == "healthy" for each in self._seen.values())

    def _progress(self) -> str:
        health = ", ".join(f"node {node_id} {each.health}" for node_id, each in self._seen.items())
        return f"{health}; {self._logged} bytes logged"

    async def close(self) -> None:
        await self._write_logs()
        await self._run(*self._compose, "down", "--volumes", "--timeout", "1", "--remove-orphans", fails=True)

    def logs(self) -> Mapping[int, Path]:
        return {node_id: self._directory / f"node-{node_id}" / "node.log" for node_id in self.nodes}

    async def _write_logs(self) -> None:
        for node_id, path in self.logs().items():
            if node_id in self._ids:
                await asyncio.to_thread(_write, path, await self._log_of(node_id))

    async def _log_of(self, node_id: int) -> str:
        return await self._run("docker", "logs", "--tail", str(LOG_LINES), self._ids[node_id], fails=True)

    def fallen(self) -> Mapping[int, str]:
        return dict(self._fallen)

    def violations(self) -> Sequence[str]:
        """Return none: this testbed flips no bits, and does not check that a container ends after SIGTERM."""
        return ()

    # --- state

    async def view(self) -> ClusterState:
        containers = await self._inspect()
        running = {each for each, container in containers.items() if container.state in ("running", "paused")}
        for node_id in set(self.nodes) - running - self._down:
            code = containers[node_id].exit_code
            self._fallen.setdefault(node_id, f"ended by itself with exit code {code}")
        paused = frozenset(each for each in running if containers[each].state == "paused")
        view: ClusterState = await processes.look(
            {node_id: ("127.0.0.1", HOST_PORT + node_id) for node_id in running}, paused=paused
        )
        return view

    async def _inspect(self) -> dict[int, _Container]:
        if not self._ids:
            return {}
        found = json.loads(await self._run("docker", "inspect", *self._ids.values()))
        return dict(zip(self._ids, map(_container, found), strict=True))

    # --- processes

    async def start(self, node_id: int) -> None:
        await self._run("docker", "start", self._ids[node_id])
        self._down.discard(node_id)
        await self._shape_links()  # a container that starts has a new network namespace

    async def kill(self, node_id: int) -> None:
        self._down.add(node_id)
        await self._run("docker", "kill", self._ids[node_id], fails=True)  # it may have ended already

    async def terminate(self, node_id: int) -> None:
        self._down.add(node_id)
        await self._run("docker", "kill", "--signal", "TERM", self._ids[node_id], fails=True)

    async def pause(self, node_id: int) -> None:
        await self._run("docker", "pause", self._ids[node_id], fails=True)

    async def resume(self, node_id: int) -> None:
        await self._run("docker", "unpause", self._ids[node_id], fails=True)

    # --- the network

    async def cut(self, source: int, target: int) -> None:
        self._bad[source, target] = 1.0
        await self._shape_links()

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        assert not delay_s, "this place can lose packets, not delay them"
        self._bad[source, target] = loss
        await self._shape_links()

    async def heal_links(self) -> None:
        self._bad.clear()
        await self._shape_links()

    async def _shape_links(self) -> None:
        """Rewrite the iptables rules of every running container."""
        containers = await self._inspect()
        for target, container in containers.items():
            if not container.pid:
                continue
            await self._iptables(container, "-F", "INPUT")
            for (source, bad_target), loss in self._bad.items():
                address = containers[source].address
                if bad_target == target and address:
                    share = (
                        ()
                        if loss >= 1
                        else ("-m", "statistic", "--mode", "random", "--probability", f"{loss:.4f}")
                    )
                    await self._iptables(container, "-A", "INPUT", "-s", address, *share, "-j", "DROP")

    async def _iptables(self, container: _Container, *rule: str) -> None:
        inside = ("nsenter", "--target", str(container.pid), "--net")
        try:
            await self._run(*inside, "iptables", "-w", *rule)
        except Unavailable:
            if _is_alive(container.pid):
                raise  # the link was not cut; if the container has ended, that does not matter

    # --- not available in this testbed

    async def power_cut(self, node_id: int) -> None:
        raise NotImplementedError

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        raise NotImplementedError

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        raise NotImplementedError

    async def wipe(self, node_id: int) -> None:
        raise NotImplementedError

    async def copy_disk(self, node_id: int) -> None:
        raise NotImplementedError

    async def roll_back(self, node_id: int, *, metadata: bool) -> bool:
        raise NotImplementedError

    async def start_without_identity(self, node_id: int, *, foreign: bool) -> None:
        raise NotImplementedError

    async def start_clone(self, node_id: int) -> None:
        raise NotImplementedError

    async def end_clone(self, node_id: int) -> None:
        raise NotImplementedError

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        raise NotImplementedError

    async def trouble_log(self, node_id: int, rate: float) -> None:
        raise NotImplementedError

    async def set_start_clock(self, node_id: int, offset_ms: int) -> None:
        raise NotImplementedError

    # --- docker

    async def _run(self, *command: str, fails: bool = False) -> str:
        """Return the output of a command. Raises Unavailable with its last line if it fails, unless `fails`."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if fails else asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), patient(COMMAND_S))
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        if process.returncode and not fails:
            said = (err or out).decode(errors="replace").strip().splitlines() or [
                f"exit code {process.returncode}"
            ]
            raise Unavailable(f"{' '.join(command[:3])}: {said[-1]}")
        return out.decode(errors="replace")


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").exists()


def _write(path: Path, text: str) -> None:
    make_folders(path.parent)
    write_file(path, text)


def _container(found: Mapping[str, Any]) -> _Container:
    networks = found["NetworkSettings"]["Networks"].values()
    address = next((each["IPAddress"] for each in networks if each["IPAddress"]), "")
    state = found["State"]
    health = state.get("Health", {}).get("Status", "")
    return _Container(state["Status"], state["Pid"], address, state["ExitCode"], health)


def _compose_file() -> Path:
    """Return docker-compose.yml of this checkout, or of the working folder."""
    tried = [Path(__file__).resolve().parents[3] / "docker-compose.yml", Path("docker-compose.yml").resolve()]
    for path in tried:
        if path.is_file():
            return path
    raise Unavailable("there is no docker-compose.yml here")


def _write_overrides(directory: Path, settings: Mapping[str, str]) -> Path:
    """Write a compose file with these settings for every node, and without a restart policy."""
    environment = {environment_name(name): value for name, value in settings.items()}
    own = {"environment": environment, "restart": "no"}
    make_folders(directory)
    path = directory / "compose.override.json"
    write_file(path, json.dumps({"services": {f"node{node_id}": own for node_id in range(1, NODES + 1)}}))
    return path


def why_not_here() -> str:
    """Return the reason why this machine cannot have this testbed, or ""."""
    if shutil.which("docker") is None:
        return "there is no docker client"
    try:
        _compose_file()
    except Unavailable as error:
        return str(error)
    return ""


async def open_testbed(
    directory: Path, *, nodes: int, settings: Mapping[str, str], seed: int
) -> ComposeTestbed:
    """Build the image if needed, start the cluster, and return once every node is healthy. Raises Unavailable."""
    if nodes != NODES:
        raise Unavailable(f"docker-compose.yml has {NODES} nodes, not {nodes}")
    if reason := why_not_here():
        raise Unavailable(reason)
    if any(NODE_ID in each for each in settings.values()):
        raise Unavailable("all nodes have the same settings")
    more = await asyncio.to_thread(_write_overrides, directory, settings)
    project = f"raftlog-chaos-{os.getpid()}"
    compose = (
        "docker",
        "compose",
        "--project-name",
        project,
        "--file",
        str(_compose_file()),
        "--file",
        str(more),
    )
    testbed = ComposeTestbed(directory, compose)
    try:
        await testbed.open()
    except BaseException:
        await testbed.close()
        raise
    return testbed
