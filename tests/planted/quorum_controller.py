"""Bugs of the controller: the basis of its decisions, the time of its responses, fencing, and repeated requests."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from raftlog import control
from raftlog.base.errors import KafkaError, NotController
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.broker.network.client_quotas import ClientQuotas
from raftlog.controller import brokers
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.controller import Controller
from raftlog.metadata import loader, record_replay
from raftlog.metadata.broker_requests import AllocateProducerIds, ProducerIdBlock
from raftlog.metadata.image import MetadataImage, Usage
from raftlog.metadata.metadata_records import ControllerElected
from raftlog.metadata.record_replay import apply_records
from raftlog.metadata.snapshot import decode_image, encode_image
from raftlog.quorum.core import RaftCore
from raftlog.quorum.driver import Driver
from raftlog.quorum.quorum import Quorum
from raftlog.security.quotas import Quotas
from raftlog_chaos.scenarios.quorum_controller import controller as controller_scenario
from tests.planted.plant import Plant


def answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    """A reply leaves as soon as its records are in the controller's own log."""

    def handle(runner: Runner[Any], decide: Any, answer: Answer) -> None:
        if runner._stood_down is not None:
            answer(runner._stood_down)
            return
        outcome, effects = runner._run(decide)
        for effect in effects:
            assert runner._perform is not None
            runner._perform(effect)
        answer(outcome)

    patch.setattr(Runner, "handle", handle)


def keep_what_is_parked(patch: pytest.MonkeyPatch) -> None:
    """Parked replies of a lost leadership are sent when the next leadership's offsets pass theirs."""

    def stand_down(runner: Runner[Any], error: KafkaError | None = None) -> None:
        runner._stood_down = error or NotController()

    def reset(runner: Runner[Any], state: Any, offset: int) -> None:
        runner.tail = state
        runner._end_offset = runner._committed_offset = offset
        runner._stood_down = None

    patch.setattr(Runner, "stand_down", stand_down)
    patch.setattr(Runner, "reset", reset)


def act_before_the_election_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The leader of the quorum acts as the controller at once, on what it happens to have applied, without fencing.

    Each fault alone does no harm. A decision on a stale image is fenced by its offset. And a controller that waits for
    its own election in the log has applied all earlier entries.
    """
    lead = Controller.on_elected

    def lead_at_once(
        subject: Controller, term: int, image: MetadataImage, now: float, *, heard_at: float | None = None
    ) -> None:
        lead(subject, term, image, now, heard_at=heard_at)
        if subject._phase == "electing":
            elected = apply_records(image, (ControllerElected(subject._node_id, term),))
            subject._become_active(elected, now)

    patch.setattr(Controller, "on_elected", lead_at_once)
    patch.setattr(RaftCore, "has_applied_own_term", RaftCore.is_leader)
    patch.setattr(record_replay, "matches", lambda image, batch: True)


def blame_others_for_a_stall(patch: pytest.MonkeyPatch) -> None:
    """A stalled controller finds that it received no heartbeats meanwhile."""
    patch.setattr(Controller, "_watch_own_stalls", lambda subject, now: None)


def create_without_an_id(patch: pytest.MonkeyPatch) -> None:
    """A topic's id is chosen by the controller, so that a repeated creation finds a stranger's topic."""
    patch.setattr(control, "make_idempotent", lambda request, new_topic_id: request)


def take_repeats_at_their_word(patch: pytest.MonkeyPatch) -> None:
    """The answer to the second asking is taken for that to the first."""
    patch.setattr(control, "first_attempt_reply", lambda request, reply, before: reply)


def forget_given_producer_ids(patch: pytest.MonkeyPatch) -> None:
    """A block of producer ids is given without a record of it."""

    def decide(image: MetadataImage, request: AllocateProducerIds) -> Decision:
        return Decision((), ProducerIdBlock(image.next_producer_id, brokers.BLOCK_SIZE))

    patch.setattr(brokers, "decide_allocate_producer_ids", decide)


def leave_configs_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A node that comes back by a snapshot knows no dynamic configs."""
    patch.setattr(
        loader, "encode_image", lambda image: encode_image(msgspec.structs.replace(image, configs={}))
    )


