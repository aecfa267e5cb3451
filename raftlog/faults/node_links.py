"""A node's connections with other nodes, which a fault cuts while clients and HTTP are served on.

What this node dials is refused here. What other nodes dial is refused by its listeners, once a node has proved the
cluster secret: until then it could be a client. So a probe of the port gets an answer, and the controller fences the
node when its session ends. HTTP between nodes goes on, and so do questions of other nodes' admin APIs, so that the
console of any node can heal the fault.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any


class NodeLinks:
    """The connections of one node with others. `cut` may be called by any thread, also before `watch`."""

    def __init__(self) -> None:
        self._is_cut = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dial: Callable[..., Awaitable[tuple[Any, Any]]]
        self._dialled: set[asyncio.Transport] = set()

    def watch(
        self,
        loop: asyncio.AbstractEventLoop,
        refuse_nodes: Callable[[bool], None],
        own: Callable[[], list[str]],
    ) -> None:
        """Dial for a node that runs on `loop`.

        `refuse_nodes(True)` closes and refuses what other nodes dial, until `refuse_nodes(False)`. `own` returns the
        node's advertised addresses, which it always reaches.
        """
        self._refuse_nodes, self._own, self._dial = refuse_nodes, own, loop.create_connection
        loop.create_connection = self._dial_unless_cut  # type: ignore[method-assign, assignment]
        self._loop = loop
        self._act()

    def cut(self, is_cut: bool) -> None:
        """Cut the node off, or mend its links."""
        if is_cut != self._is_cut:
            self._is_cut = is_cut
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._act)

    def _act(self) -> None:
        self._refuse_nodes(self._is_cut)
        while self._is_cut and self._dialled:
            self._dialled.pop().abort()

    async def _dial_unless_cut(
        self, protocol: Any, host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """Connect as the loop does. The HTTP client brings connected sockets, without a host."""
        if host is None or any(each.endswith(f"://{host}:{port}") for each in self._own()):
            return await self._dial(protocol, host, port, **options)
        self._check()
        made = await self._dial(protocol, host, port, **options)
        try:
            self._check()
        except OSError:
            made[0].abort()
            raise
        self._dialled = {each for each in self._dialled if not each.is_closing()} | {made[0]}
        return made

    def _check(self) -> None:
        if self._is_cut:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
