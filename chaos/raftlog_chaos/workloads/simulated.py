"""The port to a simulated cluster: each client process on a host of its own, so that a crash is a real crash.

Its parts run on that host, in `sim_producer`, `sim_consumer` and `sim_group`; the workload stays outside and awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from raftlog.base.errors import TopicAlreadyExists
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.port import (
    DELIVERY_TIMEOUT_S,
    POLL_S,
    Definite,
    Fate,
    Kind,
    encode_value,
    fate_of,
    split_key,
)
from raftlog_chaos.workloads.raw_client import AWAY, CREATE_TOPICS, Client, create_topic_request
from raftlog_chaos.workloads.sim_consumer import SimConsumer
from raftlog_chaos.workloads.sim_group import GroupMember
from raftlog_chaos.workloads.sim_producer import SimProducer

T = TypeVar("T")

TIMEOUT_S: Final = 1.5
"""After this a simulated client closes a connection without an answer."""
RETRY_S: Final = 0.1
TOPIC_ALREADY_EXISTS: Final = TopicAlreadyExists.code


class SimPorts:
    """Opens ports to a cluster, as `LogWorkload.open_port`. Hosts of ended processes are reused."""

    def __init__(self, loop: SimLoop, bootstrap: Sequence[tuple[str, int]]) -> None:
        self.loop = loop
        self.bootstrap = tuple(bootstrap)
        self._chance = loop.stream("ports")
        self._free: list[Host] = []
        self._made = 0

    def __call__(self, process: int, kind: Kind) -> SimPort:
        if self._free:
            host = self._free.pop(0)
        else:
            self._made += 1
            host = self.loop.host(f"client{self._made}")
        return SimPort(self, host, process, kind)

    def end(self, host: Host, *, silent: bool = False) -> None:
        """Kill what runs on a client's host; peers get a FIN or RST unless it goes silently."""
        host.crash(power_loss=False, silent=silent)
        self._free.append(host)

    def goes_silently(self) -> bool:
        """Return whether a crash takes the machine along, so that no reset is sent."""
        return self._chance.random() < 0.25


class SimPort:
    """See ClientPort."""

    transactional = False
    spent = False

    def __init__(self, ports: SimPorts, host: Host, process: int, kind: Kind) -> None:
        self._ports = ports
        self._host = host
        self._client = Client(f"client-{process}", ports.bootstrap, timeout_s=TIMEOUT_S)
        self._producer = SimProducer(self._client, acks=1 if kind == "careless" else -1)
        self._consumer = SimConsumer(self._client, ports.loop.stream(f"consumer/{process}"))
        self._member: GroupMember | None = None
        self._uncommitted: dict[str, int] = {}
        self._rebalanced: list[str] = []
        self._open = True
        host.start(asyncio.sleep(0))  # the machine is up: another process may follow

    async def _on_host(self, program: Coroutine[Any, Any, T]) -> T:
        return await self._host.start(program)

    # -- writing ------------------------------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, *, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        request = create_topic_request(topic, partitions=partitions, replicas=replicas, configs=configs)
        await self._on_host(self._create_topic(request))

    async def _create_topic(self, request: Any) -> None:
        loop = asyncio.get_running_loop()
        end_at = loop.time() + DELIVERY_TIMEOUT_S
        while True:
            try:
                response = await self._client.ask_any(CREATE_TOPICS, request)
                code = int(response.topics[0].error_code)
                if code in (0, TOPIC_ALREADY_EXISTS):
                    return
                reason = f"error {code}"
                if fate_of(code) is Fate.NEVER:
                    raise Definite(f"CreateTopics: {reason}")
            except AWAY as error:
                reason = repr(error)
            if loop.time() >= end_at:
                # it may be created yet; for the caller it does not exist
                raise Definite(f"CreateTopics: {reason}")
            await asyncio.sleep(RETRY_S)

    def send(self, key: str, value: int) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._host.call(self._producer.enqueue, split_key(key), encode_value(key, value), done)
        return done

    # -- reading ------------------------------------------------------------------------------------------------

    async def assign(self, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        known: dict[str, int | None] = {} if seek_to_beginning else self._consumer.positions
        self._consumer.positions = {key: known.get(key) for key in keys}

    async def subscribe(self, topics: Sequence[str], group: str) -> None:
        if self._member is None:
            self._member = GroupMember(self._client, group, topics)
        self._member.topics = tuple(topics)
        self._member.generation = -1
        self._lose_all()

    def _lose_all(self) -> None:
        """An assignment ends with the generation."""
        self._rebalanced += self._consumer.positions
        self._consumer.positions = {}
        self._uncommitted = {}

    async def poll(self) -> dict[str, list[tuple[int, int]]]:
        return await self._on_host(self._poll())

    async def _poll(self) -> dict[str, list[tuple[int, int]]]:
        member = self._member
        if member is not None and member.generation < 0 and not await self._join(member):
            await asyncio.sleep(POLL_S)
            return {}
        reads = await self._consumer.poll()
        if member is not None:
            self._uncommitted = {key: records[-1][0] + 1 for key, records in reads.items()}
        return reads

    async def _join(self, member: GroupMember) -> bool:
        """Begin a generation; False: not now."""
        self._lose_all()
        try:
            await self._client.refresh(*member.topics)
            known = sorted(where for where in self._client.leaders if where[0] in member.topics)
            keys = [f"{topic}-{index}" for topic, index in known]
            if {topic for topic, _ in known} != set(member.topics):
                return False
            self._consumer.positions = await member.join(keys)
        except AWAY:
            return False
        self._rebalanced += self._consumer.positions
        return True

    async def commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        if self._member is not None and offsets:
            await self._on_host(self._member.commit(offsets))

    async def rewind(self, offsets: Mapping[str, int]) -> None:
        positions = self._consumer.positions
        positions.update({key: offset for key, offset in offsets.items() if key in positions})

    def take_rebalanced(self) -> list[str]:
        changed, self._rebalanced = self._rebalanced, []
        return list(dict.fromkeys(changed))

    # -- the end ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._open:
            if self._member is not None:
                await self._on_host(self._member.leave())
            self._open = False
            self._ports.end(self._host)

    async def abandon(self) -> None:
        if self._open:
            self._open = False
            self._ports.end(self._host, silent=self._ports.goes_silently())
