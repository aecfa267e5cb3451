"""Claims about faults in the simulator: each one befalls the cluster, is felt, and the cluster is whole again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults import FAULTS
from raftlog_chaos.faults.fault_swarm import EFFECTS, FaultSwarm
from raftlog_chaos.faults.fault_swarm import FAULTS as STORM
from raftlog_chaos.faults.nemesis import Nemesis, Steps, is_whole
from raftlog_chaos.scenarios.endurance import Endurance
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, PORT, SimCluster
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.testbed import SimTestbed
from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, Client, create_topic, shapes
from raftlog_chaos.workloads.simple import SimpleClient
from tests.kit.marks import nightly

SETTINGS = {
    "broker.session.timeout.ms": "1000",
    "replica.lag.time.max.ms": "1000",
    "offsets.topic.num.partitions": "1",
}


class Scene:
    """Three nodes, one topic of one partition, and a client that writes and reads."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, settings=SETTINGS)
        self.testbed = SimTestbed(self.cluster, random.Random(loop.seed))
        self.host = loop.host("client")
        self.client = SimpleClient(Client("client", self.cluster.bootstrap))

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        await self.make_topic("t")
        await self.write(b"first")

    async def make_topic(self, name: str) -> None:
        await self.host.start(create_topic(Client("admin", self.cluster.bootstrap), name, partitions=1))

    async def write(self, *values: bytes, limit_s: float = 30.0) -> None:
        """Write until it is acknowledged. Raises TimeoutError."""

        async def trying() -> None:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        await self.client.produce("t", 0, *values)
                    except AWAY:
                        await asyncio.sleep(0.02)
                        continue
                    return

        await self.host.start(trying())

    async def coordinate(self) -> None:
        """Ask for a group's coordinator until it is found."""
        client = Client("member", self.cluster.bootstrap)
        request = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key="group", key_type=0)

        async def trying() -> None:
            while int((await client.ask_any(FIND_COORDINATOR, request)).error_code):
                await asyncio.sleep(0.05)

        await self.host.start(trying())

    async def read(self) -> set[bytes]:
        return {value for _, value in await self.host.start(self.client.read("t", 0))}

    def leader(self) -> int:
        state = self.cluster.state("t", 0)
        assert state is not None and state.leader > 0
        return state.leader

    async def is_whole(self) -> bool:
        return is_whole(await self.testbed.view(), self.testbed)

    async def until_whole(self, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not await self.is_whole():
                self.cluster.check()
                await asyncio.sleep(0.05)


def play(scenario: Callable[[Scene], Awaitable[object]], seed: int = 1) -> None:
    async def program(loop: SimLoop) -> None:
        scene = Scene(loop)
        await scene.begin()
        await scenario(scene)
        scene.cluster.check()

    simulate(program, seed=seed, limit_s=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in sorted(FAULTS) if FAULTS[name].needs <= SimTestbed.abilities]
)
def test_a_fault_of_the_simulator_passes_once_it_is_healed(name: str) -> None:
    """Writes go on or resume, acknowledged records are read, all replicas are in sync, no node ends without cause."""

    async def scenario(scene: Scene) -> None:
        nemesis = Nemesis(scene.testbed, random.Random(2), Steps(()))
        if name.endswith("-coordinator"):
            await scene.coordinate()
        if name.endswith("-schema-leader"):
            await scene.make_topic(SCHEMAS_TOPIC)
        for number in range(2):
            await scene.until_whole()
            for value in range(5):
                await scene.write(b"%d before %d" % (value, number))
            fault = await nemesis.inject(name)
            assert fault is not None
            await asyncio.sleep(1.5)
            await nemesis.heal(fault)
            await scene.write(b"after %d" % number)
        await nemesis.calm()
        await scene.until_whole()
        expected = {b"%d before %d" % (value, number) for value in range(5) for number in range(2)}
        assert expected | {b"after %d" % number for number in range(2)} <= await scene.read()

    play(scenario)


