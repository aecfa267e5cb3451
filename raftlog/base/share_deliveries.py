"""The deliveries of a share group's records, between the node that is asked over HTTP and brokers. Values only.

Times are wall clocks of the sending broker in ms.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

ANY_OFFSET = -1


class DeliveriesQuestion(msgspec.Struct):
    """A question about a group's partitions in memory, or with an `offset`, about one record of one partition."""

    group_id: str
    topic_id: UUID | None = None
    partition: int = 0
    offset: int = ANY_OFFSET


class LedPartition(msgspec.Struct):
    """A partition of the group that the broker leads and has in memory. Offsets are counted, with or without a record.

    `held`: locked by members. `done`: final, but after records that are not. `lag`: committed and not done.
    `deliveries`: by delivery count, what was delivered and is not done. `oldest_lock_ms`: a duration, 0 without locks.
    `full`: members get no more records until those at the start are done (share.partition.max.record.locks).
    `archiving`: waiting for their dead letters; `letters_failed`: why the last attempt to write some failed, or empty.
    """

    topic_id: UUID
    partition: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    held: int
    done: int
    lag: int
    oldest_lock_ms: int
    deliveries: dict[int, int]
    full: bool
    archiving: int = 0
    letters_failed: str = ""


class RecordNow(msgspec.Struct):
    """A record by its leader's memory. `state`: available, acquired, acknowledged, archived, done or not_fetched.

    "done" is before the start offset, and "not_fetched" after all that was fetched. `is_pending`: its member has
    acknowledged it, and the write of that is under way. `acquired_ms` and `expires_ms` are 0 unless it is acquired.
    """

    state: str
    delivery_count: int = 0
    member_id: str = ""
    acquired_ms: int = 0
    expires_ms: int = 0
    is_pending: bool = False


class DeliveryEvent(msgspec.Struct):
    """A delivery that ended. `state`: from then on.

    `end`: acknowledged, lock_over, session_over, leader_over or by_hand.
    """

    member_id: str
    delivery_count: int
    acquired_ms: int
    ended_ms: int
    end: str
    state: str


class DeliveriesAnswer(msgspec.Struct):
    """The answer of one broker. `stored`: the written state, if it is the share coordinator.

    It remembers deliveries since `known_since_ms`. It has forgotten some that ended until `evicted_ms`, 0 if none.
    """

    known_since_ms: int
    evicted_ms: int
    delivery_limit: int
    lock_ms: int
    partitions: list[LedPartition] = []
    record: RecordNow | None = None
    events: list[DeliveryEvent] = []
    stored: RecordNow | None = None
    clients: dict[str, tuple[str, str]] = {}
    """The client id and the host of each member in `events` that is known."""
    dead_letter_topic: str = ""
    """Empty: there is none."""


class HandAcknowledgement(msgspec.Struct):
    """An operator's word on the records of a partition: release them, or with `rejects` archive them.

    Both offsets are inclusive. None: all in flight.
    """

    topic_id: UUID
    partition: int
    rejects: bool
    offsets: tuple[int, int] | None = None


class HandOutcome(msgspec.Struct):
    """The numbers of offsets that became or were each of these (`sharing.delivery.ByHand`)."""

    released: int
    archived: int
    available: int
    pending: int
    done: int
    not_fetched: int
