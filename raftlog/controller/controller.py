"""The controller: takes requests and events, has them decided on the tail, and answers after the commit.

It is `idle`, `electing` (it appended ControllerElected and waits for it) or `active`. Only committed batches decide
which controller is active: a batch with its own epoch makes it active, a batch with a later epoch ends that.
Durability, connections and clocks are unknown here: `now` is loop seconds and comes with every call.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.env import shared_time
from raftlog.base.errors import ClusterAuthorizationFailed, KafkaError, NotController
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.base.machine import Decision, Runner
from raftlog.base.record_ages import Ages, OtherClocks
from raftlog.base.types import NO_BROKER
from raftlog.controller import (
    brokers,
    elections,
    topics,
    voters,
)
from raftlog.controller.broker_availability import BrokerAvailability, availability_of
from raftlog.controller.broker_liveness import HUNG_REASON, BrokerClocks, BrokerLiveness, ProbeResult
from raftlog.controller.decisions import DECIDE_AGAIN, UPDATE_ALL_PARTITIONS
from raftlog.controller.eligible_leaders import add_eligible_leaders, decide_release, min_insync_rule
from raftlog.controller.leader_and_isr import UncleanRule, unclean_rule, update_all_partitions
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.request_row import Circumstances
from raftlog.controller.requests import ROWS, Causes, causes_of
from raftlog.metadata.bootstrap import BootstrapRecords
from raftlog.metadata.broker_requests import (
    BrokerHeartbeat,
    ChargeMutations,
    MutationsCharged,
    RegisterBroker,
)
from raftlog.metadata.causes import Cause
from raftlog.metadata.controller_api import ErrorReply, Reply, Request, UnregisterBroker
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.history import History
from raftlog.metadata.image import EMPTY_IMAGE, BrokerState, MetadataImage
from raftlog.metadata.metadata_records import (
    Batch,
    ControllerElected,
    Record,
)
from raftlog.metadata.record_levels import check_records
from raftlog.metadata.record_replay import apply_records
from raftlog.security.quotas import Windows

if TYPE_CHECKING:
    from raftlog.controller.feature_updates import VoterLevels
    from raftlog.controller.mutation_quotas import MutationQuotas

TICK_S: Final = 0.25
"""Longest time between two ticks of an active controller."""
STALL_S: Final = 0.25
"""A tick this much too late was held up by our own loop: all deadlines shift."""
MOVES_S: Final = 0.5
"""Time between two looks for replicas to move off decommissioned brokers."""
MIN_TICK_S: Final = 0.01
"""Shortest time between two ticks, when due work cannot be done yet."""

Answer = Callable[[Reply], None]


def _leaving(request: Request) -> frozenset[int]:
    """Return the broker that a request takes partitions off, in several batches if need be."""
    if isinstance(request, RegisterBroker | UnregisterBroker):
        return frozenset({request.broker_id})
    if isinstance(request, BrokerHeartbeat) and (request.want_fence or request.failed_directory_ids):
        return frozenset({request.broker_id})
    return frozenset()


class Controller:
    """One node's controller. `append` hands a batch to the quorum, or raises KafkaError without an append. `probe`
    checks whether a broker's port answers, and calls `on_probe_result`. `cluster_id` is the cluster id that this node
    knows, if any.
    """

    def __init__(
        self,
        node_id: int,
        config: NodeConfig,
        random: Random,
        *,
        append: Callable[[Batch], None],
        probe: Callable[[int], None],
        cluster_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._random = random
        self._append_batch = append
        self._probe = probe
        self._cluster_id = cluster_id
        self.lateness = Lateness()
        """The lateness of this node's loop. Set before it leads: a slow controller waits longer for brokers."""
        self.wall_clock_ms: Callable[[], int] = lambda: 0
        """The clock for the start and refusal of delegation tokens. Set before it leads, too."""
        self.ages: Ages | None = None
        """The time by which expired tokens are removed; None: tokens are kept. Set before it leads."""
        self.history: History | None = None
        """The changes of brokers, and why. Set before it leads, as the next."""
        self.bootstrap: BootstrapRecords = ()
        """The users that this node's folder was formatted with. They count if it names the cluster."""
        self.features = SUPPORTED_FEATURES
        """The levels that this node supports. Set before it leads, as the next."""
        self.levels_of_voters: Callable[[], VoterLevels] = dict
        """The lowest and highest level of the metadata of each other voter; None for a voter that is not connected."""
        self.unrecorded_voters: Callable[[], Mapping[int, UUID]] = dict
        """The directories of voters that may be recorded now, though the metadata does not name them."""
        self._log = get_logger("controller", node_id=node_id)
        self._term = -1
        self._predecessor = NO_BROKER
        self._predecessor_heard_at = 0.0
        self._phase = "idle"
        self._announced = False
        self._runner: Runner[MetadataImage] = Runner(
            EMPTY_IMAGE, apply_records, self._append, perform=self._perform
        )
        self._runner.stand_down()
        self._soft = BrokerLiveness(0.0, self.lateness)
        self._clocks = BrokerClocks()
        self._mutations: MutationQuotas | None = None
        self._index = PartitionIndex()
        self._registered: tuple[Mapping[int, BrokerState], Mapping[int, int]] = ({}, {})
        self._soft_state: tuple[frozenset[int], ...] = ()
        self._recorded_stand = self._stand = availability_of(EMPTY_IMAGE)
        """The brokers' availability, as in the metadata and with `_soft_state`."""
        self._connected: set[int] = set()
        self._fencing: frozenset[int] = frozenset()
        """The brokers that pending decisions fence; a new object after each change."""
        self._sweep_due = False
        self._configs_seen: object = None
        """The configs by which the eligible leaders were judged last."""
        self._causes: Causes = ()
        self._seen_at = self._ticked_at = 0.0
        self._rebalance_at = self._token_check_at = self._moves_at = 0.0

    # --- leadership

    @property
    def active(self) -> bool:
        """True from the commit of our election to the end of our leadership."""
        return self._phase == "active"

    def on_elected(
        self, term: int, image: MetadataImage, now: float, *, heard_at: float | None = None
    ) -> None:
        """Take over the leadership of `term`; `image` is everything committed so far.

        `heard_at`: when the quorum's former leader was last heard, by default now.
        """
        if term == self._term and self._phase != "idle":
            return
        assert term > image.controller_epoch, "a term has one leader, and it leads once"
        self.resign()
        self._term = term
        self._predecessor = image.controller_id
        self._predecessor_heard_at = now if heard_at is None else heard_at
        self._phase = "electing"
        self._announced = False
        self._seen_at = now
        self._announce(image.offset)

    def _announce(self, base_offset: int = 0) -> None:
        records = (ControllerElected(self._node_id, self._term),)
        batch = Batch(self._term, base_offset, records)
        self._announced = True
        try:
            self._append_batch(batch)
        except KafkaError:
            self._announced = False  # the next tick tries again

    def resign(self) -> None:
        """Give up leadership: waiting requests are answered with NOT_CONTROLLER."""
        was_active, self._phase = self._phase == "active", "idle"
        self._fencing = frozenset()
        self._runner.stand_down(NotController("this node is not the active controller"))
        if was_active:
            self._log.info("controller_resigned", controller_epoch=self._term)

    def committed(self, image: MetadataImage, now: float) -> None:
        """Catch up with an applied batch: `image` includes it. Called for each batch that is applied."""
        if self.active:
            self._runner.share(image, image.offset)
        # at once, so that a broker's failure or an election has little to catch up
        self._index.at(self._runner.tail if self.active else image)
        if self._phase == "idle":
            return
        if image.controller_epoch > self._term:
            self.resign()
        elif self._phase == "active":
            self._runner.committed(image.offset)
        elif image.controller_epoch == self._term:
            self._become_active(image, now)

    def _become_active(self, image: MetadataImage, now: float) -> None:
        assert image.controller_id == self._node_id, "one controller per epoch"
        self._phase = "active"
        self._seen_at = self._token_check_at = now
        self._rebalance_at = now + self._config.leader_imbalance_check_interval_seconds
        self._runner.reset(image, image.offset)
        session_s = self._config.broker_session_timeout_ms / 1000
        interval_s = self._config.broker_heartbeat_interval_ms / 1000
        self._soft = BrokerLiveness(session_s, self.lateness, interval_s=interval_s)
        present = {*self._connected, self._node_id}
        self._mutations, self._clocks = None, BrokerClocks()
        self._configs_seen = None  # another controller's own configuration may differ from this one's
        self._soft.start_sessions(
            self._unfenced(),
            now,
            connected=present,
            predecessor=self._predecessor,
            heard_at=self._predecessor_heard_at,
            hung_at=self._hung_at(now),
        )
        if not image.cluster_id:
            self._decide(self._name_cluster)
        self._sweep(Cause("new_controller", self._node_id))
        self._probe_due(now)
        self._log.info("controller_became_active", controller_epoch=self._term)

    def _hung_at(self, now: float) -> dict[int, float]:
        """Return when brokers were last fenced for hanging, loop seconds: former controllers knew, and are gone."""
        if self.history is None or self.ages is None:
            return {}
        now_ms = self.ages.believed_ms()
        fenced = {each: self.history.fenced_at_ms(each, HUNG_REASON) for each in self._runner.tail.brokers}
        return {
            each: now - max(0, now_ms - at_ms) / 1000 for each, at_ms in fenced.items() if at_ms is not None
        }

    def _charge(self, request: ChargeMutations, now: float) -> MutationsCharged:
        """Count what a request changes against its user's quotas; a new controller begins at zero."""
        if self._mutations is None:
            from raftlog.controller.mutation_quotas import MutationQuotas

            config = self._config
            self._mutations = MutationQuotas(
                Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
            )
        return self._mutations.charge(self._runner.tail.quotas, request, now)

    def _name_cluster(self, image: MetadataImage) -> Decision:
        random_id = topics.random_uuid(self._random).bytes
        return voters.decide_first_metadata(
            self._cluster_id() or base64.urlsafe_b64encode(random_id).decode().rstrip("="),
            supported=self.features,
            directories=self.unrecorded_voters(),
            bootstrap=self.bootstrap,
        )

    # --- the one way to decide

    def _append(self, records: tuple[Record, ...]) -> int:
        base_offset = self._runner.end_offset
        self._append_batch(Batch(self._term, base_offset, records, causes=self._causes))
        return base_offset + len(records)

    def _decide(
        self,
        decide: Callable[[MetadataImage], Decision],
        answer: Callable[[Any], None] = lambda outcome: None,
        *,
        causes: Causes = (),
        leaving: frozenset[int] = frozenset(),
    ) -> None:
        """Decide, in as many batches as needed; `causes` are why, for people.

        The brokers `leaving` are fenced or unregistered with the last batch, and count as fenced from the second on.
        """

        def decide_because(image: MetadataImage) -> Decision:
            self._causes = causes  # of the batch that is appended next
            decision = decide(image)
            min_insync = min_insync_rule(image, self._config)
            decision = decision._replace(records=add_eligible_leaders(image, decision.records, min_insync))
            check_records(image, decision.records)
            return decision

        def next_or_answer(outcome: Any) -> None:
            if outcome is DECIDE_AGAIN:
                self._fencing = self._fencing.union(leaving)
                self._decide(decide, answer, causes=causes, leaving=leaving)
                return
            if not self._fencing.isdisjoint(leaving):
                self._fencing = self._fencing.difference(leaving)
                if self.active and any(map(self._is_unfenced, leaving)):
                    self._sweep()  # a broker came back meanwhile
            answer(outcome)

        self._runner.handle(decide_because, next_or_answer)

    def _perform(self, effect: Any) -> None:
        if effect is UPDATE_ALL_PARTITIONS:
            self._sweep()
        else:
            getattr(self._log, effect.level)(effect.name, **effect.fields)

    def _availability(self, image: MetadataImage) -> BrokerAvailability:
        """Return the brokers' availability; rebuilt only when the brokers or the suspicions have changed.

        Brokers that are being fenced count as fenced, which may take several batches. Else another decision of several
        batches would elect them again, and both would never end.
        """
        registered = image.brokers, image.decommissions
        if registered[0] is not self._registered[0] or registered[1] is not self._registered[1]:
            self._registered = registered
            self._recorded_stand = availability_of(image)
            self._soft_state = ()
        soft = self._soft
        soft_state = soft.suspected, soft.without_room, soft.cordoned, self._fencing
        if soft_state != self._soft_state:
            self._soft_state, (suspected, full, cordoned, fencing) = soft_state, soft_state
            stand = self._recorded_stand.with_suspected(suspected).with_reports(full=full, cordoned=cordoned)
            self._stand = stand.with_fenced(fencing)
        return self._stand

    def _unclean(self, image: MetadataImage) -> UncleanRule:
        return unclean_rule(image, self._config)

    def _sweep(self, cause: Cause = Cause("settled")) -> None:  # noqa: B008 (immutable)
        """Update every partition."""

        def decide(image: MetadataImage) -> Decision:
            updates = update_all_partitions(
                image, self._availability(image), self._unclean(image), index=self._index
            )
            reply = None if updates.complete else DECIDE_AGAIN
            return Decision(updates.records, reply, updates.events)

        def swept(outcome: Any) -> None:
            if isinstance(outcome, KafkaError):
                self._sweep_due = True  # the quorum is full: the next tick tries again

        self._sweep_due = False
        self._decide(decide, swept, causes=(cause,))

    def _is_unfenced(self, broker_id: int) -> bool:
        broker = self._runner.tail.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def _unfenced(self) -> list[int]:
        return [each.broker_id for each in self._runner.tail.brokers.values() if not each.fenced]

    # --- requests

    def submit(self, request: Request, answer: Answer, now: float, *, peer: int | None = None) -> None:
        """Decide a request and answer after the commit; never raises KafkaError.

        `peer` is the authenticated broker of the connection, None for a client's request through a broker.
        """
        if not self.active:
            answer(ErrorReply(NotController.code, "this node is not the active controller"))
            return
        self._watch_own_stalls(now)

        def reply(outcome: Any) -> None:
            if isinstance(outcome, KafkaError):
                answer(ErrorReply(outcome.code, outcome.message))
            else:
                answer(outcome)

        row = ROWS[type(request)]
        sender = None if row.about_another else getattr(request, "broker_id", None)
        if peer is not None and sender not in (None, peer):
            reply(ClusterAuthorizationFailed(f"broker {peer} cannot speak for {sender}"))
            return
        if isinstance(request, ChargeMutations):
            answer(self._charge(request, now))
            return
        done: Callable[[Any], None] = reply
        if isinstance(request, BrokerHeartbeat):
            done = self._on_heartbeat(request, reply, now)
        self._decide(
            lambda image: row.decide(image, request, self._circumstances(image, now)),
            done,
            causes=causes_of(request),
            leaving=_leaving(request),
        )

    def _circumstances(self, image: MetadataImage, now: float) -> Circumstances:
        return Circumstances(
            self._config,
            self._random,
            self._availability(image),
            self._unclean(image),
            self._index,
            self.wall_clock_ms,
            lambda broker_id: self._soft.has_valid_session(broker_id, now),
            self.features,
            self.levels_of_voters,
            min_insync_rule(image, self._config),
        )

    def _on_heartbeat(
        self, request: BrokerHeartbeat, answer: Callable[[Any], None], now: float
    ) -> Callable[[Any], None]:
        """Note a heartbeat's soft state. Return an answer that adds the other brokers' clocks."""
        broker = self._runner.tail.brokers.get(request.broker_id)
        if broker is not None and broker.broker_epoch == request.broker_epoch:
            self._on_contact(request.broker_id, now, request.late_ms / 1000)
            if self._soft.note_room(request.broker_id, lacks_room=request.lacks_room):
                self._sweep(Cause("disk_full" if request.lacks_room else "disk_has_room", request.broker_id))
            self._soft.note_cordoned(request.broker_id, cordoned=request.cordoned)
            self._clocks.note(request.broker_id, request.wall_clock_ms, request.clock_state, now)
        return lambda reply: answer(self._clocks.added_to(reply, request.broker_id, self._recorded_stand))

    # --- liveness

    @property
    def next_deadline(self) -> float | None:
        """Return the latest time for the next `tick`; None while idle."""
        if self._phase == "idle":
            return None
        deadline = shared_time(self._seen_at, TICK_S)
        if self._phase == "active":
            deadline = min(deadline, self._soft.next_deadline())
        return max(deadline, self._ticked_at + MIN_TICK_S)

    def tick(self, now: float) -> None:
        """Probe and fence the brokers that are due; O(due brokers)."""
        self._ticked_at = now
        if not self.active:
            self._seen_at = now
            if self._phase == "electing" and not self._announced:
                self._announce()
            return
        self._watch_own_stalls(now)
        self._probe_due(now)
        self._fence_dead_brokers(now)
        if self._sweep_due:
            self._sweep()
        if unrecorded := self.unrecorded_voters():
            self._decide(lambda image: voters.decide_register_voters(image, unrecorded))
        if self._index.with_eligible and self._configs_seen is not self._runner.tail.configs:
            self._release_eligible_leaders()
        if now >= self._rebalance_at:
            self._rebalance_at = now + self._config.leader_imbalance_check_interval_seconds
            if self._config.auto_leader_rebalance_enable:
                self._rebalance()
        if self._runner.tail.decommissions and now >= self._moves_at:
            self._moves_at = now + MOVES_S
            self._move_off_decommissioned(now)
        if now >= self._token_check_at:
            self._token_check_at = now + self._config.delegation_token_expiry_check_interval_ms / 1000
            self._remove_expired_tokens()

    def _release_eligible_leaders(self) -> None:
        def released(outcome: Any) -> None:
            if isinstance(outcome, KafkaError):
                self._configs_seen = None  # refused, or lost with its leader: the next tick tries again

        self._configs_seen = self._runner.tail.configs
        self._decide(
            lambda image: decide_release(image, self._config, self._index),
            released,
            causes=(Cause("min_insync_lowered"),),
        )

    def compare_clocks(self, wall_clock_ms: int, now: float) -> OtherClocks:
        """Return the brokers' clocks, compared with a clock that is not a broker's."""
        return self._clocks.compared_with(wall_clock_ms, now, self._recorded_stand)

    def _remove_expired_tokens(self) -> None:
        if not self._runner.tail.tokens or self.ages is None:
            return
        from raftlog.controller import tokens

        now_ms = self.ages.now_ms()
        self._decide(
            lambda image: tokens.decide_remove_expired_tokens(image, now_ms),
            causes=(Cause("tokens_expired"),),
        )

    def _move_off_decommissioned(self, now: float) -> None:
        from raftlog.controller import decommissions

        self._decide(
            lambda image: decommissions.decide_moves(image, **self._circumstances(image, now).rules),
            causes=tuple(Cause("decommissioning", each) for each in self._runner.tail.decommissions),
        )

    def _rebalance(self) -> None:
        percentage = self._config.leader_imbalance_per_broker_percentage
        self._decide(
            lambda image: elections.decide_rebalance(
                image, self._availability(image), index=self._index, percentage=percentage
            ),
            causes=(Cause("rebalanced"),),
        )

    def _watch_own_stalls(self, now: float) -> None:
        late = now - self._seen_at - TICK_S
        self._seen_at = max(self._seen_at, now)
        if late > STALL_S:
            self._soft.postpone_all(late)
            if not self.lateness.is_slow:  # it was logged already, once
                self._log.warning("controller_stalled", stalled_s=round(late, 3))

    def _probe_due(self, now: float) -> None:
        for broker_id in self._soft.take_due_probes(now):
            if self._is_unfenced(broker_id):
                self._probe(broker_id)

    def _fence_dead_brokers(self, now: float) -> None:
        reasons = {}
        for broker_id, reason in self._soft.brokers_to_fence(now).items():
            if not self._is_unfenced(broker_id):
                self._soft.mark_fenced(broker_id)
            elif broker_id not in self._fencing:
                reasons[broker_id] = reason
        if not reasons:
            return
        self._fencing = self._fencing.union(reasons)
        self._decide(
            lambda image: brokers.decide_fence_brokers(
                image, reasons, **self._circumstances(image, now).rules
            ),
            leaving=frozenset(reasons),
            causes=tuple(Cause("taken_for_dead", each, reason) for each, reason in reasons.items()),
        )

    def _on_contact(self, broker_id: int, now: float, late_s: float) -> None:
        if self._soft.on_heartbeat(broker_id, now, late_s):
            self._sweep(
                Cause("heard_again", broker_id)
            )  # update the partitions that waited for a suspected broker

    def peer_connected(self, broker_id: int, now: float) -> None:
        """Note that a broker's heartbeat connection was accepted."""
        self._connected.add(broker_id)
        if self.active:
            self._watch_own_stalls(now)
            self._soft.on_connect(broker_id)

    def peer_lost(self, broker_id: int, now: float) -> None:
        """Suspect a broker after its heartbeat connection dropped, and probe it at once."""
        self._connected.discard(broker_id)
        if self.active:
            self._watch_own_stalls(now)
            self._soft.on_disconnect(broker_id, now)
            self._probe_due(now)
            self._log.info("broker_connection_lost", broker_id=broker_id)

    def on_probe_result(self, broker_id: int, result: ProbeResult, now: float) -> None:
        """Take the result of a broker's probe, and fence the brokers that are dead by it."""
        if self.active:
            self._watch_own_stalls(now)
            self._soft.on_probe_result(broker_id, result)
            self._fence_dead_brokers(now)
            self._log.info("broker_probed", broker_id=broker_id, result=result)
