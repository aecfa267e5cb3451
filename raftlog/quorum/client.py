"""`ControllerClient`: sends requests to the active controller, wherever it is at the moment.

By call when this node leads, else over an authenticated channel. It follows leader hints and retries, within its
timeout, after NOT_CONTROLLER and after a broken connection. Either may hide that the request was carried out. Requests
to the controller are fenced by epochs or harmless to repeat, and the caller learns that it was repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol

from raftlog.base.env import Env
from raftlog.base.errors import NotController, RequestTimedOut
from raftlog.quorum.channel import HandshakeRefused, Identity, dial
from raftlog.quorum.rpc import ConnectionLost, NotActiveController, OnRequest, RpcClient

RETRY_MIN_SECONDS: Final = 0.01
RETRY_MAX_SECONDS: Final = 0.1


class ControllerNodeProvider(Protocol):
    """A `Quorum` or an `Observer`: this node's identity, and its view of the leader."""

    node_id: int
    identity: Identity

    configured: dict[int, tuple[str, int]]
    """The addresses of the voters by the config."""

    @property
    def voters(self) -> dict[int, tuple[str, int]]: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def leading(self) -> bool: ...


class ControllerClient:
    """One broker's client of the controller. The controller notices the loss of a connection of kind "heartbeat"."""

    def __init__(
        self,
        env: Env,
        follows: ControllerNodeProvider,
        *,
        kind: Literal["rpc", "heartbeat"] = "rpc",
        local: Callable[[], OnRequest | None] = lambda: None,
    ) -> None:
        self._env = env
        self._follows = follows
        self._kind = kind
        self._local = local
        self._callers: dict[int, RpcClient] = {}
        self._dialling: dict[int, asyncio.Task[RpcClient]] = {}
        self._hint: int | None = None

    async def submit(
        self,
        payload: bytes,
        timeout: float,  # noqa: ASYNC109 (a deadline over all tries)
        *,
        on_repeat: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Return the answer. Raise RequestTimedOut after `timeout` seconds, or the KafkaError of the response.

        `on_repeat` is called before a retry of a request that may have been carried out.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._try_until_answered(payload, on_repeat)
        except TimeoutError:
            raise RequestTimedOut("no active controller answered in time") from None

    def leader_changed(self) -> None:
        """Give up what waits for another node than the new leader, to ask that: a leader that hangs answers nothing."""
        leader = self._follows.leader_id
        if leader is None:
            return
        self._close_all_but(leader)
        for target, task in self._dialling.items():
            if target != leader:
                task.cancel()

    def is_connected_to(self, voter: int) -> bool:
        """Return whether there is an open connection to a voter; a dead voter's closes at once."""
        caller = self._callers.get(voter)
        return caller is not None and caller.usable

    def close(self) -> None:
        """Drop all connections; pending requests fail or are retried elsewhere."""
        for task in self._dialling.values():
            task.cancel()
        for caller in self._callers.values():
            caller.close()
        self._callers.clear()

    # -- inside --------------------------------------------------------------------------

    async def _try_until_answered(self, payload: bytes, on_repeat: Callable[[], None]) -> bytes:
        wait = RETRY_MIN_SECONDS
        while True:
            try:
                return await self._try(payload)
            except NotActiveController as error:
                moved = error.leader_id not in (None, self._hint)
                self._hint = error.leader_id
                on_repeat()  # it may have been appended before that node stood down
            except (NotController, ConnectionLost):
                moved, self._hint = False, None
                on_repeat()
            except (HandshakeRefused, OSError):
                moved, self._hint = False, None
            if not moved:
                await asyncio.sleep(self._env.random.uniform(wait / 2, wait))
                wait = min(RETRY_MAX_SECONDS, 2 * wait)

    async def _try(self, payload: bytes) -> bytes:
        if self._follows.leading:
            local = self._local()
            if local is not None:
                return await local(payload, self._follows.node_id)
        target = self._target()
        if target is None or target == self._follows.node_id:
            raise NotController()
        caller = await self._caller(target)
        return await caller.call(payload)

    def _target(self) -> int | None:
        """Return the node to ask: the leader that this node knows, a hinted leader, or any voter."""
        follows = self._follows
        known = follows.leader_id if follows.leader_id is not None else self._hint
        if known in follows.voters or (known is None and follows.node_id in follows.voters):
            return known
        return self._env.random.choice(sorted(follows.voters))

    async def _caller(self, target: int) -> RpcClient:
        """Return the connection to a voter, made now if needed, and shared by all waiting callers."""
        caller = self._callers.get(target)
        if caller is not None and caller.usable:
            return caller
        task = self._dialling.get(target)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._dial(target))
            self._dialling[target] = task
            task.add_done_callback(partial(self._dialled, target))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not task.cancelled() or (waiting is not None and waiting.cancelling()):
                raise  # the caller is cancelled
            raise ConnectionLost("there is another leader") from None

    def _dialled(self, target: int, task: asyncio.Task[RpcClient]) -> None:
        self._dialling.pop(target, None)
        if not task.cancelled():
            task.exception()  # the waiting caller may have timed out: then no other caller retrieves it

    async def _dial(self, target: int) -> RpcClient:
        follows = self._follows
        failure: Exception = NotController()
        # The config's address comes second: a leader that has moved may not be in the set with its new address yet.
        for address in dict.fromkeys((follows.voters.get(target), follows.configured.get(target))):
            try:
                if address is not None:
                    channel = await dial(follows.identity, self._kind, address, expect=target)
                    break
            except (HandshakeRefused, OSError) as error:
                failure = error
        else:
            raise failure
        self._close_all_but(target)
        caller = self._callers[target] = RpcClient(channel)
        return caller

    def _close_all_but(self, target: int) -> None:
        """Close the other connections: a former leader need not consider us alive."""
        for other in [each for each in self._callers if each != target]:
            self._callers.pop(other).close()
