"""The identity of voters: empty disks, copies of a node, two nodes with one id, folders without meta.properties.

An acknowledged topic stays, whichever two voters are left. No node forms a second cluster beside the first, and a node
that is linked stays linked. A node with a shorter or longer list of voters leads no second cluster. At the end two of
three disks are empty at once, which no quorum survives: the cluster must then do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from raftlog.base.checked_files import remove_checked, write_checked
from raftlog.node import Node, NodeFailed
from raftlog.storage.log_directory import META_PROPERTIES
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT
from raftlog_chaos.simulator.copies import DATA, ExtraNode, NodeCopy
from raftlog_chaos.simulator.env import SimEnv
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.consumer import Consumer
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simple import SimpleClient

STILL_S = 2.0
"""With too few voters left there may be no leader for so long, virtual seconds."""

STALE_S = 1.2
"""From when a leader is cut off until a voter with an empty disk answers it: before it steps down by itself."""

SILENT_S = 6.0
"""Within this a link that is cut is closed, virtual seconds."""

LOOK_S = 0.01

REST_S = 0.3
PAUSE_S = 0.1
"""The pause of producers and consumers after each request, in virtual seconds."""


class VoterIdentity(Choreography):
    """The stage, and the operations on its voters."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.topics: list[str] = []
        """Topics with an acknowledged creation."""
        self.met: dict[str, int] = {}
        self._copies = 0

    async def begin(self) -> None:
        """Begin with slow clients: this is about metadata."""
        await super().begin()
        self.pace([REST_S] * len(self.producers))
        for each in self.others:
            if isinstance(each, Consumer):
                each.pause_s = PAUSE_S

    # -- what is looked at

    async def controller(self) -> int:
        """Wait until all know the same leader of the quorum; return it."""

        def known() -> set[int | None]:
            quorums = [each.node.control.quorum for each in self.cluster.running() if each.node]
            return {each.leader_id for each in quorums if each is not None}

        await self.cluster.until(lambda: known() == {self.cluster.leader_id()} - {None}, SERVED_S, "a leader")
        leader = self.cluster.leader_id()
        assert leader is not None
        return leader

    async def create(self, *brokers: int, within_s: float = SERVED_S) -> bool:
        """Create a topic by these brokers (default: any); True once that is acknowledged."""
        name = f"kept{len(self.topics)}-{self.loop.time():.3f}"
        addresses = [(f"node{each}", 9092) for each in brokers] or list(self.cluster.bootstrap)
        client = SimpleClient(Client(f"keeper-{name}", addresses))
        work = self.loop.host("keeper").start(client.create_topic(name))
        done, _ = await asyncio.wait([work], timeout=within_s)
        if not done:
            work.cancel()
            return False
        work.result()
        self.topics.append(name)
        return True

    def judge(self) -> list[str]:
        """Return everything that is wrong."""
        return [*self.lost_topics(), *super().judge()]

    def lost_topics(self) -> list[str]:
        """Return which acknowledged topics which running nodes lack."""
        return [
            f"topic {name} was acknowledged, and node {sim_node.node_id} has none"
            for sim_node in self.cluster.running()
            if sim_node.node is not None
            for name in self.topics
            if name not in sim_node.node.metadata.image.topics
        ]

    async def _nobody_leads(self, what: str) -> None:
        end = self.loop.time() + STILL_S
        while self.loop.time() < end:
            self.cluster.check()
            leader = self.cluster.leader_id()
            assert leader is None, f"node {leader} leads, though {what}"
            await asyncio.sleep(LOOK_S)

    def _cut_controllers(self, one: int, others: list[int]) -> None:
        nodes = self.cluster.nodes
        for other in others:
            self._cut_hosts(nodes[one].host, nodes[other].host)

    def _cut_hosts(self, one: Host, other: Host) -> None:
        self.loop.clog(one, other, (CONTROLLER_PORT,))
        self.loop.clog(other, one, (CONTROLLER_PORT,))

    def _followers_of(self, leader: int) -> list[int]:
        others = [each for each in self.cluster.nodes if each != leader]
        self.chance.shuffle(others)
        return others

    # -- what is done

    async def empty_disk_and_laggard(self) -> None:
        """Empty the disk of a voter that had a topic, while another lacks it: the two elect no leader without the
        third.
        """
        leader = await self.controller()
        victim, laggard = self._followers_of(leader)
        self._cut_controllers(laggard, [leader, victim])
        if not await self.create(leader, victim):
            self.loop.heal()
            return
        self.cluster.crash(leader, victim)
        self.cluster.wipe(victim)
        self.loop.heal()
        self.cluster.start(victim)
        await self._nobody_leads("the only one with all metadata is down")
        self.cluster.start(leader)

    async def empty_disk_and_stale_leader(self) -> None:
        """Reconnect a deposed leader with a voter that lost its vote for the new leader with its disk."""
        leader = await self.controller()
        victim, heir = self._followers_of(leader)
        self._cut_controllers(leader, [heir, victim])
        for _ in range(int(STALE_S / LOOK_S)):
            if self.cluster.leader_id() == leader:
                await asyncio.sleep(LOOK_S)
        if self.cluster.leader_id() == heir and await self.create(heir, within_s=0.3):
            self.cluster.crash(victim)
            self.cluster.wipe(victim)
            self.loop.heal()
            self._cut_controllers(heir, [leader, victim])
            self.cluster.start(victim)
            await self.create(leader, within_s=2.0)
        self.loop.heal()

    async def copy_beside(self) -> None:
        """Run a copy of a running node's folders beside it: the others stay linked to the original."""
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        await self._second_node(node_id, with_data=True)

    async def copy_at_another_voter(self) -> None:
        """Let the original reach only one of the other voters, and its copy only the other: just one of the two is
        linked.
        """
        original, (first, second) = max(self.cluster.nodes), sorted(self.cluster.nodes)[:2]
        if self.chance.random() < 0.5:
            first, second = second, first
        self._cut_controllers(original, [second])
        await asyncio.sleep(self.chance.choice((0.0, SILENT_S)))
        self._copies += 1
        copy = NodeCopy(self.cluster, original, f"copy{self._copies}", with_data=True)
        self._cut_hosts(copy.host, self.cluster.nodes[first].host)
        end = self.loop.time() + 2 * SILENT_S
        while self.loop.time() < end:
            self.cluster.check()
            found = set(self._incarnations(original).values())
            assert len(found) <= 1, f"node {original} and its copy are linked at once"
            await asyncio.sleep(LOOK_S)
        copy.end()

    async def wrong_number(self) -> None:
        """Start a new node with an empty folder and the id of a running node."""
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        await self._second_node(node_id, with_data=False)

    async def _second_node(self, node_id: int, *, with_data: bool) -> None:
        others = len(self.cluster.nodes) - 1
        await self.cluster.until(lambda: len(self._incarnations(node_id)) == others, SERVED_S, "all links")
        before = self._incarnations(node_id)
        self._copies += 1
        copy = NodeCopy(self.cluster, node_id, f"copy{self._copies}", with_data=with_data)
        end = self.loop.time() + STILL_S + self.chance.choice((0.0, 6.0))
        created = asyncio.ensure_future(self.create())
        while self.loop.time() < end:
            self.cluster.check()
            found = self._incarnations(node_id)
            assert found == before, f"a second node {node_id} took the place of the first one's link"
            await asyncio.sleep(LOOK_S)
        assert await created, "a topic is created while a second node runs beside the first"
        copy.end()

    def _incarnations(self, node_id: int) -> dict[int, bytes]:
        """Return which process each other voter is linked to."""
        found = {}
        for other, sim_node in self.cluster.nodes.items():
            quorum = sim_node.node.control.quorum if sim_node.node else None
            incarnation = quorum.linked_incarnation(node_id) if quorum and other != node_id else None
            if incarnation is not None:
                found[other] = incarnation
        return found

    async def lost_properties(self) -> None:
        """Empty, remove or swap the meta.properties of a stopped node: it starts with its own only."""
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        sim_node = self.cluster.nodes[node_id]
        self.cluster.crash(node_id)
        disk, path = sim_node.host.disk, f"{DATA}/{META_PROPERTIES}"
        how = self.chance.choice(("missing", "empty", "foreign"))
        with disk.undisturbed():
            kept = disk.read_file(path)
            remove_checked(disk, path)
            if how == "empty":
                disk.write_file(path, b"")
            elif how == "foreign":
                write_checked(disk, path, _of_another_folder(kept), copy=True)
            disk.sync_dir(DATA)
        refused = await self._refused(sim_node.host.start(self._start_alone(node_id)))
        assert refused, f"node {node_id} starts, though its meta.properties is {how}"
        sim_node.host.crash(power_loss=False)
        with disk.undisturbed():
            write_checked(disk, path, kept, copy=True)
        self.cluster.start(node_id)

    async def _start_alone(self, node_id: int) -> None:
        sim_node = self.cluster.nodes[node_id]
        await Node(sim_node.config, SimEnv(sim_node.host)).start()

    async def _refused(self, start: asyncio.Task[None]) -> bool:
        try:
            await start
        except NodeFailed as error:
            assert DATA in str(error), f"the reason names no folder: {error}"
            return True
        return False

    async def shorter_list(self) -> None:
        """Start a node with a shorter controller.quorum.voters: it does not lead."""
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        sim_node = self.cluster.nodes[node_id]
        others = self._followers_of(node_id)
        usual, listed = sim_node.config, {node_id, *others[: self.chance.choice((0, 1))]}
        self.cluster.crash(node_id)
        sim_node.config = replace(usual, voters={each: usual.voters[each] for each in sorted(listed)})
        self.cluster.start(node_id)
        created = asyncio.ensure_future(self.create(*others))
        end = self.loop.time() + STILL_S
        while self.loop.time() < end:
            quorum = sim_node.node.control.quorum if sim_node.node else None
            assert quorum is None or not quorum.leading, (
                f"node {node_id} leads, though it lists only {listed}"
            )
            await asyncio.sleep(LOOK_S)
        assert await created, "a topic is created by the voters that know each other"
        self.cluster.crash(node_id)
        sim_node.config = usual

    async def longer_list(self) -> None:
        """Start a node, and two new nodes, with a longer controller.quorum.voters: no majority of it leads."""
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        sim_node = self.cluster.nodes[node_id]
        others = self._followers_of(node_id)
        usual, new = sim_node.config, [len(self.cluster.nodes) + each for each in (1, 2)]
        listed = {**usual.voters, **{each: (f"node{each}", CONTROLLER_PORT) for each in new}}
        longer = replace(usual, voters=listed)
        self.cluster.crash(node_id)
        sim_node.config = longer
        hosts = [self.loop.host(f"node{each}") for each in new]
        for other in others:
            for host in (sim_node.host, *hosts):
                self._cut_hosts(self.cluster.nodes[other].host, host)
        self.cluster.start(node_id)
        newcomers = [
            ExtraNode(host, replace(longer, node_id=each)) for host, each in zip(hosts, new, strict=True)
        ]
        created = asyncio.ensure_future(self.create(*others))
        end = self.loop.time() + STILL_S
        while self.loop.time() < end:
            stood = [sim_node.node, *(each.node for each in newcomers)]
            for node in stood:
                quorum = node.control.quorum if node else None
                assert quorum is None or not quorum.leading, (
                    f"node {quorum.node_id} leads, though voters {others} know of no longer list"
                )
            await asyncio.sleep(LOOK_S)
        assert await created, "a topic is created by the voters with the recorded list"
        for newcomer in newcomers:
            newcomer.end()
        self.cluster.crash(node_id)
        sim_node.config = usual

    async def most_disks_empty(self) -> None:
        """Empty two of three disks: no cluster is formed, before or after the third node is back."""
        survivor = self.chance.choice(sorted(self.cluster.nodes))
        emptied = [each for each in self.cluster.nodes if each != survivor]
        self.cluster.crash(*self.cluster.nodes)
        for each in emptied:
            self.cluster.wipe(each)
        self.cluster.start(*emptied)
        await self._nobody_leads("two disks are empty and the third node is down")
        self.cluster.start(survivor)
        await self._nobody_leads("two of three disks are empty")
        image = self.cluster.last_image()
        assert set(self.topics) <= image.topics.keys(), "there is newer metadata, without the topics"

    async def act(self, one: Callable[[], Awaitable[None]]) -> None:
        """Run one step once all is well, and wait until all is well again."""
        await self.whole()
        await one()
        self.met[one.__name__] = self.met.get(one.__name__, 0) + 1
        self.loop.heal()
        await self.whole()
        self.cluster.check()
        lost = self.lost_topics()
        assert not lost, "; ".join(lost[:10])

    async def act_in_turn(self, acts: Sequence[Callable[[], Awaitable[None]]], seconds: float) -> None:
        """Run the steps in random order, as many as fit into some virtual seconds."""
        left = list(acts)
        self.chance.shuffle(left)
        end = self.loop.time() + seconds
        while left and self.loop.time() < end:
            await self.act(left.pop())


def _of_another_folder(properties: bytes) -> bytes:
    """Return the content of meta.properties with another directory id."""
    other = b"directory.id=AAAAAAAAAAAAAAAAAAAA_w"
    lines = properties.split(b"\n")
    return b"\n".join(other if line.startswith(b"directory.id=") else line for line in lines)


async def voter_identity(loop: SimLoop, seconds: float = 20.0) -> Report:
    """Run steps on voters for some virtual seconds. Raises AssertionError."""
    scene = VoterIdentity(loop)
    await scene.begin()
    acts = [
        scene.empty_disk_and_laggard,
        scene.empty_disk_and_stale_leader,
        scene.copy_beside,
        scene.copy_at_another_voter,
        scene.wrong_number,
        scene.lost_properties,
    ]
    await scene.act_in_turn(acts, seconds)
    await scene.act(scene.shorter_list)
    await scene.act(scene.longer_list)
    report = await scene.end()
    await scene.most_disks_empty()
    return replace(report, faults={**report.faults, **scene.met})