def test_a_full_disk_refuses_writes_and_serves_reads_and_recovers_without_a_restart() -> None:
    """Section 6.C of the figures: within 10 s after there is room again. The node never ends itself for it."""

    async def scenario(scene: Scene) -> None:
        await scene.until_whole()
        lives = [scene.cluster.nodes[each].host.process.number for each in scene.testbed.nodes]
        for node_id in scene.testbed.nodes:
            await scene.testbed.trouble_disk(node_id, DiskTrouble(full=True))
        with pytest.raises(TimeoutError):
            await scene.write(b"too much" * 50, limit_s=3.0)
        assert scene.cluster.effects["no room"] > 0
        assert b"first" in await scene.read()
        for node_id in scene.testbed.nodes:
            await scene.testbed.trouble_disk(node_id, DiskTrouble())
        await scene.write(b"more", limit_s=10.0)
        assert lives == [scene.cluster.nodes[each].host.process.number for each in scene.testbed.nodes]
        assert b"more" in await scene.read()

    play(scenario)


def test_a_node_ends_itself_when_its_metadata_disk_fails_and_comes_back_once_it_is_mended() -> None:
    """After a failed sync it is unknown which writes are durable: a voter must not go on. The cluster has not failed by
    it.
    """

    async def scenario(scene: Scene) -> None:
        controller = scene.cluster.leader_id()
        assert controller is not None
        scene.cluster.trouble_disk(controller, DiskTrouble(failing="sync"))
        await scene.host.start(create_topic(Client("admin", scene.cluster.bootstrap), "u", partitions=1))
        await scene.cluster.until(lambda: not scene.cluster.nodes[controller].running, 10, "its end")
        scene.cluster.trouble_disk(controller, DiskTrouble())
        scene.cluster.start(controller)
        await scene.until_whole()
        scene.cluster.trouble_disk(controller, DiskTrouble(full=True))
        assert not scene.cluster.nodes[controller].troubled, "a full disk is no reason to end"

    play(scenario)


def test_records_may_stand_still_while_heartbeats_do_not() -> None:
    """A follower that only its leader's records don't reach leaves the ISR and is not fenced; it comes back."""

    async def scenario(scene: Scene) -> None:
        await scene.until_whole()
        leader = scene.leader()
        follower = next(each for each in scene.testbed.nodes if each != leader)
        hosts = {node_id: each.host for node_id, each in scene.cluster.nodes.items()}
        scene.loop.clog(hosts[leader], hosts[follower], (PORT,))
        await scene.write(b"behind its back")
        state = scene.cluster.state("t", 0)
        assert state is not None and follower not in state.isr and state.leader == leader
        assert scene.cluster.nodes[follower].ready
        scene.loop.heal()
        await scene.until_whole()

    play(scenario)


def test_a_clog_of_ports_leaves_the_others_open() -> None:
    """Handshakes too."""

    async def program(loop: SimLoop) -> None:
        a, b = loop.host("a"), loop.host("b")
        for port in (PORT, CONTROLLER_PORT):
            await a.start(loop.create_server(asyncio.Protocol, None, port))
        loop.clog(b, a, (PORT,))
        await b.start(loop.create_connection(asyncio.Protocol, "a", CONTROLLER_PORT))
        waiting = b.start(loop.create_connection(asyncio.Protocol, "a", PORT))
        await asyncio.sleep(10)
        assert not waiting.done()
        loop.heal()
        await waiting

    simulate(program)


