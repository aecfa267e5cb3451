"""The workload against simulated nodes: judged by the checkers, exact by seed, no leftovers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.port import Definite, Indefinite
from raftlog_chaos.workloads.simulated import SimPort, SimPorts
from tests.kit.marks import nightly

Fault = Callable[[SimLoop, SimCluster], Coroutine[Any, Any, None]]


@dataclass
class Told:
    """The remains of one run."""

    load: LogWorkload
    ops: list[Op]
    missing: dict[str, int]
    digest: str = ""

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((op.f, op.type) for op in self.ops)


async def ready(loop: SimLoop) -> SimCluster:
    cluster = SimCluster(loop)
    cluster.start()
    await cluster.until_ready()
    return cluster


def play(seed: int, options: LogOptions, fault: Fault) -> Told:
    """Run a workload while a fault has its way, heal, read all, and see that no client is left."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> Told:
        cluster = await ready(loop)
        recorder = Recorder(lambda: int(loop.time() * 1e9), ops.append)
        ports = SimPorts(loop, cluster.bootstrap)
        load = LogWorkload(recorder, ports, loop.stream("load"), options)
        load.start()
        await fault(loop, cluster)
        cluster.start()
        await cluster.until_ready()
        missing = await load.finish(60.0)
        cluster.check()
        left = [host for host in loop.hosts() if host.name.startswith("client") and host.alive]
        assert not left, "every client's process has ended"
        return Told(load, ops, missing)

    run = simulate(program, seed=seed)
    run.result.digest = run.digest
    return run.result


async def nothing(loop: SimLoop, cluster: SimCluster) -> None:
    await asyncio.sleep(3.0)


async def deaths(loop: SimLoop, cluster: SimCluster) -> None:
    """One node after the other is killed, by turns with its power, then all at once."""
    chance = loop.stream("deaths")
    for power_loss in (True, False, True):
        victim = chance.choice(sorted(cluster.nodes))
        await asyncio.sleep(chance.uniform(0.5, 1.5))
        cluster.crash(victim, power_loss=power_loss)
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        cluster.start(victim)
        await cluster.until_ready()
    cluster.crash(*cluster.nodes)
    await asyncio.sleep(0.3)


@cache
def in_fair_weather(subscribe: bool) -> Told:
    return play(1, LogOptions(subscribe=subscribe, writes_per_key=25, crash_every_s=2.0), nothing)


@pytest.mark.parametrize("subscribe", [False, True])
def test_in_fair_weather_everything_is_acknowledged_and_read(subscribe: bool) -> None:
    """No operation of a client that lives ends otherwise than ok, while topics are created and clients crash."""
    told = in_fair_weather(subscribe)
    verdict = judge(Header(), told.ops)
    assert verdict.valid, verdict.text()
    assert not told.missing and not told.load.faults
    assert {op.f for op in told.ops if op.type in ("info", "fail")} == {"crash"}
    assert len(told.load.keys) >= 6 and told.load.acked_count > 100
    assert told.load.polled_count > (0 if subscribe else 200)


@pytest.mark.slow
@pytest.mark.parametrize("subscribe", [False, True])
@pytest.mark.parametrize("seed", [1, nightly(2)])
def test_deaths_break_no_promise(seed: int, subscribe: bool) -> None:
    """Kills and power cuts, of one node and of all: no anomalies apart from Kafka's."""
    options = LogOptions(subscribe=subscribe, careless=1, writes_per_key=40, crash_every_s=4.0)
    told = play(seed, options, deaths)
    verdict = judge(Header(), told.ops)
    assert verdict.valid, verdict.text()
    assert not told.missing and not told.load.faults
    assert told.load.acked_count > 100 and told.counts["send", "info"] > 0


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    """Every callback of every node and client, and so the history."""
    first, again = in_fair_weather(False), in_fair_weather.__wrapped__(False)
    assert (first.digest, first.ops) == (again.digest, again.ops)


async def use(loop: SimLoop, act: Callable[[SimCluster, SimPort], Coroutine[Any, Any, None]]) -> None:
    cluster = await ready(loop)
    port = SimPorts(loop, cluster.bootstrap)(1, "client")
    await port.create_topic("log0", partitions=2, replicas=3, configs={})
    assert await port.send("log0-0", 1) == 0
    await act(cluster, port)
    await port.close()


async def send_to_nobody(cluster: SimCluster, port: SimPort) -> None:
    cluster.crash(*cluster.nodes)
    await asyncio.sleep(0.1)  # the client has seen its connections end
    with pytest.raises(Definite):
        await port.send("log0-1", 1)  # no reader is there to take a single byte
    cluster.start()
    await cluster.until_ready()
    assert await port.send("log0-1", 2) == 0


def test_what_was_never_sent_has_certainly_failed() -> None:
    """And the producer, under a new id, goes on."""
    simulate(lambda loop: use(loop, send_to_nobody), seed=3)


async def send_to_the_paused(cluster: SimCluster, port: SimPort) -> None:
    for node in cluster.nodes:
        cluster.pause(node)
    sent = [port.send("log0-0", 2), port.send("log0-0", 3)]
    for done in sent:
        with pytest.raises(Indefinite):
            await done
    for node in cluster.nodes:
        cluster.resume(node)
    await cluster.until_ready()
    assert await port.send("log0-0", 4) > 0
    await port.assign(["log0-0"], seek_to_beginning=True)
    values: list[int] = []
    while 4 not in values:
        values += [value for _, value in (await port.poll()).get("log0-0", [])]
    assert values in ([1, 4], [1, 2, 4], [1, 2, 3, 4], [1, 3, 4]), (
        "each once at most, whatever became of them"
    )


def test_what_was_sent_and_never_answered_is_uncertain() -> None:
    """It may still be taken when the broker wakes."""
    simulate(lambda loop: use(loop, send_to_the_paused), seed=4)


async def rewind(cluster: SimCluster, port: SimPort) -> None:
    for value in range(2, 8):
        await port.send("log0-0", value)
    await port.assign(["log0-0"], seek_to_beginning=False)
    first = await port.poll()
    assert first["log0-0"][0] == (0, 1)
    await port.rewind({"log0-0": 3})
    assert (await port.poll())["log0-0"][0] == (3, 4)
    await port.assign(["log0-1"], seek_to_beginning=False)
    await port.assign(["log0-0", "log0-1"], seek_to_beginning=False)
    assert (await port.poll())["log0-0"][0] == (0, 1), "a key that comes back begins at the beginning"


def test_positions_move_as_the_workload_says() -> None:
    """Rewinding, dropping a key and taking it again."""
    simulate(lambda loop: use(loop, rewind), seed=5)


async def commit(cluster: SimCluster, port: SimPort) -> None:
    await port.subscribe(["log0"], "readers")
    reads: dict[str, list[tuple[int, int]]] = {}
    while not reads:
        reads = await port.poll()
    assert sorted(port.take_rebalanced()) == ["log0-0", "log0-1"]
    await port.commit()
    await port.send("log0-0", 2)
    await port.abandon()
    heir = port._ports(2, "reader")
    await heir.subscribe(["log0"], "readers")
    reads = {}
    while not reads:
        reads = await heir.poll()
    assert reads == {"log0-0": [(1, 2)]}, "it goes on where the dead one committed"
    await heir.close()


def test_a_group_goes_on_where_a_dead_member_committed() -> None:
    """The coordinator waits for the dead member's session to end, then lets the next in."""
    simulate(lambda loop: use(loop, commit), seed=6)
