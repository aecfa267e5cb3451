"""The groups of one partition, by name: found or created, migrated between the types, kept or dropped.

Only this module holds them. The coordinator handles requests, the expiration the passing of time. Both then call
`refresh`, which answers what is committed and notes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from raftlog.base.config import NodeConfig
from raftlog.base.errors import GroupIdNotFound, InvalidGroupId, KafkaError, PolicyViolation
from raftlog.base.machine import Decision, Runner, ignore_reply
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.classic.group import ClassicGroup
from raftlog.coordinator.consumer.consumer_group import ConsumerGroup
from raftlog.coordinator.consumer.consumer_membership import consumer_group_tombstones
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.coordinator.group import Group, GroupChanged, GroupRecord, Membership, apply
from raftlog.coordinator.group_memory import GROUP_BYTES, GroupMemory, HasMemoryFor, group_bytes
from raftlog.coordinator.partition_writer import PartitionWriter
from raftlog.coordinator.timer import CoordinatorTimer, Moment

if TYPE_CHECKING:
    from raftlog.coordinator.group_history import HistoryMemory
    from raftlog.coordinator.share.share_group import ShareGroup

AnyGroup: TypeAlias = "ClassicGroup | ConsumerGroup | ShareGroup"

EPOCHS: Final = 2**30
"""The first epochs of share groups are below: an epoch has 31 bits, and a group may have as many more."""


def check_group_id(group_id: str) -> None:
    """Raise InvalidGroupId for an id that is too long. Check it before any use of the id: hashing takes time."""
    if len(group_id) > NAME_MAX_CHARS:
        raise InvalidGroupId(f"a group id has at most {NAME_MAX_CHARS} characters")


def _always(*asked: int) -> bool:
    return True


class GroupCapacity(NamedTuple):
    """The capacity left in this broker: for one more group, one more pending member id, more bytes.

    `history`: for the events of its groups; None: a memory of its own.
    """

    may_add: Callable[[], bool] = _always
    may_add_pending_join: Callable[[], bool] = _always
    has_memory_for: HasMemoryFor = _always
    history: HistoryMemory | None = None


class Groups:
    """The groups with state or waiting requests."""

    def __init__(
        self,
        config: NodeConfig,
        journal: PartitionWriter,
        *,
        room: GroupCapacity,
        topics: TopicRegexResolver,
    ) -> None:
        from raftlog.coordinator.group_history import (
            GroupHistory,
        )  # a node needs none before it leads a partition

        self.timer = CoordinatorTimer(room.may_add_pending_join)
        self.capacity = room
        self.memory = GroupMemory(config, room.has_memory_for)
        self.topics = topics
        self.history = GroupHistory(room.history)
        self.committed_offset = 0
        self._appended_offset = 0
        self._config = config
        self._journal = journal
        self._groups: dict[str, AnyGroup] = {}
        self._waiting: dict[str, AnyGroup] = {}
        self._due: list[tuple[int, str]] = []
        """A heap of waiting groups: the journal offset that their first decision waits for."""

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(self._groups.values())

    def ids(self) -> list[str]:
        """Return the names of all groups."""
        return list(self._groups)

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group with known state."""
        return self._groups.get(group_id)

    def recount_memory_bytes(self) -> int:
        """Recount the memory of all groups: the sum in `memory` must be equal."""
        offered = sum(each.protocol_bytes for each in self if isinstance(each, ClassicGroup))
        return offered + sum(group_bytes(each.runner.tail) for each in self)

    def find(self, group_id: str) -> AnyGroup:
        """Return a group, or an empty group of that name that is kept once it has state.

        Raise InvalidGroupId for a name that is too long.
        """
        check_group_id(group_id)
        return self._groups.get(group_id) or self._classic(self._runner(Group(group_id)))

    def check_capacity(self, group_id: str) -> None:
        """Raise PolicyViolation for a group beyond the limit."""
        if group_id in self._groups:
            return
        if not self.capacity.may_add():
            raise PolicyViolation(f"raftlog.group.max.groups is {self._config.raftlog_group_max_groups}")
        self.memory.check_growth(GROUP_BYTES, is_new=True)

    def load(self, group: Group, *, now: float) -> None:
        """Take over a committed group. Every member gets a whole session."""
        runner = self._runner(group)
        taken: AnyGroup
        if group.share is not None:
            taken = self._share(runner)
        else:
            taken = self._classic(runner) if group.consumer is None else self._consumer(runner)
        self._groups[group.group_id] = taken
        self.memory.on_loaded(group)
        taken.on_loaded(now)

    # -- types ---------------------------------------------------------------------------------------------

    def _runner(self, group: Group) -> Runner[Group]:
        return Runner(group, self._apply, self._append)

    def _apply(self, group: Group, records: tuple[GroupRecord, ...]) -> Group:
        after = apply(group, records)
        self.memory.measure(group, after, records)
        return after

    def _append(self, records: tuple[GroupRecord, ...]) -> int:
        """Append what was applied just now. Raise PolicyViolation if there is no room for it."""
        self.memory.check()
        self._appended_offset = end_offset = self._journal.append(records)
        self.memory.commit_measured()
        return end_offset

    def _first_share_epoch(self) -> int:
        """Return the epoch for a new share group, above every epoch of former groups of its name.

        Share coordinators then recognise requests for a former group that come late. An epoch takes a record of its
        own, so the number of records before a group is above them. It begins again every 2^30 records.
        """
        return max(self._appended_offset, self.committed_offset) % EPOCHS

    def apply_appended(self, group: AnyGroup, records: tuple[GroupRecord, ...], end_offset: int) -> None:
        """Apply records that are in the journal already to a group, and refresh it."""
        group.runner.take(records, end_offset)
        self.memory.commit_measured()
        self.refresh(group)

    def _classic(self, runner: Runner[Group]) -> ClassicGroup:
        return ClassicGroup(runner, self.timer, self._config, memory=self.memory, history=self.history)

    def _consumer(self, runner: Runner[Group], former: ClassicGroup | None = None) -> ConsumerGroup:
        return ConsumerGroup(
            runner, self.timer, self._config, topics=self.topics, former=former, history=self.history
        )

    def _share(self, runner: Runner[Group]) -> ShareGroup:
        from raftlog.coordinator.share.share_group import ShareGroup  # a node needs none without share groups

        return ShareGroup(
            runner,
            self.timer,
            self._config,
            topics=self.topics,
            history=self.history,
            first_epoch=self._first_share_epoch,
        )

    def find_share(self, group_id: str) -> ShareGroup:
        """Return a share group, or an empty share group of that name that is kept once it has state.

        Raise InvalidGroupId for a name that is too long, GroupIdNotFound for a group of another type.
        """
        group = self.find(group_id)
        if isinstance(group, ClassicGroup) and group.is_removable:
            return self._share(group.runner)
        if isinstance(group, ClassicGroup | ConsumerGroup):
            raise GroupIdNotFound(f"group {group_id} is not a share group")
        return group

    def try_upgrade(self, group: ClassicGroup, hear: Callable[[ConsumerGroup], None], at: Moment) -> None:
        """Let a classic group's upgrade handle a member of the consumer protocol; the group changes its type if that
        succeeds.
        """
        turned = self._consumer(group.runner, former=group)
        hear(turned)
        if turned.recorded is not None:
            group.close_after_upgrade()
            self.refresh(turned, at)
        else:
            self.refresh(group, at)

    def delete_empty_consumer_group(self, group_id: str) -> None:
        """Delete a consumer group without members: it must not block a classic group, which continues its epochs."""
        group = self._groups.get(group_id)
        state = None if group is None else group.runner.tail.consumer
        if group is None or state is None or state.members:
            return
        empty = GroupChanged(group_id, Membership(generation=state.epoch))
        group.runner.handle(
            lambda _: Decision((*consumer_group_tombstones(group_id, state), empty)), ignore_reply
        )
        if group.runner.tail.consumer is None:
            self._groups[group_id] = self._classic(group.runner)

    # -- the journal ---------------------------------------------------------------------------------------

    def refresh(self, group: AnyGroup, at: Moment | None = None) -> None:
        """Note a group's new type, and answer what is committed.

        `at` comes with all that may change members.
        """
        if isinstance(group, ConsumerGroup) and group.runner.tail.has_metadata:
            assert at is not None, "a group changes its type by what its members do"
            offers, group = group.member_protocols, self._classic(group.runner)
            group.rebalance_after_downgrade(offers, at)
        elif not isinstance(group, ClassicGroup) and group.recorded is None:
            # it has ended, though readers still see it before the commit
            group = self._classic(group.runner)
        group.runner.committed(self.committed_offset)
        waits_for = group.runner.waits_for
        if waits_for is not None:
            if group.group_id not in self._waiting:
                heappush(self._due, (waits_for, group.group_id))
            self._waiting[group.group_id] = group
        if group.is_removable:
            self._groups.pop(group.group_id, None)
        else:
            self._groups[group.group_id] = group

    def committed(self, end_offset: int) -> None:
        """Answer the requests that waited for the high watermark `end_offset`."""
        self.committed_offset = end_offset
        while self._due and self._due[0][0] <= end_offset:
            _, group_id = heappop(self._due)
            runner = self._waiting[group_id].runner
            runner.committed(end_offset)
            if runner.waits_for is not None:
                heappush(self._due, (runner.waits_for, group_id))
            else:
                group = self._waiting.pop(group_id)
                self.refresh(self._groups.get(group_id, group))

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`: the partition is lost."""
        self.history.clear()
        for group in self._groups.values():
            group.on_unloaded(error)