def test_a_connection_over_a_link_that_loses_too_much_is_given_up() -> None:
    """The sender hears of it; until then bytes come late and in order, none is missing in the middle."""

    async def program(loop: SimLoop) -> tuple[bytes, int]:
        a, b = loop.host("a"), loop.host("b")
        received = bytearray()

        class Sink(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                received.extend(data)

        await a.start(loop.create_server(Sink, None, 9000))
        reader, writer = await b.start(asyncio.open_connection("a", 9000))
        loop.network.link(b, a).loss = 0.4
        lost = b.start(reader.read())
        sent = 0
        while not lost.done():
            b.call(writer.write, bytes([sent % 251]))
            sent += 1
            await asyncio.sleep(0.1)
        assert isinstance(lost.exception(), TimeoutError)
        return bytes(received), sent

    received, sent = simulate(program, seed=4).result
    assert 0 < len(received) < sent
    assert received == bytes(number % 251 for number in range(len(received)))


def test_a_clock_jumps_and_drifts_and_is_set_right_again() -> None:
    """Only the wall clock: what is timed on the loop is not concerned."""

    async def program(loop: SimLoop) -> None:
        host: Host = loop.host("a")
        truth = loop.host("b")
        host.set_clock(-288_000, drift=0.5)
        assert host.wall_clock_ms() - truth.wall_clock_ms() == -288_000
        await asyncio.sleep(10)
        assert host.wall_clock_ms() - truth.wall_clock_ms() == pytest.approx(-283_000, abs=2)
        host.set_clock(0)
        assert host.wall_clock_ms() == truth.wall_clock_ms()

    simulate(program)


def test_a_node_whose_power_goes_in_the_midst_of_a_callback_is_no_failure() -> None:
    """It comes back with a part of what that callback did, and the cluster is whole again."""

    async def scenario(scene: Scene) -> None:
        for changes in (0, 1, 2, 3, 5, 8):
            await scene.until_whole()
            leader = scene.leader()
            scene.cluster.crash_at_work(leader, changes, lambda leader=leader: scene.cluster.start(leader))
            for number in range(10):
                await scene.write(b"%d of %d" % (number, changes))
        assert scene.cluster.effects["power lost at work"] == 6
        await scene.until_whole()
        assert {b"%d of 8" % number for number in range(10)} <= await scene.read()

    play(scenario)


def test_a_node_whose_power_goes_while_it_starts_is_no_failure() -> None:
    """A node may make anything of a disk that answers no more: even that it has none left and ends itself."""

    async def scenario(scene: Scene) -> None:
        await scene.until_whole()
        for changes in range(12):
            scene.cluster.restart(2)
            scene.cluster.nodes[2].host.disk.mkdir("/data/nobodys-0")  # which it sets aside
            scene.cluster.crash_at_work(2, changes, lambda: None)
            await asyncio.sleep(0.5)
            scene.cluster.start(2)
            await scene.until_whole()

    play(scenario)


def test_a_view_is_of_the_newest_metadata_though_its_holder_is_down() -> None:
    """Nodes that restarted show the past for a while: what is destroyed by that view may be the only copy."""

    async def scenario(scene: Scene) -> None:
        await scene.until_whole()
        leader = scene.leader()
        others = [each for each in scene.cluster.nodes if each != leader]
        scene.cluster.crash(others[0])
        state = lambda: scene.cluster.state("t", 0)  # noqa: E731
        await scene.cluster.until(lambda: others[0] not in state().isr, 10, "shrunk")
        scene.cluster.crash(leader, others[1])
        scene.cluster.start(others[0])
        await asyncio.sleep(0.3)
        view = await scene.testbed.view()
        assert others[0] not in view.partitions["t-0"].isr
        assert not any(view.is_whole_without(each) for each in (leader, others[1]))

    play(scenario)


LINK_EFFECTS = {"bytes late", "packet lost", "connection given up"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "wanted"),
    [
        nightly(STORM, set(STORM)),
        nightly(
            ("failing-disk", "full-disk", "slow-disk", "power_loss_at_work"), set(EFFECTS) - LINK_EFFECTS
        ),
        nightly(("lossy-link", "slow-link"), LINK_EFFECTS),
        (
            ("lossy-link", "slow-link"),
            LINK_EFFECTS - {"connection given up"},
        ),  # for which some need many seeds
    ],
    ids=("everything", "disks", "links", "links felt soon"),
)
def test_every_fault_of_a_storm_strikes_and_is_felt(faults: tuple[str, ...], wanted: set[str]) -> None:
    """A fault class that never fires tests no code; over these seeds each does, and breaks no promise."""

    async def storm(loop: SimLoop) -> Counter[str]:
        scenario = Endurance(loop)
        scenario.weather = FaultSwarm(loop, scenario.cluster, faults)
        await scenario.begin()
        await scenario.weather.storm(8.0)
        await scenario.finish()
        assert not scenario.judge()
        return Counter(scenario.weather.fault_counts())

    seen: Counter[str] = Counter()
    for seed in range(1, 31):
        seen += simulate(storm, seed=seed).result
        if wanted <= set(seen):
            return
    raise AssertionError(f"never: {wanted - set(seen)}")
