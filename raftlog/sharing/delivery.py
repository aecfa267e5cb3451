"""The states of a record that a share group delivers, and the values that go in and out of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from raftlog.base.errors import InvalidRequest
from raftlog.sharing.dead_letter import DeadLetters

MIN_THROTTLED_DELIVERIES: Final = 2
"""However low the limit is, a record that failed once is no suspect yet."""

ALONE_FROM_LIMIT: Final = 3
"""With a limit below it, a record is not delivered alone before its last delivery."""


class DeliveryState(IntEnum):
    """The state of a record; the numbers are Apache Kafka's, as in records of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member holds its lock. This is never written: under the next leader the record is available again."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It waits for its dead letter (KIP-1191), and is not delivered again. The start offset does not pass it."""
    ARCHIVED = 4


FINAL_STATES: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""The states that the start offset passes."""


class AcknowledgeType(IntEnum):
    """The type of an acknowledgement, as numbered on the wire."""

    GAP = 0
    """There is no record at this offset: compaction removed it, or it is a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class StateBatch(NamedTuple):
    """A range of offsets in one state, as it is written and read back; `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int


class ShareLimits(NamedTuple):
    """The configs of a group that its share partitions follow."""

    lock_s: float = 30.0
    """`share.record.lock.duration.ms`, in seconds."""
    delivery_count: int = 5
    """`share.delivery.count.limit`."""
    max_locks: int = 2_000
    """`share.partition.max.record.locks`: offsets from the start offset to the end offset."""
    has_dead_letters: bool = False
    """Whether the group has a dead-letter topic (`errors.deadletterqueue.topic.name`)."""

    @property
    def given_up(self) -> DeliveryState:
        """The state of a record that is rejected, or out of deliveries."""
        return DeliveryState.ARCHIVING if self.has_dead_letters else DeliveryState.ARCHIVED

    @property
    def throttled_from(self) -> int:
        """The delivery count from which on fewer records are delivered together (`acquisition`)."""
        return max(MIN_THROTTLED_DELIVERIES, -(-self.delivery_count // 2))

    def is_last_delivery(self, delivery_count: int) -> bool:
        """Return whether a record that was delivered so often may be delivered only once more, and alone."""
        return self.delivery_count >= ALONE_FROM_LIMIT and delivery_count >= self.delivery_count - 1

    def state_after_release(self, delivery_count: int) -> DeliveryState:
        """Return the state of a record that a member gives back, after so many deliveries."""
        return self.given_up if delivery_count >= self.delivery_count else DeliveryState.AVAILABLE


class FetchedBatch(NamedTuple):
    """A record batch that was read from the log. `is_withheld`: no member may see it, as it was aborted."""

    first_offset: int
    last_offset: int
    is_withheld: bool = False


class AcquireRequest(NamedTuple):
    """The request of a member to acquire records, from its ShareFetch.

    `max_records` is exact if `is_record_limit` (KIP-1206). Else acquired ranges end where record batches end, and are
    split into ranges of about `batch_size` records.
    """

    member_id: str
    max_records: int
    batch_size: int = 2**31 - 1
    is_record_limit: bool = False


class Acquired(NamedTuple):
    """Offsets that a member has acquired, for the `delivery_count`th time; `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of a range of offsets. `types` has a single type for all, or a type for each."""

    first_offset: int
    last_offset: int
    types: Sequence[AcknowledgeType]


class ByHand(NamedTuple):
    """The offsets of a range that an operator has released or archived, counted by what became of them.

    `available`: they were not held; to archive, no delivery of them is known. `pending`: their member has acknowledged
    them, and that counts. `done`: they were accepted or archived before. `not_fetched`: behind the end offset.
    """

    released: int = 0
    archived: int = 0
    """Also released records that are out of deliveries."""
    available: int = 0
    pending: int = 0
    done: int = 0
    not_fetched: int = 0


def add_batch(batches: list[Acknowledgement], added: Acknowledgement) -> None:
    """Append the next batch of a request. Raise InvalidRequest unless it has a single type or one for each offset.

    Batches are in order. As in Apache Kafka, a batch may begin at the last offset of the batch before it; the record's
    state decides then. A repeated renewal of one record is left out. So at most a few batches remain for each offset.
    """
    first_offset, last_offset, types = added
    count = last_offset - first_offset + 1
    if count < 1 or len(types) not in (1, count):
        raise InvalidRequest("an acknowledgement has a single type, or a type for each offset")
    if first_offset < (batches[-1].last_offset if batches else -1):
        raise InvalidRequest("acknowledgement batches must be in order, and not overlap")
    if batches and count == 1 and types[0] is AcknowledgeType.RENEW and batches[-1] == added:
        return
    batches.append(added)


class StateWrite(NamedTuple):
    """A change of a share partition's state, to be written by its share coordinator.

    `pending` and `released` are the changed offsets, first and end, for the machine that waits for the result.
    `letters`: the dead letters that are produced after it; None leaves those before.
    """

    number: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int
    pending: tuple[tuple[int, int], ...]
    released: tuple[tuple[int, int], ...]
    letters: DeadLetters | None = None
