"""The scenario of voters that are added, removed and replaced, with crashes at every step: no committed entry is lost.

At first a disk may be replaced while the config's voters become the first set. Faults follow each change as soon as a
node has the new set in its log (`failing_voters`). So sets are truncated, found again at a start, and carried by
snapshots. Voters move, one after the other or all at once while they are down, and ask for their new addresses
themselves (`voter_addresses`). A node that cannot be reached holds up no other change. Afterwards all nodes hold the
same, and the observer has followed all the while. Started again, it finds the present voters, whatever its config says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import DuplicateVoter, KafkaError, VoterNotFound
from raftlog.quorum.core import RaftCore
from raftlog.quorum.driver import Driver
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.voter_requests import VoterRequests
from raftlog.quorum.voters_record import Voter, VotersRecord, decode_voters
from raftlog_chaos.scenarios.failing_voters import FailingVoters
from raftlog_chaos.scenarios.quorum import QuorumShape, Report
from raftlog_chaos.scenarios.quorum_cluster import OBSERVER, PORT, QuorumCluster, WatchedNode
from raftlog_chaos.scenarios.raft_properties import HeldLog, RaftProperties
from raftlog_chaos.scenarios.voter_addresses import HeardAddresses, OwnMoves
from raftlog_chaos.simulator.loop import SimLoop

NODES: Final = 5
ASK_S: Final = 6.0
"""How long a request for a change may take, virtual seconds."""

KEPT_AFTER_S: Final = 4.0
"""The longest time until an observer keeps the present voters, virtual seconds."""

CHANGED_WITHIN_S: Final = 60.0
"""The longest time until a change succeeds once all nodes run, virtual seconds."""

BESIDE_S: Final = 2.0
"""How long a change may take while another waits for a node that cannot be reached, virtual seconds."""

WAITS_S: Final = 4.0
"""How long that other waits, virtual seconds."""

MOVED_WITHIN_S: Final = 60.0
"""The longest time until the set names the new addresses of voters that all run, virtual seconds."""

RECORDS: Final = b"directory"
"""Begins the batches that record the directory of a voter, as `VoterRegistered` does."""

Change = Callable[[VoterRequests, float], Coroutine[Any, Any, None]]


async def _call(
    change: Callable[..., Coroutine[Any, Any, None]], changes: VoterRequests, until: float
) -> None:
    await change(changes, until=until)


class Recorded:
    """The directories of voters that a state machine's batches name, after those of the beginning."""

    def __init__(self, machine: WatchedNode, initial: Mapping[int, UUID]) -> None:
        self._machine = machine
        self._found = dict(initial)
        self._seen = 0

    def __call__(self) -> Mapping[int, UUID] | None:
        """Return None while there is no batch."""
        data = self._machine.data
        for batch in data[self._seen :]:
            if batch.startswith(RECORDS):
                _, node, directory_id = batch.partition(b"@")[0].split()
                self._found[int(node)] = UUID(directory_id.decode())
        self._seen = len(data)
        return self._found if data else None


def record_directory(node: int, directory_id: UUID) -> bytes:
    """Return the batch that records the directory of a voter."""
    return b"%s %d %s" % (RECORDS, node, str(directory_id).encode())