def elect_the_departing(patch: pytest.MonkeyPatch) -> None:
    """A node that is ending hands the lead over once, and goes on standing until its broker is through."""
    patch.setattr(Driver, "stop_candidacy", lambda driver: None)


def keep_the_lead_to_the_end(patch: pytest.MonkeyPatch) -> None:
    """A controller that is ending leads until its broker has stopped."""

    async def stay(quorum: Quorum) -> None:
        quorum.stop_candidacy()

    patch.setattr(Quorum, "hand_over", stay)


def forget_the_usage_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A node that comes back by a snapshot thinks that the metadata take no room, and lets everything in."""
    patch.setattr(
        loader, "decode_image", lambda data: msgspec.structs.replace(decode_image(data), usage=Usage())
    )


def leave_quotas_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A node that comes back by a snapshot knows of no client quota."""
    patch.setattr(loader, "decode_image", lambda data: msgspec.structs.replace(decode_image(data), quotas={}))


def go_by_the_first_quotas(patch: pytest.MonkeyPatch) -> None:
    """A broker keeps its first quotas, and ignores later quotas."""
    follow = ClientQuotas.follow

    def follow_once(subject: ClientQuotas, quotas: Quotas) -> None:
        if not subject.in_force:
            follow(subject, quotas)

    patch.setattr(ClientQuotas, "follow", follow_once)


def believe_in_brokers_that_are_fenced(patch: pytest.MonkeyPatch) -> None:
    """A broker counts as alive until it is fenced, so another decision undoes the first batches of that."""
    availability = Controller._availability

    def without_pending(controller: Controller, image: MetadataImage) -> BrokerAvailability:
        fencing, controller._fencing = controller._fencing, frozenset()
        try:
            return availability(controller, image)
        finally:
            controller._fencing = fencing

    patch.setattr(Controller, "_availability", without_pending)


scenario = partial(Plant, scenario=controller_scenario, seconds=6.0)

PLANTS = [
    scenario(
        "reply-before-commit", "law 1", plant=answer_before_commit, note="a lost tail takes the answer back"
    ),
    scenario(
        "parked-replies-kept",
        "law 1",
        plant=keep_what_is_parked,
        note="another's commit answers for ours",
        test="tests/controller/test_controller.py::test_lost_tail_is_answered_with_not_controller",
    ),
    scenario(
        "controller-not-fenced",
        "P8",
        plant=act_before_the_election_is_committed,
        note="it decides on the past",
    ),
    scenario(
        "own-pause-blamed", "liveness", plant=blame_others_for_a_stall, note="brokers are fenced for nothing"
    ),
    scenario(
        "creation-not-repeatable", "repeats", plant=create_without_an_id, note="what was done is refused"
    ),
    scenario(
        "deletion-not-repeatable",
        "repeats",
        plant=take_repeats_at_their_word,
        note="what was done is refused",
    ),
    scenario(
        "producer-ids-given-twice",
        "KIP-730",
        plant=forget_given_producer_ids,
        note="producers fence each other",
    ),
    scenario(
        "fenced-without-end",
        "liveness",
        plant=believe_in_brokers_that_are_fenced,
        note="two brokers with very many partitions",
        test="tests/controller/test_controller.py::test_two_brokers_with_many_partitions_are_fenced_at_once",
    ),
    scenario(
        "departing-node-elected",
        "liveness",
        plant=elect_the_departing,
        note="it leads for as long as it takes to end",
    ),
    scenario(
        "departing-node-leads-on",
        "liveness",
        plant=keep_the_lead_to_the_end,
        note="its broker is gone, and it leads",
    ),
    scenario(
        "snapshot-without-configs", "images", plant=leave_configs_out_of_snapshots, note="nodes disagree"
    ),
    scenario(
        "snapshot-without-quotas", "images", plant=leave_quotas_out_of_snapshots, note="nobody is limited"
    ),
    scenario(
        "stale-quotas", "KIP-546", plant=go_by_the_first_quotas, note="limits that were taken back hold"
    ),
    scenario("snapshot-without-usage", "bounds", plant=forget_the_usage_in_snapshots, note="no limit holds"),
]
