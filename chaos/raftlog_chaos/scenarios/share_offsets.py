"""Administrators set and delete the offsets of a share group, and delete the group, while brokers crash (KIP-932).

After a change that was answered, the group begins where the change says: the record there is delivered and accepted
again, though it was accepted before. A leader may still deliver what it knows from before the change. But the former
member, which still has records and a session, can accept none of them. Records before the start offset do not count:
whatever is said about them is answered without an error, as in Apache Kafka.

A deleted group is made again under its name. Requests that the former group's coordinator has sent to the share
coordinators come late, before or after the new group has states, and change nothing. In the end the group is deleted,
and its states with it.

Other groups are new meanwhile. Their states have no start offset, as no member has read yet: such a group begins where
its config says in all partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from raftlog.base.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRecordState,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, NO_OFFSET, SHARE_GROUP_STATE_TOPIC
from raftlog.broker.coordination.group_share_states import delete_question, initialize_question
from raftlog.broker.handlers.shared.share_changes import share_keys
from raftlog.metadata.controller_api import AlterConfigs, ConfigAlteration, ConfigOp
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.eligible_leaders import Leaving
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.producer import Producer
from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, Client, create_topic, shapes
from raftlog_chaos.workloads.share_member import ACCEPT, ShareMember

JOBS: Final = "jobs"
GROUP: Final = "crew"
WIDE: Final = "wide"
WIDTH: Final = 4
"""The partitions of a topic that new groups join."""
RETRY_S: Final = 0.2
JOIN_S: Final = 60.0
"""A new member has its partition within this, virtual seconds: faults are over sooner."""

LATE_S: Final = 1.0
"""A late request is given up after this, virtual seconds: its broker may be down."""

READ_S: Final = 30.0
"""After the last fault, members read where the change says within this, virtual seconds."""

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "10",
}

REFUSED: Final = {
    InvalidRecordState.code,
    InvalidRequest.code,
    FencedLeaderEpoch.code,
    FencedStateEpoch.code,
}
"""The errors of acknowledgements that have no effect, for certain."""

Outcome = Callable[[Any], int]
"""Returns the error code of a response's only part."""


