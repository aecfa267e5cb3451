"""One transactional id as a value: whose producer id it is, where its transaction stands, and how records change it.

Only `apply` makes new states. A record holds the whole value, so the last one of each id is all there is to know.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from raftlog.base.errors import InvalidRequest
from raftlog.base.types import NAME_MAX_CHARS, NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

LAST_EPOCH: Final = 32_767
"""No client ever gets it or is let in with it, so that the holder of every other epoch can be fenced."""

EXHAUSTED_FROM: Final = LAST_EPOCH - 1
"""Whoever has this epoch gets another producer id instead of the next epoch."""


def check_transactional_id(transactional_id: str) -> None:
    """Raise InvalidRequest for an id that is empty or too long. Nothing may depend on the id before."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if len(transactional_id) > NAME_MAX_CHARS:
        raise InvalidRequest(f"a transactional id has at most {NAME_MAX_CHARS} characters")


class State(Enum):
    """Where a transaction stands; the value is the name that DescribeTransactions tells."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """Nothing is known of the id: never heard of, or expired."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Apache Kafka's, in memory only; here fencing and aborting are one record."""


PREPARING: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided, and every partition is being told."""

COMPLETE: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {State.EMPTY}
"""No transaction is open."""

RECORDED: Final = tuple(each for each in State if each not in (State.DEAD, State.PREPARE_EPOCH_FENCE))
"""Those that an id can be in."""


class ClientVersion(Enum):
    """Which transaction protocol a client speaks: `transaction.version` as records hold it (KIP-890)."""

    CLASSIC = 0
    FLEXIBLE = 1
    """As the classic one; only records differ."""
    BUMPING = 2
    """Each end of a transaction brings the next epoch, and partitions are added by writing to them."""


class Producer(msgspec.Struct, frozen=True, order=True):
    """Who a producer says it is."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_PRODUCER: Final = Producer()


class Transaction(msgspec.Struct, frozen=True):
    """A transactional id. With `state` Dead it stands for one that nobody wrote about.

    `producer`: who may write; while preparing, the epoch of the markers. `last_epoch`: the epoch before, whose holder
    may be asking again (KIP-360); no record holds it. `previous_id`, `next_id`: the producer ids before and after an
    exhausted one.
    """

    transactional_id: str
    producer: Producer = NO_PRODUCER
    state: State = State.DEAD
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID
    client_version: ClientVersion = ClientVersion.CLASSIC

    @property
    def exists(self) -> bool:
        return self.state is not State.DEAD

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a client."""
        return self.producer.epoch >= EXHAUSTED_FROM

    @property
    def successor(self) -> Producer:
        """Who may write once the transaction that is being ended has ended."""
        return self.producer if self.next_id == NO_PRODUCER_ID else Producer(self.next_id, 0)


class TransactionChanged(msgspec.Struct, frozen=True):
    """What is known of an id from now on; None removes it."""

    transactional_id: str
    transaction: Transaction | None


def apply(before: Transaction, records: tuple[TransactionChanged, ...]) -> Transaction:
    """Return the transactional id after the records."""
    after = before
    for record in records:
        assert record.transactional_id == before.transactional_id
        after = record.transaction or Transaction(before.transactional_id)
    return after
