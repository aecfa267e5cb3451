"""Bugs about a producer's first batch in a partition: its second batch, in flight with it, is taken for the first."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.handlers.produce import PendingProduce
from raftlog.broker.replicas.early_batches import EarlyBatches
from raftlog.broker.replicas.replicas import Replicas
from raftlog.replication.leader_role import LeaderRole
from raftlog.storage.producers import ProducerState
from raftlog.storage.refused_batches import RefusedBatches
from raftlog.storage.verification import Verifications
from raftlog_chaos.scenarios.first_batches import first_batches
from tests.planted.plant import Plant


def any_first_sequence(patch: pytest.MonkeyPatch) -> None:
    """An empty log takes any sequence (KAFKA-15591), and earlier batches are unknown."""
    patch.setattr(LeaderRole, "_check_first_sequence", lambda *_: None)
    patch.setattr(EarlyBatches, "note", lambda *_: None)


def early_batches_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A topic that is made again takes any first sequence, whatever was refused before its replicas were made."""
    patch.setattr(EarlyBatches, "hand_over", lambda *_: None)


def deleted_topics_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A topic that is made again begins with sequence 0, though its producers go on: as Kafka 4.5 has it."""
    init = Replicas.__init__

    def without_memory(replicas: Any, *args: Any, **kwargs: Any) -> None:
        init(replicas, *args, **kwargs)
        replicas.was_deleted = lambda _: False

    patch.setattr(Replicas, "__init__", without_memory)


def followers_note_nothing(patch: pytest.MonkeyPatch) -> None:
    """A follower forgets a batch that it refused, and leads."""
    refused = PendingProduce._refused

    def refused_and_forgotten(
        pending: Any, topic: Any, index: int, records: Any, error: Any, **more: Any
    ) -> Any:
        return refused(pending, topic, index, None, error, **more)

    patch.setattr(PendingProduce, "_refused", refused_and_forgotten)


def transactions_begin_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The first batch of a transaction of version 2 may have any sequence where its producer is unknown (KIP-360)."""
    patch.setattr(Verifications, "must_begin_with_0", lambda *_: False)


def epochs_begin_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The first batch of a producer's next epoch may have any sequence."""
    check = ProducerState.check_sequence

    def check_by_epoch(state: Any, header: Any) -> Any:
        known = state.get(header.producer_id)
        is_newer = known is not None and header.producer_epoch > known.epoch
        return None if is_newer else check(state, header)

    patch.setattr(ProducerState, "check_sequence", check_by_epoch)


def given_up_batches_awaited(patch: pytest.MonkeyPatch) -> None:
    """The leader waits for a refused batch that its client dropped, and not for the first batch of the next epoch."""
    note = RefusedBatches.note

    def note_once(refused: RefusedBatches, header: Any, error: Any) -> None:
        if all(producer_id != header.producer_id for producer_id, _ in refused):
            note(refused, header, error)

    patch.setattr(RefusedBatches, "note", note_once)


def newest_epochs_awaited(patch: pytest.MonkeyPatch) -> None:
    """Of a producer id the refused batch of the newest epoch is remembered, even of an invented epoch."""
    note = RefusedBatches.note

    def note_newest(refused: RefusedBatches, header: Any, error: Any) -> None:
        epochs = [epoch for producer_id, epoch in refused if producer_id == header.producer_id]
        if any(epoch > header.producer_epoch for epoch in epochs):
            return
        for epoch in epochs:
            if epoch < header.producer_epoch:
                del refused[header.producer_id, epoch]
        note(refused, header, error)

    patch.setattr(RefusedBatches, "note", note_newest)


HAZARD = "P4 a retry that is no retry"

PLANTS = [
    Plant("any-first-sequence", HAZARD, first_batches, any_first_sequence),
    Plant("early-batches-forgotten", HAZARD, first_batches, early_batches_forgotten),
    Plant("deleted-topics-forgotten", HAZARD, first_batches, deleted_topics_forgotten),
    Plant("followers-note-nothing", HAZARD, first_batches, followers_note_nothing),
    Plant("transactions-begin-anywhere", HAZARD, first_batches, transactions_begin_anywhere),
    Plant(
        "epochs-begin-anywhere",
        HAZARD,
        first_batches,
        epochs_begin_anywhere,
        test="tests/storage/test_producers.py::test_a_new_epoch_begins_with_sequence_zero",
    ),
    Plant("given-up-batches-awaited", HAZARD, first_batches, given_up_batches_awaited),
    Plant("newest-epochs-awaited", HAZARD, first_batches, newest_epochs_awaited),
]