class VotersProperties(RaftProperties):
    """Raft's promises over changing sets: a committed entry is on a majority of the newest committed set.

    `directories`: the present directory of each node. A disk counts only if the set names its directory.
    """

    def __init__(self, ids: Iterable[int], directories: Mapping[int, UUID] | None = None) -> None:
        self._ids = set(ids)
        self.addresses: HeardAddresses | None = None
        """Where the nodes have listened; None: not checked."""
        self._set_at = 0
        self._directories = directories or {}
        self._named: Mapping[int, UUID] = {}
        super().__init__(len(self._ids))

    def _take_commit(self, node: int, driver: Driver, log: HeldLog) -> None:
        super()._take_commit(node, driver, log)
        commit_index = driver.core.commit_index
        command = driver.journal.voters_at(commit_index)
        if command and commit_index > self._set_at:
            record = decode_voters(command)
            if self.addresses is not None:
                self.addresses.check(record)
            self._named = record.directories()
            self._set_at, self._ids = commit_index, set(self._named)
            self.majority = len(self._ids) // 2 + 1

    def _counted(self, logs: Mapping[int, HeldLog]) -> Iterable[HeldLog]:
        present, named = self._directories, self._named
        return [
            log for node, log in logs.items() if node in self._ids and present.get(node) == named.get(node)
        ]

    def forget(self, node: int) -> None:
        """Forget the terms and votes of a node that lost its disk."""
        self._terms.pop(node, None)
        self._votes = {each: voted for each, voted in self._votes.items() if each[0] != node}


