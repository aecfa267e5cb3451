"""One consumer group: its recorded state (a runner) and the clocks of its members.

Everything that decides is in records, so there is nothing to gather and nobody waits for anybody: each heartbeat is a
decision on the tail, answered once it is committed. Soft are only the deadlines: until when a member's session lasts,
and until when it must have given up what it was told to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlog.base.config import NodeConfig
from raftlog.base.errors import GroupIdNotFound, InconsistentGroupProtocol, KafkaError, UnknownMemberId
from raftlog.base.log import get_logger
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.consumer.draft import Draft, Surroundings
from raftlog.coordinator.consumer.heartbeat import check_beat, decide_beat, decide_fence, decide_leave
from raftlog.coordinator.consumer.regex import Matches
from raftlog.coordinator.consumer.requests import JOINING, LEAVES, Beat
from raftlog.coordinator.consumer.state import ConsumerMembership, MemberState
from raftlog.coordinator.group import Group
from raftlog.coordinator.moment import Moment
from raftlog.coordinator.requests import JoinGroup, MemberRef, SyncGroup
from raftlog.coordinator.sessions import ClockKey, Kind, Sessions
from raftlog.metadata.image import MetadataImage

RETRY_S = 1.0
"""A member whose time is up, and whose end could not be recorded, is looked at again after this."""

log = get_logger(__name__)


class ConsumerGroup:
    """Requests are answered with a reply or a KafkaError, once each."""

    def __init__(
        self,
        runner: Runner[Group],
        sessions: Sessions,
        config: NodeConfig,
        *,
        image: Callable[[], MetadataImage],
        matches: Matches,
    ) -> None:
        self.runner = runner
        self.group_id = runner.tail.group_id
        self._sessions = sessions
        self._config = config
        self._image = image
        self._matches = matches
        self._topics_seen: object = None
        """The topics as the last decision saw them."""

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> ConsumerMembership | None:
        return self.runner.tail.consumer

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not (self.runner.parked or self.runner.tail.exists)

    def shown(self, group: Group) -> Group:
        """What readers are told: just what is recorded."""
        return group

    def take_over(self, now: float) -> None:
        """Begin as its new coordinator: everybody gets a whole session, and its whole time to give up partitions."""
        state = self.recorded
        for member_id in state.members if state else ():
            self._renew(member_id, now)
            self._watch_revocation(member_id, now)

    def stand_down(self, error: KafkaError) -> None:
        """Answer all who wait with `error`."""
        self.runner.stand_down(error)

    def seen(self, ref: MemberRef, now: float) -> None:
        """A commit is no heartbeat."""

    # -- members -------------------------------------------------------------------------------------------

    def beat(self, beat: Beat, answer: Answer, *, at: Moment) -> None:
        """Answered with Heard."""
        assignors = tuple(self._config.group_consumer_assignors)
        before = self.recorded

        def decide(group: Group) -> Decision:
            check_beat(beat, assignors)
            draft = self._draft(group, beat, at)
            heard = (decide_leave if beat.epoch in LEAVES else decide_beat)(draft, beat)
            return Decision(tuple(draft.records), heard)

        self.runner.handle(decide, answer)
        self._note(beat, before, at)

    def _draft(self, group: Group, beat: Beat, at: Moment) -> Draft:
        """Raises UnknownMemberId, GroupIdNotFound where there is no group for a member to be in."""
        if group.consumer is None and beat.epoch in LEAVES:
            raise GroupIdNotFound(f"group {self.group_id} is not a consumer group")
        if group.consumer is None and beat.epoch != JOINING:
            raise UnknownMemberId(f"group {self.group_id} does not exist: its members may join again")
        return Draft(self.group_id, group.consumer, self._surroundings(at))

    def _surroundings(self, at: Moment) -> Surroundings:
        image = self._image()
        return Surroundings(
            image,
            self._matches,
            at.now_ms,
            tuple(self._config.group_consumer_assignors),
            self._config.group_consumer_max_size,
            image.topics is not self._topics_seen,
        )

    def _note(self, beat: Beat, before: ConsumerMembership | None, at: Moment) -> None:
        """Set the clocks by what was decided."""
        after = self.recorded
        if after is None:
            return
        gone = before.members.keys() - after.members.keys() if before else ()
        for member_id in gone:
            self._end(member_id)
        if beat.member_id in after.members and beat.epoch not in LEAVES:
            self._topics_seen = self._image().topics
            self._renew(beat.member_id, at.now)
            self._watch_revocation(beat.member_id, at.now)
        if before is None or before.epoch != after.epoch:
            log.info(
                "consumer_group_epoch_began",
                group=self.group_id,
                epoch=after.epoch,
                members=len(after.members),
            )

    # -- the classic protocol ------------------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, new_member_id: str, at: Moment) -> None:
        """Answered with Joined or MemberIdRequired."""
        self._refuse(InconsistentGroupProtocol(), answer)

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Answered with Synced."""
        self._refuse(UnknownMemberId(), answer)

    def heartbeat(self, ref: MemberRef, answer: Answer, *, generation: int, at: Moment) -> None:
        """Answered with None."""
        self._refuse(UnknownMemberId(), answer)

    def leave(self, ref: MemberRef, answer: Answer, *, at: Moment) -> None:
        """Answered with None."""
        self._refuse(UnknownMemberId(), answer)

    def _refuse(self, error: KafkaError, answer: Answer) -> None:
        def decide(_: Group) -> Decision:
            raise error

        self.runner.handle(decide, answer)

    # -- time ----------------------------------------------------------------------------------------------

    def session_ended(self, member_id: str, at: Moment) -> None:
        """A member fell silent: it is out."""
        log.info("group_member_expired", group=self.group_id, member=member_id)
        self._fence((member_id,), at)

    def expectation_ended(self, at: Moment) -> None:
        """Nobody waits for ids that were given out."""

    def rang(self, member_id: str, at: Moment) -> None:
        """A member had time enough to give up its partitions."""
        log.info("group_member_kept_partitions", group=self.group_id, member=member_id)
        self._fence((member_id,), at)

    def _fence(self, member_ids: Sequence[str], at: Moment) -> None:
        present = [each for each in member_ids if self.recorded and each in self.recorded.members]
        if not present:
            return

        def decide(group: Group) -> Decision:
            draft = Draft(self.group_id, group.consumer, self._surroundings(at))
            decide_fence(draft, present)
            return Decision(tuple(draft.records))

        before = self.recorded
        self.runner.handle(decide, _nobody_waits)
        for each in present:
            if self.recorded is before:
                self._sessions.renew(ClockKey(self.group_id, each), at.now + RETRY_S)
            else:
                self._end(each)

    def _renew(self, member_id: str, now: float) -> None:
        timeout_ms = self._config.group_consumer_session_timeout_ms
        self._sessions.renew(ClockKey(self.group_id, member_id), now + timeout_ms / 1000)

    def _watch_revocation(self, member_id: str, now: float) -> None:
        """Let the clock of a member run that is to give up partitions, from when it was told."""
        assert self.recorded is not None
        key = ClockKey(self.group_id, member_id, Kind.REBALANCE)
        if self.recorded.current_of(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.end(key)
        elif not self._sessions.runs(key):
            timeout_ms = self.recorded.members[member_id].rebalance_timeout_ms
            self._sessions.renew(key, now + timeout_ms / 1000)

    def _end(self, member_id: str) -> None:
        self._sessions.end(ClockKey(self.group_id, member_id))
        self._sessions.end(ClockKey(self.group_id, member_id, Kind.REBALANCE))


def _nobody_waits(reply: object) -> None:
    """A member that could not be taken out is looked at again."""