class ShareOffsets(Leaving):
    """The stage: a topic of jobs, a share group without members, and its administrator."""

    def __init__(self, loop: SimLoop) -> None:
        chance = loop.stream("share-offsets")
        super().__init__(
            loop,
            settings={
                **SETTINGS,
                "share.coordinator.state.topic.num.partitions": chance.choice(("1", "2")),
                "share.coordinator.snapshot.update.records.per.snapshot": chance.choice(("3", "20")),
                "share.coordinator.write.timeout.ms": chance.choice(("1000", "5000")),
            },
        )
        self.admin = Client("admin", self.cluster.bootstrap, timeout_s=8.0)
        self.changes = self.refused = self.members = self.deletions = self.late = self.fresh = 0

    async def begin(self) -> None:
        await super().begin()
        self.pace([2.0] * len(self.producers))
        host = self.loop.host("admin")
        await host.start(create_topic(Client("books", self.cluster.bootstrap), JOBS, partitions=1))
        await host.start(create_topic(Client("books", self.cluster.bootstrap), WIDE, partitions=WIDTH))
        ops = (ConfigOp("share.auto.offset.reset", "earliest"),)
        await self.submit(AlterConfigs((ConfigAlteration("group", GROUP, ops),)))
        jobs = Client("jobs", self.cluster.bootstrap)
        self.jobs = Producer(jobs, JOBS, 0, history=self.history, chance=self.loop.stream("client/jobs"))
        self.jobs.pause_s = 0.05
        self.loop.host("jobs").start(self.jobs.run())
        await self.cluster.until(lambda: self.end_offset > 10, SERVED_S, "there are jobs")

    @property
    def end_offset(self) -> int:
        found = self.cluster.leader_replica(JOBS, 0)
        return 0 if found is None else found[1].high_watermark

    # -- a round -------------------------------------------------------------------------------------------

    async def round(self) -> None:
        """Change the offsets of a group that has read some records, and see where it begins."""
        host = self.loop.host(f"round{self.changes}")
        await host.start(self._round())
        self.changes += 1

    async def _round(self) -> None:
        former = await self.joined()
        held = await self.read_some(former)
        await self.left(former)
        trouble = self.loop.main.start(self.trouble())
        joining = asyncio.ensure_future(self.new_group(f"new{self.changes}"))
        deletions = self.deletions
        first = await self.changed()
        is_new = self.deletions > deletions
        if is_new and self.chance.random() < 0.5:
            await self.late_requests(former.member_epoch)
        current = await self.joined()
        if is_new:
            await self.late_requests(former.member_epoch)
        await self.late_words(former, [each for each in held if each[1] >= first])
        await trouble
        await self.cluster.until_ready(seconds=SERVED_S)
        await self.begins_at(current, first)
        await self.left(current)
        await asyncio.wait([joining], timeout=JOIN_S)
        assert joining.done(), f"a new group has no states of its partitions within {JOIN_S:.0f} s"
        former.client.close()
        current.client.close()

    async def joined(self) -> ShareMember:
        """Return a new member that has its partition."""
        self.members += 1
        name = f"member{self.members}"
        client = Client(name, self.cluster.bootstrap, timeout_s=8.0)
        member = ShareMember(client, name, (JOBS, 0), group=GROUP)
        joining = asyncio.ensure_future(persist(member.join))
        await asyncio.wait([joining], timeout=JOIN_S)
        assert joining.done(), f"a member of the group gets no partition within {JOIN_S:.0f} s"
        await persist(partial(client.refresh, JOBS))
        return member

    async def new_group(self, name: str) -> None:
        """Join a new group until it has states of all partitions, and blame a state that begins anywhere already."""
        client = Client(name, self.cluster.bootstrap, timeout_s=8.0)
        member = ShareMember(client, name, (WIDE, 0), group=name)
        while len(starts := self._starts(name)) < WIDTH:
            await persist(member.join)
            await asyncio.sleep(RETRY_S)
        client.close()
        self.fresh += 1
        if set(starts.values()) != {NO_OFFSET}:
            self.history.blame(f"group {name} has not read yet, and begins at {starts}")

    def _starts(self, group: str) -> dict[int, int]:
        """Return the start offset in each state that share coordinators have of a group, by partition."""
        running = (each.node for each in self.cluster.running())
        return {
            key.partition: state.start_offset
            for states in (each.broker.context.share_states for each in running if each and each.broker)
            for key in states.keys()  # noqa: SIM118
            if key.group_id == group and (state := states.last_state(key))
        }

    async def read_some(self, member: ShareMember) -> list[tuple[int, int]]:
        """Fetch records, and accept the first of them; return what the member still has."""
        held: list[tuple[int, int]] = []
        while not held:
            held = await self.fetched(member, max_records=self.chance.choice((3, 10)))
        if self.chance.random() < 0.7:
            first, last = held.pop(0)
            await self.told(member, first, last)
        return held

    async def fetched(self, member: ShareMember, **fields: Any) -> list[tuple[int, int]]:
        """Return the first and last offsets that a member acquires."""
        try:
            answer = await member.fetch(max_wait=100, **fields)
            parts = [each for topic in answer.responses for each in topic.partitions]
            if not answer.error_code and not any(each.error_code for each in parts):
                return [
                    (int(it.first_offset), int(it.last_offset))
                    for each in parts
                    for it in each.acquired_records
                ]
        except AWAY:
            pass
        await asyncio.sleep(RETRY_S)
        member.epoch = 0
        member.client.close()
        await persist(partial(member.client.refresh, JOBS))
        return []

    async def told(self, member: ShareMember, first: int, last: int) -> bool | None:
        """Accept some records; return whether that was done, None if it is not known."""
        try:
            answer = await member.acknowledge((first, last, [ACCEPT]))
        except AWAY:
            return None
        codes = {int(each.error_code) for topic in answer.responses for each in topic.partitions} - {0}
        if answer.error_code or codes & REFUSED:
            return False
        return None if codes else True

    async def left(self, member: ShareMember) -> None:
        """Let a member leave the group. Its share session stays."""
        make = request_builders(ApiKey.SHARE_GROUP_HEARTBEAT, 1)
        message = make.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.name, member_epoch=-1, subscribed_topic_names=None
        )
        await self.asked(
            ApiKey.SHARE_GROUP_HEARTBEAT, 1, message, lambda answer: int(answer.error_code), gone=(25,)
        )

    async def late_words(self, member: ShareMember, held: list[tuple[int, int]]) -> None:
        """Accept records from before the change, whether or not the locks are over."""
        for first, last in held:
            is_accepted = await self.told(member, first, last)
            if is_accepted:
                self.history.blame(
                    f"{member.name} accepted {first} to {last} from before a change of offsets"
                )
            self.refused += is_accepted is False

    async def late_requests(self, member_epoch: int) -> None:
        """Send what the coordinator of a deleted group may have sent since a member had this epoch."""
        image = self.cluster.newest_image()
        chosen = [each for each in self.cluster.running() if each.node and each.node.broker]
        if image is None or not chosen:
            return
        node = self.chance.choice(chosen).node
        assert node is not None and node.broker is not None
        topic_id = image.topics[JOBS].topic_id
        keys = tuple(share_keys(GROUP, {topic_id: (0,)}))
        has_left = member_epoch + 1
        questions = [
            initialize_question(has_left, {topic_id: {0: self.end_offset}}),
            delete_question(has_left + 1),
        ]
        self.chance.shuffle(questions)
        for each in questions:
            asked = self.cluster.nodes[node.broker.context.config.node_id].host.start(
                node.broker.context.share_states.ask(each, keys)
            )
            await asyncio.wait([asked], timeout=LATE_S)
            self.late += asked.done()
            asked.cancel()

    async def begins_at(self, member: ShareMember, first: int) -> None:
        """Read until the record at an offset is accepted, or may be after a lost response."""
        end = self.loop.time() + READ_S
        while self.loop.time() < end:
            for begin, last in await self.fetched(member, max_records=5):
                if await self.told(member, begin, last) is not False and begin <= first <= last:
                    return
        self.history.blame(f"the group does not begin at {first}, where its offset was set")

    # -- the administrator ---------------------------------------------------------------------------------

    async def changed(self) -> int:
        """Change the offsets once or twice, until that is answered; return where the group begins."""
        acts = (self.alter, self.alter, self.delete_offsets, self.delete_group)
        if self.chance.random() < 0.3:
            await self.alter()
        return await self.chance.choice(acts)()

    async def alter(self) -> int:
        make = request_builders(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0)
        first = self.chance.randrange(min(self.end_offset, self.chance.choice((1, 10, 100))) or 1)
        partition = make.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=first)
        topic = make.AlterShareGroupOffsetsRequestTopic(topic_name=JOBS, partitions=(partition,))
        message = make.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=(topic,))

        def outcome(answer: Any) -> int:
            codes = [int(each.error_code) for it in answer.responses for each in it.partitions]
            return int(answer.error_code) or codes[0]

        await self.asked(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, message, outcome)
        return first

    async def delete_offsets(self) -> int:
        make = request_builders(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0)
        topic = make.DeleteShareGroupOffsetsRequestTopic(topic_name=JOBS)
        message = make.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=(topic,))

        def outcome(answer: Any) -> int:
            return int(answer.error_code) or int(answer.responses[0].error_code)

        gone = (UnknownTopicOrPartition.code,)
        await self.asked(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, message, outcome, gone=gone)
        return 0

    async def delete_group(self) -> int:
        message = request_builders(ApiKey.DELETE_GROUPS, 2).DeleteGroupsRequest(groups_names=(GROUP,))

        def outcome(answer: Any) -> int:
            return int(answer.results[0].error_code)

        await self.asked(ApiKey.DELETE_GROUPS, 2, message, outcome, gone=(GroupIdNotFound.code,))
        self.deletions += 1
        return 0

    async def forget(self) -> None:
        """Delete the group, and wait until its states are deleted with it."""
        await self.loop.host("end").start(self.delete_group())
        await self.cluster.until(
            lambda: not self._starts(GROUP), SERVED_S, "states are deleted with their group"
        )

    async def asked(
        self, api_key: int, version: int, message: Any, outcome: Outcome, *, gone: tuple[int, ...] = ()
    ) -> None:
        """Ask the group's coordinator until it succeeds; after a lost response an error of `gone` is success."""
        is_lost = False
        find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=GROUP, key_type=0)
        while True:
            try:
                where = await self.admin.ask_any(FIND_COORDINATOR, find)
                if where.error_code == 0:
                    is_last = is_lost
                    is_lost = True
                    answer = await self.admin.ask((where.host, where.port), api_key, message, version=version)
                    code = outcome(answer)
                    if code == 0 or (is_last and code in gone):
                        return
            except AWAY:
                pass
            await asyncio.sleep(RETRY_S)

    # -- trouble -------------------------------------------------------------------------------------------

    async def trouble(self) -> None:
        """Crash or hang a broker that takes part, at any moment of the change, or none."""
        topic = self.chance.choice((JOBS, SHARE_GROUP_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, ""))
        await asyncio.sleep(self.a_while(0.0, 0.05, 0.5))
        state = self.cluster.state(topic, 0) if topic else None
        if state is None or state.leader < 0:
            return
        if self.chance.random() < 0.5:
            self.cluster.crash(state.leader, power_loss=self.power())
            await asyncio.sleep(self.a_while(0.0, 0.5, 2.0))
            self.cluster.start(state.leader)
        else:
            self.cluster.pause(state.leader)
            await asyncio.sleep(self.a_while(0.3, 1.5, 3.0))
            self.cluster.resume(state.leader)


async def persist(act: Callable[[], Any]) -> None:
    """Try again until brokers answer."""
    while True:
        try:
            await act()
            return
        except AWAY:
            await asyncio.sleep(RETRY_S)


async def share_offsets(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Change the offsets of a share group for some virtual seconds. Raises AssertionError."""
    scene = ShareOffsets(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.round()
    await scene.whole()
    scene.jobs.stopping = True
    await scene.cluster.until(lambda: scene.jobs.done, SERVED_S, "all is produced")
    await scene.forget()
    report = await scene.end()
    seen = {
        "change": scene.changes,
        "refusal": scene.refused,
        "late request": scene.late,
        "new group": scene.fresh,
    }
    return replace(report, faults={**report.faults, **seen})
