"""Share groups consume while partition leaders and share coordinators crash, hang and lose their connections.

`ShareGroupModel` checks that accepted records are not delivered again, and that all others are delivered until they are
accepted, rejected or out of deliveries. Faults hit three moments: between acquire and acknowledgement, between the
write of a share state and its response, and just after a response. Records are also deleted while they are
locked, and compaction removes records of a topic that a third group reads. Wall clocks jump, which must not matter,
as locks expire by the monotonic clock. An operator releases and archives records by hand all the while.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.base.types import encode_uuid
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.shards import share_coordinator
from raftlog.metadata.controller_api import AlterConfigs, ConfigAlteration, ConfigOp
from raftlog.records.batch import iter_records
from raftlog.records.header import iter_headers
from raftlog.replication.partition import Partition
from raftlog_chaos.checkers.records import read_batches, values_of
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.eligible_leaders import Leaving
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.cluster import LOOK_S, SimNode
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.ledger import Ledger
from raftlog_chaos.workloads.producer import Producer
from raftlog_chaos.workloads.raw_client import AWAY, Client, create_topic
from raftlog_chaos.workloads.share_group_model import Reign, ShareGroupModel, withheld_in
from raftlog_chaos.workloads.share_member import RETRY_S, ShareMember
from raftlog_chaos.workloads.share_operator import ShareOperator
from raftlog_chaos.workloads.share_shelf import CLEANER, CONFIGS, READERS, SHELF, ShelfWriter, newest_in
from raftlog_chaos.workloads.share_worker import ShareWorker

JOBS: Final = "jobs"
GROUP_NAMES: Final = ("crew", "guests")
WORKERS: Final = 3
"""Members of a group for each partition."""

LETTERS: Final = "dlq.jobs"
"""The dead-letter topic of both groups."""

DAY_MS: Final = 86_400_000
SETTLED_S: Final = 20.0
"""Deadline after the last fault for members to accept all records, virtual seconds."""

TRANSACTIONAL: Final = 0.1
"""Probability that a visit to the leader writes a transactional batch or a marker."""

PRODUCER_IDS: Final = (7_000, 7_001)
"""Two transactional producers. Their transactions overlap: the first to begin may be the last to end."""

LATE_S: Final = 2.0
"""How long a leader cannot reach a share coordinator, virtual seconds."""
LONG_WAIT_S: Final = 6.0
"""How long a member waits that comes meanwhile: longer than the leader waits for the coordinator."""

MOVED_S: Final = 5.0
"""Deadline for a leadership to move after its broker is cut off, virtual seconds."""

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "10000",
    "share.coordinator.state.topic.segment.bytes": "2000",
    "share.coordinator.state.topic.prune.interval.ms": "500",
}
SEGMENTS: Final = ("600", "16384")


class ShareGroups(Leaving):
    """The cluster, a topic of jobs, and the members of two share groups that consume it."""

    def __init__(self, loop: SimLoop) -> None:
        chance = loop.stream("share-groups")
        self.lock_s = chance.choice((1.0, 2.0))
        self.limit = chance.choice((2, 5, 10))
        self.has_letters = chance.random() < 0.6
        """Whether the groups have a dead-letter topic. With few locks, letters that fail would be given up."""
        has_shelf = loop.stream("has-shelf").random() < 0.4
        super().__init__(
            loop,
            settings={
                **SETTINGS,
                **(CLEANER if has_shelf else {}),
                "group.share.record.lock.duration.ms": str(int(self.lock_s * 1_000)),
                "group.share.delivery.count.limit": str(self.limit),
                "group.share.partition.max.record.locks": chance.choice(
                    ("2000",) if self.has_letters else ("100", "2000")
                ),
                "share.coordinator.snapshot.update.records.per.snapshot": chance.choice(("3", "20")),
                "share.coordinator.state.topic.num.partitions": chance.choice(("1", "1", "2")),
                "share.coordinator.cold.partition.snapshot.interval.ms": chance.choice(("500", "60000")),
                "share.coordinator.write.timeout.ms": chance.choice(("1000", "5000")),
            },
        )
        self.has_transactions = chance.random() < 0.5
        self.shelf = ShelfWriter(loop.stream("shelf")) if has_shelf else None
        """Writes a compacted topic that a third group reads."""
        self.reads_late = loop.stream("late").random() < 0.5
        self.read_committed = chance.random() < 0.7
        """Whether the first group gets no records of open and aborted transactions."""
        self.sets_back = chance.random() < 0.5
        self.calm = self.is_set_back = False
        self.skipped: list[str] = []
        """What is wrong after an administrator has set a group back."""
        self.ledgers = [
            Ledger(loop.stream(f"ledger{producer_id}"), producer_id=producer_id)
            for producer_id in PRODUCER_IDS
        ]
        self.books: dict[tuple[str, int], ShareGroupModel] = {}
        self.jobs: list[Producer] = []
        self.workers: list[ShareWorker] = []
        self.counts: dict[str, int] = {}

    async def begin(self) -> None:
        await super().begin()
        self.pace([2.0] * len(self.producers))
        create = partial(create_topic, Client("books", self.cluster.bootstrap))
        create_letters = partial(create_topic, Client("letters", self.cluster.bootstrap))
        admin = self.loop.host("admin")
        partitions = self.chance.choice((1, 1, 2))
        await admin.start(
            create(JOBS, partitions=partitions, configs={"segment.bytes": self.chance.choice(SEGMENTS)})
        )
        if self.has_letters:
            codec = self.chance.choice(("producer", "lz4"))
            configs = {
                "errors.deadletterqueue.group.enable": "true",
                "segment.bytes": "16384",
                "compression.type": codec,
            }
            await admin.start(create_letters(LETTERS, partitions=self.chance.choice((1, 2)), configs=configs))
            self.copies = self.chance.random() < 0.5
            letters = (
                ConfigOp("errors.deadletterqueue.topic.name", LETTERS),
                ConfigOp("errors.deadletterqueue.copy.record.enable", str(self.copies).lower()),
            )
            groups = tuple(ConfigAlteration("group", each, letters) for each in GROUP_NAMES)
            await self.submit(AlterConfigs(groups))
        if self.read_committed:
            ops = (ConfigOp("share.isolation.level", "read_committed"),)
            await self.submit(AlterConfigs((ConfigAlteration("group", GROUP_NAMES[0], ops),)))
        for group in GROUP_NAMES[: self.chance.choice((1, 2))]:
            for index in range(partitions):
                where = (JOBS, index)
                self.books[group, index] = book = ShareGroupModel(
                    group,
                    where,
                    self.history,
                    lock_s=self.lock_s,
                    limit=self.limit,
                    read_committed=self.read_committed and group == GROUP_NAMES[0],
                )
                for number in range(WORKERS):
                    self._employ_worker(book, f"{group}{index}{number}")
        if self.shelf is not None:
            await admin.start(create(SHELF, partitions=1, configs=CONFIGS))
            self.books[READERS, 0] = book = ShareGroupModel(
                READERS,
                (SHELF, 0),
                self.history,
                lock_s=self.lock_s,
                limit=self.limit,
                read_committed=False,
            )
            book.compacted = True
            for number in range(WORKERS):
                self._employ_worker(book, f"{READERS}{number}")
        self.loop.main.start(self._watch())
        await self.cluster.until(
            lambda: all(each.first_offset >= 0 for each in self.books.values()), SERVED_S, "groups begin"
        )
        for index in range(partitions):
            self._produce(index)
        self.operator = ShareOperator(
            list(self.books.values()),
            leader=self._leading,
            reign=lambda book, broker: self._reign(book, host_name(broker)),
            start=lambda broker, work: self.cluster.nodes[broker.config.node_id].host.start(work),
            chance=self.loop.stream("operator"),
        )
        self.loop.host("operator").start(self.operator.run())

    def _leading(self, book: ShareGroupModel) -> BrokerContext | None:
        """Return the broker that leads the jobs of a group, if it runs."""
        leader = self.leader_of(book)
        return next((each for each in self._contexts() if each.config.node_id == leader), None)

    def _employ_worker(self, book: ShareGroupModel, name: str) -> None:
        worker = ShareWorker(
            name,
            self.cluster.bootstrap,
            book=book,
            reign=partial(self._reign, book),
            chance=self.loop.stream(f"client/{name}"),
        )
        self.workers.append(worker)
        self.loop.host(name).start(worker.run())

    def _produce(self, index: int) -> None:
        name = f"jobs{index}"
        chance = self.loop.stream(f"client/{name}")
        client = Client(name, self.cluster.bootstrap)
        producer = Producer(client, JOBS, index, history=self.history, chance=chance)
        producer.pause_s = chance.choice((0.02, 0.1))
        self.jobs.append(producer)
        self.loop.host(name).start(producer.run())

    # -- what is inside ------------------------------------------------------------------------------------

    def _contexts(self) -> Iterator[BrokerContext]:
        for each in self.cluster.running():
            if each.node is not None and each.node.broker is not None:
                yield each.node.broker.context

    def _reign(self, book: ShareGroupModel, host: str) -> Reign:
        """Return the object of a host's leadership, or None if it does not lead."""
        for context in self._contexts():
            if host_name(context) == host:
                for key, led in led_by(context):
                    if (key.group_id, key.partition) == (book.group, book.where[1]) and led.over is None:
                        return led
        return None

    async def _watch(self) -> None:
        """Look at all leaders and coordinators, again and again."""
        while not self.is_set_back:
            for context in self._contexts():
                for key, led in led_by(context):
                    if (book := self.books.get((key.group_id, key.partition))) is not None:
                        book.looked_at_leader(led)
                if context.made_share_states is not None:
                    self._look_at_states(context)
            self._write_transactions()
            self._write_to_shelf()
            await asyncio.sleep(LOOK_S)

    def _write_to_shelf(self) -> None:
        found = self.cluster.leader_replica(SHELF, 0)
        if self.shelf is not None and not self.calm and found is not None:
            found[0].host.call(self.shelf.step, found[1])

    def _write_transactions(self) -> None:
        """Write a batch or marker of each ledger, whose transactions end in the calm."""
        found = self.cluster.leader_replica(JOBS, 0)
        if found is None or not self.has_transactions:
            return
        for each in self.ledgers:
            if self.calm:
                found[0].host.call(each.finish, found[1])
            elif self.chance.random() < TRANSACTIONAL:
                found[0].host.call(each.step, found[1])

    def _look_at_states(self, context: BrokerContext) -> None:
        for leader_epoch, key, state in context.share_states.committed_states():
            book = self.books.get((key.group_id, key.partition))
            if book is not None:
                epochs = (leader_epoch, state.snapshot_epoch, state.state_epoch, state.leader_epoch)
                book.looked_at_state(epochs, state.start_offset)

    # -- trouble -------------------------------------------------------------------------------------------

    def book(self) -> ShareGroupModel:
        return self.chance.choice(list(self.books.values()))

    def leader_of(self, book: ShareGroupModel) -> int:
        """Return the broker that leads the jobs of a group; -1 if there is none."""
        state = self.cluster.state(*book.where)
        return -1 if state is None else state.leader

    def coordinator_of(self, book: ShareGroupModel) -> int:
        """Return the share coordinator of a group's partition; -1 if there is none."""
        image = self.cluster.newest_image()
        keys = [
            str(key)
            for context in self._contexts()
            for key, _ in led_by(context)
            if (key.group_id, key.partition) == (book.group, book.where[1])
        ]
        try:
            return share_coordinator(image, keys[0]) if image is not None and keys else -1
        except KafkaError:
            return -1

    async def just_when(self, book: ShareGroupModel) -> None:
        """Wait for a while, or until something has just happened to the records of a group."""
        events = (book.acquired, book.acknowledging, book.answered, book.answered_hand)
        event = self.chance.choice((*events, book.archiving) if self.has_letters else events)
        await self.moment(event, 2.0)

    def victim(self, book: ShareGroupModel) -> int:
        return self.leader_of(book) if self.chance.random() < 0.5 else self.coordinator_of(book)

    async def strike(self) -> None:
        """Inject a fault into the cluster, at a bad moment."""
        book = self.book()
        acts = (
            *(self.die, self.die, self.hang, self.part, self.outlive, self.outlive),
            *(self.go, self.blackout, self.delete, self.jump, self.reset),
        )
        act = self.chance.choice(acts)
        await self.just_when(book)
        victim = self.victim(book)
        if victim >= 0:
            self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
            await act(book, victim)

    async def die(self, book: ShareGroupModel, victim: int) -> None:
        """Crash a leader or coordinator."""
        self.cluster.crash(victim, power_loss=self.power())
        await asyncio.sleep(self.a_while(0.0, 0.3, 2.0))
        self.cluster.start(victim)

    async def hang(self, book: ShareGroupModel, victim: int) -> None:
        """Let a leader or coordinator stand still, perhaps until others have taken over."""
        self.cluster.pause(victim)
        await asyncio.sleep(self.a_while(0.3, 1.0, 4.0))
        self.cluster.resume(victim)

    async def part(self, book: ShareGroupModel, victim: int) -> None:
        """Cut or clog the link between the leader and the coordinator."""
        leader, other = self.leader_of(book), self.coordinator_of(book)
        if leader == other or min(leader, other) < 0:
            other = next(each for each in self.cluster.nodes if each != leader)
        hosts = [self.cluster.nodes[each].host for each in (leader, other) if each >= 0]
        if len(hosts) == 2:
            self.chance.shuffle(hosts)
            cuts = self.chance.random() < 0.5
            (self.loop.cut if cuts else self.loop.clog)(hosts[0], hosts[1])
        await asyncio.sleep(self.a_while(0.3, 2.0, 6.0))
        self.loop.heal()

    async def outlive(self, book: ShareGroupModel, victim: int) -> None:
        """Have a leader lose its lead without knowing it, while a write of it is on its way to the coordinator."""
        leader, coordinator = self.leader_of(book), self.coordinator_of(book)
        controller = self.cluster.last_image().controller_id
        if min(leader, coordinator) < 0 or len({leader, coordinator, controller}) < 3:
            return
        hosts = {each: self.cluster.nodes[each].host for each in (leader, coordinator, controller)}
        self.loop.clog(hosts[leader], hosts[coordinator])
        self.loop.clog(hosts[leader], hosts[controller])
        self.loop.clog(hosts[controller], hosts[leader])
        before, until = book.newest_epoch, self.loop.time() + MOVED_S
        await self.cluster.until(
            lambda: book.newest_epoch > before or self.loop.time() > until, MOVED_S + 1, "time passes"
        )
        self.loop.heal(hosts[leader], hosts[coordinator])
        await asyncio.sleep(self.a_while(0.1, 0.5))
        self.loop.heal()

    async def go(self, book: ShareGroupModel, victim: int) -> None:
        """Restart a broker gently: its leaderships move on while it runs."""
        self.cluster.leave(victim)
        await asyncio.sleep(self.a_while(0.3, 1.0))
        self.cluster.start(victim)

    async def blackout(self, book: ShareGroupModel, victim: int) -> None:
        """Crash all brokers."""
        self.cluster.crash(*self.cluster.nodes, power_loss=self.power())
        await asyncio.sleep(self.a_while(0.0, 0.3))
        self.cluster.start()

    async def delete(self, book: ShareGroupModel, victim: int) -> None:
        """Delete records, whether they are settled or not."""
        found = self.cluster.leader_replica(*book.where)
        if found is not None:
            leader, replica = found
            leader.host.call(self._delete, replica, self.chance.random())
            if self.chance.random() < 0.5:
                await self.moment(book.answered, 0.2)
                await self.blackout(book, victim)  # before the log start is in a checkpoint
            await asyncio.sleep(self.a_while(0.1, 0.5))

    def _delete(self, replica: Partition, share: float) -> None:
        """Delete so much of what is committed."""
        start, high_watermark = replica.log_start_offset, replica.high_watermark
        try:
            replica.delete_records(start + int(share * (high_watermark - start)))
        except KafkaError:
            return  # another replica leads by now
        for each in self.books.values():
            if each.where == (replica.topic, replica.index):
                each.deleted_below = max(each.deleted_below, replica.log_start_offset)

    async def reset(self, book: ShareGroupModel, victim: int) -> None:
        """Set where a group begins, while its members go on."""
        found = self.cluster.leader_replica(*book.where)
        if found is not None:
            start_offset = self.chance.randint(found[1].log_start_offset, found[1].high_watermark)
            await self.loop.host("admin").start(self._alter_offset(book, start_offset))
            where = book.group, book.where[1]
            epochs = [
                state.state_epoch
                for each in (context.share_states for context in self._contexts())
                for key in filter(lambda it: (it.group_id, it.partition) == where, each.keys())
                if (state := each.last_state(key)) is not None  # a leader may write at any time
            ]
            book.reset(start_offset, max(epochs))

    async def _alter_offset(self, book: ShareGroupModel, start_offset: int) -> None:
        client = Client("reset", self.cluster.bootstrap, timeout_s=5.0)
        member = ShareMember(client, "reset", book.where, group=book.group)
        while True:
            try:
                return await member.alter_offset(start_offset)
            except AWAY:
                await asyncio.sleep(RETRY_S)

    async def jump(self, book: ShareGroupModel, victim: int) -> None:
        """Let a wall clock jump by days, and come back later."""
        host = self.cluster.nodes[victim].host
        host.set_clock(self.chance.choice((-3, 1, 400)) * DAY_MS)
        self.loop.call_later(self.a_while(0.5, 3.0), host.set_clock, 0)

    # -- the end -------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Heal everything, and wait until calm members have settled all records."""
        self.loop.heal()
        self.calm = True
        for worker in self.workers:
            worker.calm = True
        await self.whole()
        for each in self.jobs:
            each.stopping = True
        self.operator.stopping = True
        await self.cluster.until(lambda: self.operator.done, SERVED_S, "the operator has its last answer")
        await self.cluster.until(lambda: all(each.done for each in self.jobs), SERVED_S, "all is produced")
        await self._until_settled()
        if self.reads_late:
            await self.read_late(next(each for each in self.books.values() if each.where[0] == JOBS))
            await self._until_settled()  # a coordinator may have written markers again
        for worker in self.workers:
            worker.stopping = True
        if self.sets_back:
            await self.set_back(self.book())

    async def read_late(self, book: ShareGroupModel) -> None:
        """Keep a leader from reading a new group's state until its member has waited for a while.

        The member is not woken then, so it must look once more before its time is over. The topic is not compacted.
        """
        client = Client("late", self.cluster.bootstrap, timeout_s=SETTLED_S)
        member, host = ShareMember(client, "late", book.where, group="late"), self.loop.host("late")
        leader, replica = self._led(*book.where)

        async def join() -> None:
            await client.refresh(book.where[0])
            await member.alter_offset(replica.log_start_offset)
            await member.join()

        await host.start(join())
        topic_id = encode_uuid(self.cluster.last_image().topics[book.where[0]].topic_id)
        key = f"late:{topic_id}:{book.where[1]}"
        coordinator = self.cluster.nodes[share_coordinator(self.cluster.last_image(), key)]
        if coordinator is leader or replica.log_start_offset == replica.high_watermark:
            return
        (self.loop.cut if self.chance.random() < 0.5 else self.loop.clog)(leader.host, coordinator.host)
        self.loop.call_later(LATE_S, self.loop.heal)
        try:
            answer = await host.start(member.fetch(max_wait=int(LONG_WAIT_S * 1_000)))
        except AWAY:  # the leader has no session with the controller now, and closes its clients' connections
            return await self.whole()
        parts = [part for topic in answer.responses for part in topic.partitions]
        if any(part.error_code for part in parts):
            return await self.whole()  # the cut has moved the lead, and the member hears it
        self.counts["late"] = 1
        if not any(part.acquired_records for part in parts):
            self.skipped.append(f"a member of a new group waits for {LONG_WAIT_S} s beside {book.where}")

    async def set_back(self, book: ShareGroupModel) -> None:
        """Have an administrator set a group back once its members are gone, and a new member read all records again.

        The leader is the former one, and has the former start offset in memory.
        """
        self.is_set_back = True
        _, replica = self._led(*book.where)
        left = set(range(replica.log_start_offset, replica.high_watermark))
        batches = read_batches(replica.log, replica.high_watermark)
        if book.read_committed:
            left -= withheld_in(batches)
        if book.compacted:
            left &= newest_in(batches)
        client = Client("auditor", self.cluster.bootstrap)
        member = ShareMember(client, "auditor", book.where, group=book.group)

        async def read_again() -> None:
            await client.refresh(book.where[0])
            await member.alter_offset(min(left, default=0))
            await member.join()
            until = self.loop.time() + SETTLED_S
            while left and self.loop.time() < until:
                left.difference_update(await member.take())

        await self.loop.host("auditor").start(read_again())
        if left:
            self.skipped.append(f"{book.group} was set back, and never gets {sorted(left)[:5]}")

    def _led(self, topic: str, index: int) -> tuple[SimNode, Partition]:
        """Return the node that leads a partition, and its replica; the cluster is whole."""
        found = self.cluster.leader_replica(topic, index)
        assert found is not None, "the cluster is whole"
        return found

    async def _until_settled(self) -> None:
        await self.cluster.until(
            lambda: all(map(self._is_settled, self.books.values())), SETTLED_S, "every record is settled"
        )

    def _is_settled(self, book: ShareGroupModel) -> bool:
        if self.has_transactions and any(each.is_open for each in self.ledgers):
            return False
        found = self.cluster.leader_replica(*book.where)
        led = None if found is None else self._reign(book, found[0].host.name)
        if found is None or led is None or not led.is_loaded:
            return False
        return led.machine.start_offset >= found[1].log_end_offset  # what is not committed yet may come still

    def judge(self) -> list[str]:
        faults = super().judge() + self.skipped
        for book in self.books.values():
            _, replica = self._led(*book.where)
            book.log_start_offset = replica.log_start_offset
            batches = read_batches(replica.log, replica.high_watermark)
            withheld = withheld_in(batches)
            values = values_of(batches)
            newest = newest_in(batches) if book.compacted else ()
            faults += book.judge(values, withheld, replica.high_watermark, newest=newest)
            if self.has_letters and not book.compacted:
                letters = self._letters(book)
                counts = Counter(offset for offset, _ in letters)
                faults += book.judge_letters(counts, withheld, replica.high_watermark)
                faults += [
                    f"{book.group} of {book.where}: the dead letter of {offset} has the value {value!r}"
                    for offset, value in letters
                    if offset in values.keys() - withheld
                    and offset >= book.deleted_below
                    and value != (values[offset] if self.copies else None)
                ]
        return faults

    def _letters(self, book: ShareGroupModel) -> list[tuple[int, bytes | None]]:
        """Return the offset and the value of each dead letter of a group's partition."""
        found: list[tuple[int, bytes | None]] = []
        for index in range(len(self.cluster.last_image().topics[LETTERS].partitions)):
            _, replica = self._led(LETTERS, index)
            view = memoryview(read_batches(replica.log, replica.high_watermark))
            for position, header in iter_headers(view):
                for record in iter_records(view[position : position + header.length]):
                    said = {name: value or b"" for name, value in record.headers}
                    whose = said["__dlq.errors.group"].decode(), int(said["__dlq.errors.partition"])
                    if whose == (book.group, book.where[1]):
                        found.append((int(said["__dlq.errors.offset"]), record.value))
        return found


def host_name(context: BrokerContext) -> str:
    return f"node{context.config.node_id}"


def led_by(context: BrokerContext) -> list[tuple[Any, LedSharePartition]]:
    """Return the share partitions that a broker leads, with their keys; looking makes none."""
    made = context.made_share_partitions
    return [] if made is None else made.all()


async def share_groups(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Strike share groups for some virtual seconds, again and again. Raises AssertionError."""
    scene = ShareGroups(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.strike()
        scene.cluster.start()
        await scene.cluster.until_ready(seconds=SERVED_S)
    await scene.settle()
    report = await scene.end()
    seen = {
        "delivery": sum(each.deliveries for each in scene.books.values()),
        "redelivery": sum(each.again for each in scene.books.values()),
        "refusal": sum(each.refused for each in scene.books.values()),
        "removed": sum(each.removed for each in scene.books.values()),
        "settled": sum(len(each.settled) for each in scene.books.values()),
        "letter": sum(each.letters for each in scene.books.values()),
        "released-by-hand": scene.operator.released,
        "archived-by-hand": scene.operator.archived,
    }
    return replace(report, faults={**report.faults, **scene.counts, **seen})
