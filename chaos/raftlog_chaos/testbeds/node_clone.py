"""A clone: a second process of a running node's number, with a copy of its folders, as of a machine that was copied.

It listens at an address of its own on loopback, and advertises the node's.
"""

from __future__ import annotations

import asyncio
import http.client
import shutil
from pathlib import Path
from typing import Final

from raftlog.base.config.files import parse_properties
from raftlog.testing.node_process import NodeProcess
from raftlog.testing.ports import LOOPBACK
from raftlog.testing.progress import Stalled, wait_until
from raftlog.testing.snapshots import copy_data

COMPLAINT: Final = "one of the two is a copy"
"""What the log of a refused clone says."""
LISTENERS: Final = ("listeners", "raftlog.admin.listener", "raftlog.schema.registry.listener")
FOLDERS: Final = ("log.dirs", "metadata.log.dir")
LOOK_S: Final = 0.2
ASK_TIMEOUT_S: Final = 2.0


class NodeClone:
    """A clone of a node, and what is found out about it."""

    def __init__(self, node: NodeProcess, folder: Path) -> None:
        self._node_id = node.node_id
        self._folder = folder
        self._host = f"127.0.0.{100 + node.node_id}"
        self._process = self._prepared(node)
        self._watch: asyncio.Task[None] | None = None
        self._has_served = False

    def _prepared(self, node: NodeProcess) -> NodeProcess:
        """Copy the folders of a node that stands still, and return a process that does not run yet."""
        settings = parse_properties(node.config_path.read_text())
        for source, copy in copy_data(node, self._folder).items():
            for name in FOLDERS:
                settings[name] = settings.get(name, "").replace(str(source), str(copy))
        for name in LISTENERS:
            settings[name] = settings.get(name, "").replace(LOOPBACK, self._host)
        return NodeProcess(self._node_id, self._folder / "home", settings=settings, port=node.port)

    def start(self) -> None:
        """Start the clone; from now on it is watched."""
        self._process.start()
        self._watch = asyncio.create_task(self._watch_it())

    async def _watch_it(self) -> None:
        _, _, port = self._process.setting("raftlog.admin.listener").rpartition(":")
        while not self._has_served:
            await asyncio.sleep(LOOK_S)
            self._has_served = await asyncio.to_thread(_is_ready, self._host, int(port))

    async def end(self) -> str:
        """Wait for its complaint, kill it, and remove its folders; return what it did wrong, if anything."""
        try:
            what = f"a clone of node {self._node_id} says that it is one"
            await asyncio.to_thread(wait_until, lambda: self._has_served or COMPLAINT in self._said(), what)
        except Stalled:
            pass  # judged below
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.to_thread(self._process.kill)
        said = self._said()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        if self._has_served:
            return f"a clone of node {self._node_id} became ready"
        if COMPLAINT not in said:
            return f"a clone of node {self._node_id} does not say that it is one: {said[-300:]}"
        return ""

    def _said(self) -> str:
        return self._process.log_path.read_text(errors="replace")


def _is_ready(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