class VotersChange(FailingVoters):
    """A quorum of changing voters, its clients, and the faults against it."""

    def __init__(self, loop: SimLoop) -> None:
        chance = random.Random(loop.stream("voters").random())
        self.shape = QuorumShape(loop)
        cluster = QuorumCluster(loop, NODES, compaction=self.shape.compaction, sizes=self.shape.sizes)
        super().__init__(loop, cluster, chance)
        for host, offload_s in zip(self.cluster.hosts.values(), self.shape.offloads_s * NODES, strict=False):
            host.offload_s = offload_s
        initial = self.chance.sample(sorted(self.cluster.hosts), self.chance.choice((1, 3, 3)))
        self.addresses = dict(self.cluster.voters)
        self.cluster.voters = {node: self.addresses[node] for node in sorted(initial)}
        self.directories = {node: self._new_directory() for node in self.cluster.hosts}
        self.law = self.cluster.law = VotersProperties(initial, self.directories)
        self.heard_at = self.law.addresses = HeardAddresses(self.addresses)
        self.moves = OwnMoves(self.cluster)
        self.initial = {node: self.directories[node] for node in initial}
        self.cluster.on_made = self._made
        self._number = 0

    def _new_directory(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    def _made(self, quorum: Quorum, machine: WatchedNode) -> None:
        node = quorum.node_id
        quorum.identity = replace(quorum.identity, directory_id=self.directories[node])
        quorum.recorded_voters = Recorded(machine, self.initial)
        self.moves.watch(quorum, machine)

    # -- the course ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start all nodes, and make the set of voters dynamic while nodes fail."""
        cluster = self.cluster
        cluster.boot()
        cluster.boot_observer()
        self._produce()
        await cluster.commit(b"begin", *self.initial)
        if len(self.initial) > 1 and self.chance.random() < 0.7:
            await self._replace_before()
        self.disturb()
        await self._until_changed(self._make_dynamic, lambda record: True)
        self.end_faults()
        await cluster.settle(b"dynamic")
        record = await self._record()
        for node, directory_id in record.directories().items():
            if self.directories[node] != directory_id:  # another leader did not know yet
                await self._remove(node, directory_id)
                await self._add(node)

    async def _make_dynamic(self, changes: VoterRequests, until: float) -> None:
        """Write the first set, and check that it names the directories which the log before it records."""
        quorums = (each for each in self.cluster.nodes.values() if each.started)
        driver = next(each.driver for each in quorums if each.voter_requests is changes)

        def propose_checked(command: bytes) -> int:
            named, recorded = decode_voters(command).directories(), driver.voters.recorded()
            assert named == recorded, f"the first set names {named}, the metadata {recorded}"
            return RaftCore.propose_voters(driver.core, command)

        driver.core.propose_voters = propose_checked  # type: ignore[method-assign]
        try:
            await changes.make_dynamic(self.cluster.voters, until)
        finally:
            del driver.core.propose_voters

    async def _replace_before(self) -> None:
        """A voter of the config gets an empty disk, and its leader is about to record it."""
        leader = await self.cluster.leader(among=self.initial)
        node = self.chance.choice([each for each in self.initial if each != leader])
        others = [each for each in self.initial if each != node]
        self.kill(node)
        await self.cluster.commit(b"without", *others)
        self.law.forget(node)
        self.cluster.wipe(node)
        self.directories[node] = self._new_directory()
        self._boot(node)
        await self.cluster.until(lambda: bool(self._unrecorded()))
        self.counts["replaced before"] += 1
        if self.chance.random() < 0.5:  # then its leader does not know its directory from itself
            self._crash(node)
            await self.cluster.until(lambda: not self._links(node))
            self.cluster.append(record_directory(node, self.directories[node]))
        else:
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.0005, 0.002, 0.1)))
        self._record_directories()

    def _links(self, node: int) -> bool:
        """Whether a leader is linked to a node."""
        leader = self.cluster.leading()
        return leader is not None and self.cluster.nodes[leader].linked(node)

    def _unrecorded(self) -> Mapping[int, UUID]:
        """Return the directories that a leader may record."""
        leader = self.cluster.leading()
        return {} if leader is None else self.cluster.nodes[leader].unrecorded_voters()

    def _record_directories(self) -> None:
        """Have leaders record the directories of voters, as the controller does, until the log holds the voters."""
        if self._ended:
            return
        for node, directory_id in self._unrecorded().items():
            self.cluster.append(record_directory(node, directory_id))
        self.loop.call_later(0.1, self._record_directories)

    def _produce(self) -> None:
        """Append batches on the leader, or on any node, for ever."""
        if self._ended:
            return
        for _ in range(self.chance.choice((0, 1, 1, 3))):
            self._number += 1
            padding = b"." * self.chance.randint(0, self.shape.padding)
            node = self.chance.choice([None, None, *self.cluster.nodes])
            self.cluster.append(b"%d%s" % (self._number, padding), node)
        self.loop.call_later(self.chance.choice((0.002, 0.01, 0.05)), self._produce)

    async def change(self) -> None:
        """Add, remove or replace one voter while nodes fail, and see to it that it succeeds once they run."""
        record = await self._record()
        outside = [each for each in self.cluster.hosts if each not in record.ids]
        ways: list[Callable[[VotersRecord], Coroutine[Any, Any, None]]] = []
        if outside:
            ways += [self.add] * (3 if len(record.ids) < 3 else 2)
        if len(record.ids) > 1:
            ways += [self.remove] * 2
        if len(record.ids) >= 3:
            ways += [self.replace, self.move, self.all_move]
        if outside:
            ways += [self.unreached]
        if outside and len(record.ids) > 1:
            ways += [self.two_at_once] * 2
        if len(record.ids) == 4:
            ways += [self.rivals] * 3
        way = self.chance.choice(ways)
        self.counts[way.__name__] += 1
        await way(record)
        self.back()
        if self.chance.random() < 0.5:
            await self.cluster.settle(b"change%d" % self._number)

    async def add(self, record: VotersRecord) -> None:
        node = self.chance.choice([each for each in self.cluster.hosts if each not in record.ids])
        await self._add(node)

    async def _add(self, node: int) -> None:
        voter = self.voter(node)
        self.disturb()
        await self._until_changed(
            lambda changes, until: changes.add(voter, until), lambda record: record.find(node) == voter
        )

    def voter(self, node: int) -> Voter:
        return Voter(node, self.directories[node].bytes, *self.addresses[node])

    async def remove(self, record: VotersRecord) -> None:
        """Remove a voter, often the leader."""
        leader = self.cluster.leading()
        is_leader = leader in record.ids and self.chance.random() < 0.5
        node = leader if is_leader and leader else self.chance.choice(record.ids)
        if node == leader and len(record.ids) >= 3 and self.chance.random() < 0.5:
            self._cut_from(node, self.chance.sample([each for each in record.ids if each != node], 1))
        await self._remove(node, self.directories[node])

    async def _remove(self, node: int, directory_id: UUID) -> None:
        self.disturb()
        await self._until_changed(
            lambda changes, until: changes.remove(node, directory_id, until),
            lambda record: record.find(node) is None,
        )

    async def two_at_once(self, record: VotersRecord) -> None:
        """Ask a leader that is soon cut off to remove or add two nodes at once, then see to both."""
        leader = self.cluster.leading()
        if leader is None:
            return
        others = [each for each in record.ids if each != leader]
        outside = [each for each in self.cluster.hosts if each not in record.ids]
        if len(others) >= 2 and self.chance.random() < 0.7:
            nodes = self.chance.sample(others, 2)
            changes = [
                partial(VoterRequests.remove, voter_id=each, directory_id=self.directories[each])
                for each in nodes
            ]
        else:
            nodes = self.chance.sample(outside, min(2, len(outside)))
            changes = [partial(VoterRequests.add, voter=self.voter(each)) for each in nodes]
        if self.chance.random() < 0.7:
            self._cut_from(leader, [each for each in record.ids if each not in nodes])
        await asyncio.gather(*(self._ask(leader, partial(_call, change)) for change in changes))
        self.disturb()
        for node in nodes:
            if node in record.ids:
                await self._remove(node, self.directories[node])
            else:
                await self._add(node)

    async def rivals(self, record: VotersRecord) -> None:
        """Have two leaders in turn change a set of four voters, each cut off from the others.

        This is the bug in single-server membership changes that Ongaro reported in 2015.
        """
        first = self.cluster.leading()
        if first is None or first not in record.ids:
            return
        (added,) = (each for each in self.cluster.hosts if each not in record.ids)
        others = self.chance.sample([each for each in record.ids if each != first], 3)
        await self.cluster.until(lambda: self._holds_all(added, first), CHANGED_WITHIN_S)
        self._part([first, added], others)
        second: list[int] = []

        def cut_off(node: int) -> None:
            if node in others and not second:
                second.append(node)
                self._part([next(each for each in others if each != node)], others)

        self.cluster.on_new_leader = cut_off
        await self._ask(first, partial(_call, partial(VoterRequests.add, voter=self.voter(added))), 1.0)
        end = self.loop.time() + 3.0
        await self.cluster.until(lambda: bool(second) or self.loop.time() > end)
        self.cluster.on_new_leader = lambda _node: None
        if second:
            left = next(each for each in others if each != second[0])
            await self.ask_to_remove(second[0], left, 0.3)
            self.loop.heal()
            rest = [each for each in others if each != left]
            self._part([first, added, left], rest)
            end = self.loop.time() + 2.0
            await self.cluster.until(lambda: self.loop.time() > end)
        self.loop.heal()

    def _holds_all(self, node: int, leader: int) -> bool:
        """Whether a leader has caught a node up."""
        if node not in self.cluster.nodes or leader not in self.cluster.nodes:
            return True  # not for this time
        core = self.cluster.nodes[leader].driver.core
        return not core.is_leader or core.match_index(node) >= core.commit_index

    async def replace(self, record: VotersRecord) -> None:
        """Replace the disk of a voter: remove the voter with its former directory id, and add it with the new."""
        node = self.chance.choice(record.ids)
        others = [each for each in record.ids if each != node]
        self._stays_down = node
        self.kill(node)
        await self.cluster.commit(b"without%d" % self._number, *others)
        self.law.forget(node)
        self.cluster.wipe(node)
        self.cluster.configs[node] = {each: self.addresses[each] for each in others}
        former, self.directories[node] = self.directories[node], self._new_directory()
        self._stays_down = 0
        if self.chance.random() < 0.5:  # it runs with its empty disk meanwhile
            self._boot(node)
            leader = self.cluster.leading()
            if leader is not None and self.chance.random() < 0.5:
                self._cut_from(leader, [each for each in others if each != leader][:1])
        await self._remove(node, former)
        self.back()
        await self._add(node)

    async def move(self, record: VotersRecord) -> None:
        """Start a voter again with its disk at another address, until the set names that."""
        await self._move_each(record, [self.chance.choice(record.ids)])

    async def all_move(self, record: VotersRecord) -> None:
        """Move all voters: in turn, or together while every node is down."""
        nodes = self.chance.sample(record.ids, len(record.ids))
        if self.chance.random() < 0.5:
            await self._move_each(record, nodes)
            return
        self.counts["all at once"] += 1
        self.kill_all()
        for node in nodes:
            self._readdress(node)
        lists = {node: self.addresses[node] for node in record.ids}
        for node in (*self.cluster.hosts, OBSERVER):  # an operator writes them into the configs
            self.cluster.configs[node] = lists
        self.back()
        self.cluster.boot_observer()
        await self._until_moved(nodes)

    async def _move_each(self, record: VotersRecord, nodes: list[int]) -> None:
        for node in nodes:
            self.kill(node)
            self._readdress(node)
            self.cluster.configs[node] = {**record.addresses(), node: self.addresses[node]}
            for other in self.cluster.hosts.keys() - set(record.ids):  # it may be down until all have moved
                self.cluster.configs[other] = {each: self.addresses[each] for each in record.ids}
            self.disturb()
            self.back()
            await self._until_moved([node])

    def _readdress(self, node: int) -> None:
        host, port = self.addresses[node]
        self.addresses[node] = host, port + 1
        self.cluster.ports[node] = port + 1
        self.heard_at.add(node, self.addresses[node])

    async def _until_moved(self, nodes: list[int]) -> None:
        def is_moved() -> bool:
            committed = self.committed()
            return committed is not None and all(committed.find(each) == self.voter(each) for each in nodes)

        end = self.loop.time() + MOVED_WITHIN_S
        while not is_moved():
            assert self.loop.time() < end, (
                f"the set does not name the new addresses of {nodes} for {MOVED_WITHIN_S} s"
            )
            await self.cluster.until(lambda: True)
            await asyncio.sleep(0.05)
            if self.loop.time() > end - MOVED_WITHIN_S / 2:
                self.end_faults()

    async def unreached(self, record: VotersRecord) -> None:
        """Add a node at an address where it is not. It delays no other change, and is refused by name."""
        self.end_faults()
        await self.cluster.settle(b"reached%d" % self.cluster.oracle.acked)
        leader = await self.cluster.leader()
        outside = [each for each in self.cluster.hosts if each not in record.ids]
        others = [each for each in record.ids if each != leader]
        node = self.chance.choice(outside)
        free = self.chance.choice([(f"n{node}", PORT - 1), self.addresses[leader]])
        wrong = Voter(node, self.directories[node].bytes, *free)
        refused: list[BaseException | None] = []
        quorum = self.cluster.nodes[leader]
        first = self.cluster.hosts[leader].start(quorum.voter_requests.add(wrong, self.loop.time() + WAITS_S))
        first.add_done_callback(lambda done: refused.append(done.exception()))
        await self.cluster.until(lambda: quorum.describe().change is not None)
        if others:
            began_at, gone = self.loop.time(), self.chance.choice(others)
            await self.ask_to_remove(leader, gone, BESIDE_S)
            if self.cluster.leading() == leader:
                took = f"not within {self.loop.time() - began_at:.1f} s"
                committed = self.committed()
                assert committed is not None and committed.find(gone) is None, (
                    f"{took} beside a node that is not reached"
                )
        # A fault of before may end its process, and the request with it.
        await self.cluster.until(lambda: bool(refused) or self.cluster.nodes.get(leader) is not quorum)
        if refused and self.cluster.leading() == leader:
            address = f"{wrong.host}:{wrong.port}"
            assert isinstance(refused[0], KafkaError) and address in str(refused[0]), refused

    # -- asking -----------------------------------------------------------------------------

    async def _record(self) -> VotersRecord:
        """Return the voters once a leader has committed them."""
        await self.cluster.until(self.committed, CHANGED_WITHIN_S)
        record = self.committed()
        assert record is not None
        return record

    async def _until_changed(self, change: Change, holds: Callable[[VotersRecord], bool]) -> None:
        """Ask leaders for a change until it is committed; all nodes run from the second attempt on."""
        end = self.loop.time() + CHANGED_WITHIN_S
        while True:
            leader = self.cluster.leading()
            if leader is not None:
                await self._ask(leader, change)
            await self.cluster.until(lambda: True)
            record = self.committed()
            if record is not None and holds(record):
                return
            assert self.loop.time() < end, f"no change within {CHANGED_WITHIN_S} s: {self._why()}"
            await asyncio.sleep(0.05)
            if self.loop.time() > end - CHANGED_WITHIN_S / 2:
                self.end_faults()

    def _why(self) -> dict[int, object]:
        return {
            node: (
                quorum.leader_id,
                quorum.term,
                quorum.driver.voters.current and quorum.driver.voters.current.ids,
            )
            for node, quorum in self.cluster.nodes.items()
            if quorum.started
        }

    def committed(self) -> VotersRecord | None:
        """Return the newest set of the leader once it is committed."""
        leader = self.cluster.leading()
        if leader is None:
            return None
        driver = self.cluster.nodes[leader].driver
        return None if driver.changes_voters else driver.voters.current

    async def ask_to_remove(self, leader: int, node: int, seconds: float) -> None:
        """Send the request to a node once."""
        remove = partial(VoterRequests.remove, voter_id=node, directory_id=self.directories[node])
        await self._ask(leader, partial(_call, remove), seconds)

    async def _ask(self, leader: int, change: Change, seconds: float = ASK_S) -> None:
        """Send the request to a node, and wait for the answer, the end of its process, or the deadline."""
        ended: list[BaseException | None] = []
        quorum = self.cluster.nodes.get(leader)
        if quorum is None or not quorum.started:
            return

        def ask() -> None:
            task = asyncio.get_running_loop().create_task(
                change(quorum.voter_requests, self.loop.time() + seconds)
            )
            task.add_done_callback(lambda done: ended.append(None if done.cancelled() else done.exception()))

        self.cluster.hosts[leader].call(ask)
        end = self.loop.time() + seconds + 1
        while not ended and self.cluster.nodes.get(leader) is quorum and self.loop.time() < end:
            self.cluster.check()
            await asyncio.sleep(0.005)
        if ended and ended[0] is not None:
            assert isinstance(ended[0], KafkaError), ended[0]
            if not isinstance(ended[0], DuplicateVoter | VoterNotFound):
                self.counts[f"refused {type(ended[0]).__name__}"] += 1

    async def end(self) -> Report:
        """Heal all, and compare all logs."""
        self.end_faults()
        self._ended = True
        await asyncio.sleep(1)
        cluster = self.cluster
        await cluster.settle(b"end")
        await cluster.until(lambda: cluster.machines[OBSERVER].data == cluster.oracle.committed)
        record = await self._record()
        await self._restart_observer(record)
        return Report(
            len(record.ids),
            len(cluster.oracle.committed),
            cluster.oracle.acked,
            len(cluster.law.leaders),
            dict(self.counts),
        )

    async def _restart_observer(self, record: VotersRecord) -> None:
        """The former voters are gone, which may be all of the observer's config."""
        cluster = self.cluster
        await asyncio.sleep(KEPT_AFTER_S)
        cluster.crash_observer()
        for node in set(cluster.hosts) - set(record.ids):
            self.kill(node)
        cluster.boot_observer()
        await cluster.until(lambda: cluster.applied(b"end", OBSERVER))


async def voters_change(loop: SimLoop, seconds: float = 20.0) -> Report:
    """Change voters for some virtual seconds. Raises AssertionError."""
    scene = VotersChange(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.change()
    return await scene.end()
