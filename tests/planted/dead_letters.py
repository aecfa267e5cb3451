"""Bugs of dead letters (KIP-1191): between the state of a share partition and the dead-letter topic."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.broker.coordination import dead_letters
from raftlog.broker.coordination.dead_letters import DeadLetterWriter
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.letter_sender import LetterSender
from raftlog.broker.coordination.share_state_client import ShareStateClient, StoredState
from raftlog.coordinator.share_state import decisions
from raftlog.coordinator.share_state.share_state import ShareSnapshot
from raftlog.sharing import in_flight, share_partition
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import FINAL_STATES, DeliveryState, ShareLimits
from raftlog_chaos.scenarios.share_groups import share_groups as play
from tests.planted.plant import Plant


def forget_the_letters_at_a_move(patch: pytest.MonkeyPatch) -> None:
    """A new leader writes letters for all that is archiving, as another producer."""
    read = ShareStateClient.read

    async def without_letters(client: ShareStateClient, *key: Any, **rest: Any) -> StoredState:
        return (await read(client, *key, **rest))._replace(letters=None)

    patch.setattr(ShareStateClient, "read", without_letters)


def produce_before_the_state_is_written(patch: pytest.MonkeyPatch) -> None:
    """Letters are produced while the state does not have them."""

    async def write_nothing(led: LedSharePartition, letters: DeadLetters) -> None:
        led.machine.last_letters = letters

    patch.setattr(LedSharePartition, "write_letters", write_nothing)


def pass_what_is_archiving(patch: pytest.MonkeyPatch) -> None:
    """The start offset passes records whose letters are not written, so the next leader does not know of them."""
    states = FINAL_STATES | {DeliveryState.ARCHIVING}
    patch.setattr(in_flight, "FINAL_STATES", states)
    patch.setattr(share_partition, "FINAL_STATES", states)


def archive_before_the_letter(patch: pytest.MonkeyPatch) -> None:
    """Records are archived in the state before their letters are produced."""
    send = LetterSender._send

    async def archive_first(sender: LetterSender, machine: share_partition.SharePartition) -> None:
        found = machine.next_archiving(5)
        if found is not None and machine.unfinished_letters is None:
            machine.settle_letters(found[0], found[1] + 1)
            sender._led._settle()  # type: ignore[attr-defined]  # it is a LedSharePartition
            return
        await send(sender, machine)

    patch.setattr(LetterSender, "_send", archive_first)


def produce_without_a_sequence(patch: pytest.MonkeyPatch) -> None:
    """A batch that comes again is another for the log."""
    batch = DeadLetterWriter._batch

    def unnumbered(writer: DeadLetterWriter, key: Any, letters: DeadLetters, *rest: Any) -> bytes:
        return batch(writer, key, letters._replace(producer_id=-1, sequence=-1), *rest)

    patch.setattr(DeadLetterWriter, "_batch", unnumbered)


def snapshot_without_letters(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of a state lacks the letters that may be written."""
    snapshot = decisions._snapshot

    def without(*given: Any) -> ShareSnapshot:
        found = snapshot(*given)
        assert found.state is not None
        return found._replace(state=replace(found.state, letters=None))

    patch.setattr(decisions, "_snapshot", without)


def archive_without_letters(patch: pytest.MonkeyPatch) -> None:
    """A record that is out of deliveries gets no letter: only rejected records do."""

    def after_release(limits: ShareLimits, delivery_count: int) -> DeliveryState:
        return DeliveryState.ARCHIVED if delivery_count >= limits.delivery_count else DeliveryState.AVAILABLE

    patch.setattr(ShareLimits, "state_after_release", after_release)


def copy_only_the_last_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    """Records that others follow in their batch are not found, so their letters lack key and value."""
    read = dead_letters._read_some

    def read_to_the_letter(log: Any, offsets: range, readable_end: int, read_batch: Any) -> Any:
        copies = read_batch is dead_letters._records
        return read(log, offsets, offsets.stop if copies else readable_end, read_batch)

    patch.setattr(dead_letters, "_read_some", read_to_the_letter)


def write_letters_of_gaps(patch: pytest.MonkeyPatch) -> None:
    """Each offset that is given up gets a letter, whether it has a record or not."""

    async def all_offsets(
        writer: DeadLetterWriter, key: Any, first_offset: int, last_offset: int
    ) -> list[int]:
        return list(range(first_offset, last_offset + 1))

    patch.setattr(DeadLetterWriter, "offsets", all_offsets)


TEST = "tests/broker/coordination/test_letter_sender.py"

PLANTS = [
    Plant(
        "letters-forgotten-at-moves",
        "KIP-1191 letter twice",
        play,
        forget_the_letters_at_a_move,
        6.0,
    ),
    Plant(
        "letters-produced-unwritten",
        "KIP-1191 letter twice",
        play,
        produce_before_the_state_is_written,
        6.0,
        test=f"{TEST}::test_letters_are_in_the_state_before_they_are_produced",
    ),
    Plant("letters-passed-by-start", "KIP-1191 letter lost", play, pass_what_is_archiving, 6.0),
    Plant("letters-after-archiving", "KIP-1191 letter lost", play, archive_before_the_letter, 6.0),
    Plant("letters-without-sequence", "KIP-1191 letter twice", play, produce_without_a_sequence, 6.0),
    Plant("letters-not-in-snapshots", "KIP-1191 letter twice", play, snapshot_without_letters, 6.0),
    Plant("letters-copied-in-part", "KIP-1191 copy", play, copy_only_the_last_of_a_batch, 6.0),
    Plant("letters-of-rejected-only", "KIP-1191 letter lost", play, archive_without_letters, 6.0),
    Plant(
        "letters-of-gaps",
        "KIP-1191 letter of no record",
        play,
        write_letters_of_gaps,
        6.0,
        test="tests/node/test_dead_letters.py::test_an_offset_without_a_record_has_no_letter",
    ),
]
