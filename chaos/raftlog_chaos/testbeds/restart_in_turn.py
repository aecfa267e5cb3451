"""Has `raftlog cluster restart` restart the nodes of a testbed: the command decides the order and the moments.

The command of an operator would reach a node by ssh. This one asks the testbed for each restart, on a local port.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Final

WAIT_S: Final = 60
"""How long the command waits for a restart to be safe, and for a node to catch up."""
SHOWN: Final = 500
"""Characters of the command's last lines."""
_ASK: Final = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as asked:
    asked.sendall(sys.argv[2].encode() + b"\\n")
    sys.exit(asked.recv(1) != b"0")
"""


async def restart_in_turn(http_url: str, restart: Callable[[int], Awaitable[None]]) -> None:
    """Run the command at a node's HTTP API to its end; `restart` restarts a node. Raise RuntimeError if it fails."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await restart(int(await reader.readline()))
            writer.write(b"0")
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        each = f"{shlex.join([sys.executable, '-c', _ASK, str(port)])} {{id}}"
        words = ["cluster", "restart", "--http", http_url, "--each", each, "--wait", str(WAIT_S)]
        command = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "raftlog",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, printed = await command.communicate()
        except BaseException:
            if command.returncode is None:
                command.terminate()
                await command.wait()
            raise
    if command.returncode:
        raise RuntimeError(f"raftlog cluster restart: {printed.decode(errors='replace')[-SHOWN:].strip()}")
