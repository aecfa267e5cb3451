"""`raftlog server --brokers N`: brokers of one machine, a process each, under one supervisor.

A node is one process and uses one core, so a larger machine runs several. The first has the config as it is. The others
are brokers that do not vote, and differ only in `node.id`, ports and folders. All share one `broker.rack`, so that
replicas of a partition are on different machines if there are several. A client needs only the first broker's address.

A broker that ends by itself is restarted after a pause. When the supervisor stops, the first broker ends last, since it
may be the controller that handles the others' shutdown. A supervisor that is killed takes its brokers with it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.config.network import Listener, format_address, format_voters
from raftlog.base.log import configure_log, get_logger
from raftlog.cli import exits

PORT_STEP: Final = 10
"""The distance between the ports of consecutive brokers."""
PAUSE_S: Final = 1.0
"""Before a broker that ended is started again; twice as long each time, up to `LONGEST_PAUSE_S`."""
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A broker that ran so long begins with the short pause again."""

log = get_logger("supervisor")


class CannotShare(ValueError):
    """The config leaves no room for so many brokers on one machine; names the setting."""


def broker_overrides(config: NodeConfig, brokers: int) -> list[dict[str, str]]:
    """Return what each broker's settings differ in from `config`. Raises CannotShare."""
    rack = {"broker.rack": config.broker_rack or socket.gethostname()}
    others = [_overrides_of(config, number) for number in range(1, brokers)]
    taken = [_ports_of(config, 0), *(_ports_of(config, number) for number in range(1, brokers))]
    ports = [port for each in taken for port in each if port]
    if len(set(ports)) != len(ports):
        raise CannotShare(
            f"listeners: each broker's ports are {PORT_STEP} above the previous broker's, and some ports collide"
        )
    if max(ports, default=0) > 65535:
        raise CannotShare(f"listeners: port {max(ports)} of the last broker is beyond 65535")
    voters = sorted(set(range(config.node_id + 1, config.node_id + brokers)) & set(config.voters))
    if voters:
        raise CannotShare(
            f"node.id: this machine's brokers are {config.node_id} to {config.node_id + brokers - 1}, "
            f"but controller.quorum.voters has {voters[0]}"
        )
    return [rack, *({**each, **rack} for each in others)]


def _overrides_of(config: NodeConfig, number: int) -> dict[str, str]:
    node_id = config.node_id + number
    overrides = {
        "node.id": str(node_id),
        "process.roles": "broker",
        "controller.quorum.voters": format_voters(config.voters),
        "listeners": _shifted(_client_listeners(config), number),
        "advertised.listeners": _shifted(config.advertised_listeners, number),
        "log.dirs": ",".join(f"{folder}-{node_id}" for folder in config.log_dirs),
        "metadata.log.dir": f"{config.metadata_log_dir}-{node_id}",
    }
    for name, address in (
        ("raftlog.admin.listener", config.admin_listener),
        ("raftlog.admin.advertised.listener", config.admin_advertised_listener),
        ("raftlog.schema.registry.listener", config.schema_registry_listener),
    ):
        if address is not None:
            overrides[name] = format_address(address[0], _port(address[1], number))
    return overrides


def _client_listeners(config: NodeConfig) -> tuple[Listener, ...]:
    return tuple(each for each in config.listeners if each.name not in config.controller_listener_names)


def _shifted(listeners: Sequence[Listener], number: int) -> str:
    return ",".join(str(each._replace(port=_port(each.port, number))) for each in listeners)


def _port(port: int, number: int) -> int:
    return port + number * PORT_STEP if port else 0


def _ports_of(config: NodeConfig, number: int) -> list[int]:
    listeners = _client_listeners(config) if number else config.listeners
    http = [each[1] for each in (config.admin_listener, config.schema_registry_listener) if each is not None]
    return [_port(port, number) for port in [*(each.port for each in listeners), *http]]


def main(config: NodeConfig, path: Path | None, overrides: Sequence[str], brokers: int) -> None:
    """Run the brokers until stopped; exit with 2 if the machine can't hold so many of this config."""
    try:
        each_broker = broker_overrides(config, brokers)
    except CannotShare as error:
        print(f"raftlog: --brokers {brokers}: {error}", file=sys.stderr)
        sys.exit(exits.USAGE)
    configure_log(level=config.log_level, format=config.log_format, node_id=config.node_id)
    commands = [_command(path, [*overrides, *_as_flags(own)]) for own in each_broker]
    nodes = {config.node_id + number: command for number, command in enumerate(commands)}
    sys.exit(asyncio.run(Supervisor(nodes).run()))


def _as_flags(overrides: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in overrides.items()]


def _command(path: Path | None, overrides: Sequence[str]) -> list[str]:
    flags = [word for each in overrides for word in ("--override", each)]
    file = ["--config", str(path)] if path else []
    return [sys.executable, "-m", "raftlog", "server", "--exit-with-stdin", *file, *flags]


class Supervisor:
    """Keeps a process running for each command, by node id; the first ends last."""

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: dict[int, asyncio.Task[int]] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Return the exit code: 0 after SIGTERM or SIGINT, a broker's own if its config can't be used."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_or_hasten)
        self._keepers = {
            node_id: asyncio.create_task(self._keep_running(node_id, command))
            for node_id, command in self._commands.items()
        }
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({stopping, *self._keepers.values()}, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        for node_id in reversed(list(self._commands)):
            self._signal(node_id)
            await self._keepers[node_id]
        return max(keeper.result() for keeper in self._keepers.values())

    def _stop_or_hasten(self) -> None:
        """Stop at the first signal; at another, have all brokers end at once, and skip what takes long."""
        if self._stopping.is_set():
            for node_id in self._running:
                self._signal(node_id)
        self._stopping.set()

    def _signal(self, node_id: int) -> None:
        if node_id in self._running:
            with suppress(ProcessLookupError):  # it has just ended
                self._running[node_id].send_signal(signal.SIGTERM)

    async def _keep_running(self, node_id: int, command: Sequence[str]) -> int:
        """Run a broker again and again. Return its exit code if it was to stop, or if its config can't be used."""
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        while True:
            began_at = loop.time()
            try:
                code = await self._run(node_id, command)
            except OSError as error:  # no process or no memory is left for it
                code = exits.FAILED
                log.error("broker_process_not_started", broker_id=node_id, reason=str(error))
            if self._stopping.is_set() or code == exits.USAGE:
                return max(code, 0)
            if loop.time() - began_at >= STEADY_S:
                pause_s = PAUSE_S
            log.error("broker_process_exited", broker_id=node_id, exit_code=code, retry_after_s=pause_s)
            if await self._stopped_within(pause_s):
                return exits.OK
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _run(self, node_id: int, command: Sequence[str]) -> int:
        # A session of its own: Ctrl-C in a terminal reaches the supervisor alone, which stops them in order. The pipe
        # is never written to: a broker ends when it closes, because its supervisor is gone.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self._running[node_id] = process
        if self._stopping.is_set():  # while it was started
            self._signal(node_id)
        try:
            return await process.wait()
        finally:
            del self._running[node_id]

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
