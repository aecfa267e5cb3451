"""The port of a workload to a Kafka client, in either world, and which of its failures are certain.

An uncertain outcome that counts as certain makes a checker accuse a correct broker; the opposite hides a bug. So every
error code has a row in `FATES`, and a code without a row is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol

Kind = Literal["client", "writer", "reader", "careless", "transformer"]
"""The kind of a process: both, send only, poll only; "careless" sends with acks=1, once, not idempotent.

"transformer": it polls as a member of a group, sends what it makes of that, and commits both in one transaction."""

DELIVERY_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 3.0
POLL_S: Final = 0.1
SESSION_TIMEOUT_S: Final = 6.0
HEARTBEAT_S: Final = 0.3
"""Jepsen's settings for Kafka's clients: a fault outlasts a request, and retries outlast a failover."""


TRANSACTION_TIMEOUT_S: Final = 10.0
"""At least the longest time of a record (librdkafka); an abandoned transaction holds up readers for so long."""


class Definite(Exception):
    """It did not happen and never will: "fail" in the history."""


class Indefinite(Exception):
    """The outcome is unknown, and may still be open: "info" in the history."""


class Damaged(Exception):
    """Wrong at sight: a record that no process can have sent to that key, or a position lost after reading to it."""


class Unsupported(ValueError):
    """The port lacks something that the options require."""


class Ends(NamedTuple):
    """The end of a partition: for readers of committed records, and for all."""

    last_stable_offset: int
    high_watermark: int


class Fate(Enum):
    """The meaning of an error code for the record it answers."""

    NEVER = "the request itself is refused: no earlier attempt can have been taken either"
    NOT_THIS_TIME = "this attempt was not taken and never will be; of earlier ones it says nothing"
    UNKNOWN = "the record may be in the log, now or later"


_NEVER, _NOT_NOW, _UNKNOWN = Fate.NEVER, Fate.NOT_THIS_TIME, Fate.UNKNOWN

FATES: Final[Mapping[int, Fate]] = {
    -1: _UNKNOWN,  # UNKNOWN_SERVER_ERROR
    2: _NOT_NOW,  # CORRUPT_MESSAGE: judged before the append; an earlier copy may have come through whole
    3: _NOT_NOW,  # UNKNOWN_TOPIC_OR_PARTITION: not hosted by that broker
    5: _NOT_NOW,  # LEADER_NOT_AVAILABLE
    6: _UNKNOWN,  # NOT_LEADER_OR_FOLLOWER: also said when leadership ends after the append (KAFKA-13574)
    7: _UNKNOWN,  # REQUEST_TIMED_OUT: appended, not yet replicated
    8: _NOT_NOW,  # BROKER_NOT_AVAILABLE
    10: _NEVER,  # MESSAGE_TOO_LARGE
    13: _UNKNOWN,  # NETWORK_EXCEPTION
    17: _NEVER,  # INVALID_TOPIC_EXCEPTION
    18: _NEVER,  # RECORD_LIST_TOO_LARGE
    19: _NOT_NOW,  # NOT_ENOUGH_REPLICAS: judged before the append
    20: _UNKNOWN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: _NEVER,  # INVALID_REQUIRED_ACKS
    22: _NOT_NOW,  # ILLEGAL_GENERATION, of a commit
    25: _NOT_NOW,  # UNKNOWN_MEMBER_ID, of a commit
    27: _NOT_NOW,  # REBALANCE_IN_PROGRESS, of a commit
    29: _NEVER,  # TOPIC_AUTHORIZATION_FAILED
    30: _NEVER,  # GROUP_AUTHORIZATION_FAILED
    31: _NEVER,  # CLUSTER_AUTHORIZATION_FAILED
    32: _NEVER,  # INVALID_TIMESTAMP
    35: _NEVER,  # UNSUPPORTED_VERSION
    37: _NEVER,  # INVALID_PARTITIONS
    38: _NEVER,  # INVALID_REPLICATION_FACTOR
    40: _NEVER,  # INVALID_CONFIG
    41: _NOT_NOW,  # NOT_CONTROLLER
    42: _NEVER,  # INVALID_REQUEST
    43: _NEVER,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: _NEVER,  # POLICY_VIOLATION
    # OUT_OF_ORDER_SEQUENCE_NUMBER of a record whose predecessors are acknowledged: a broker that had accepted an
    # earlier attempt would recognise the duplicate. So if that attempt is visible all the same, the broker is wrong
    # (G1a).
    45: _NEVER,
    46: _UNKNOWN,  # DUPLICATE_SEQUENCE_NUMBER: it is there, at an unknown offset
    47: _NOT_NOW,  # INVALID_PRODUCER_EPOCH: judged before duplicates are looked for
    48: _UNKNOWN,  # INVALID_TXN_STATE: brokers have said this of transactions that became visible
    53: _NEVER,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56: _UNKNOWN,  # KAFKA_STORAGE_ERROR: what was written when the disk failed may survive
    59: _UNKNOWN,  # UNKNOWN_PRODUCER_ID
    74: _NOT_NOW,  # FENCED_LEADER_EPOCH
    75: _NOT_NOW,  # UNKNOWN_LEADER_EPOCH
    76: _NEVER,  # UNSUPPORTED_COMPRESSION_TYPE
    81: _NOT_NOW,  # GROUP_MAX_SIZE_REACHED
    82: _NOT_NOW,  # FENCED_INSTANCE_ID
    87: _NEVER,  # INVALID_RECORD
    90: _NOT_NOW,  # PRODUCER_FENCED: as 47
    100: _NOT_NOW,  # UNKNOWN_TOPIC_ID
}
"""Keyed by error code of Apache Kafka, for write requests of a client: records, commits, topics."""


def fate_of(code: int) -> Fate:
    """Return what a code means; codes outside the table mean that the outcome is unknown."""
    return FATES.get(code, Fate.UNKNOWN)


class ClientPort(Protocol):
    """One client process. One call at a time, but `send`, which may be called again before the first is awaited.

    No value is sent twice above the client: after an error the caller has to use another value.
    """

    transactional: bool
    """Whether it can do transactions."""

    @property
    def spent(self) -> bool:
        """Whether this client cannot be used any more (a fatal error): open another."""

    async def create_topic(
        self, topic: str, *, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic, or find that it exists. Raises Definite, Indefinite."""

    def send(self, key: str, value: int) -> asyncio.Future[int]:
        """Send a record now, behind all that were sent before. The future is its offset, Definite or Indefinite.

        -1: it is acknowledged, and the client does not know where.
        """

    async def assign(self, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        """Poll these keys from now on. Keys that were assigned before keep their positions, others begin at the
        beginning.
        """

    async def subscribe(self, topics: Sequence[str], group: str) -> None:
        """Poll the assigned partitions of these topics, from the committed offset, else from the beginning."""

    async def poll(self) -> dict[str, list[tuple[int, int]]]:
        """Return (offset, value) by key of what came within POLL_S, in order. Raises Definite, Indefinite, Damaged."""

    async def commit(self) -> None:
        """Commit the polled offsets, if subscribed. Raises Definite, Indefinite."""

    async def rewind(self, offsets: Mapping[str, int]) -> None:
        """Poll these keys again from these offsets on (Kafka's consumers do not do so by themselves, KAFKA-17582)."""

    def take_rebalanced(self) -> list[str]:
        """Return the keys whose assignment the coordinator changed since the last call."""

    async def close(self) -> None:
        """Shut down in good order. It leaves no resources behind, whatever state it is in."""

    async def abandon(self) -> None:
        """End it as kill -9 does, as far as the world allows; it leaves no resources behind."""


class TransactionalPort(ClientPort, Protocol):
    """A client process with transactions, one at a time."""

    @property
    def reached(self) -> Mapping[str, int]:
        """Keyed by key: the end offset at the last poll (exclusive), with the records there that cannot be read."""

    async def take_id(self, transactional_id: str) -> None:
        """Take a transactional id from its former owner, which cannot commit from then on. Raises Definite."""

    async def begin(self) -> None:
        """Begin a transaction: what is sent from now on belongs to it. Raises Definite."""

    async def commit_transaction(self) -> None:
        """Commit it, with the offsets of the polled records, if subscribed.

        Raises Definite: no coordinator got the request, so it will never commit; Indefinite.
        """

    async def abort_transaction(self) -> None:
        """Abort it, if possible; if not, the client is spent."""

    async def poll_again(self) -> None:
        """Go on from the committed offset, since records polled after it were not processed. A failure ends
        the member.
        """

    async def ends(self, keys: Sequence[str]) -> dict[str, Ends]:
        """Return where partitions end now. Raises Indefinite."""

    async def committed(self, keys: Sequence[str], group: str) -> dict[str, int]:
        """Return a group's offsets, 0 where it has none. Raises Indefinite."""


PAD_BYTES: Final = 97
"""Records' sizes differ by up to this."""


def encode_value(key: str, value: int) -> bytes:
    """Return the bytes of a record: the value, where it belongs, and padding that follows from them."""
    return b"%d %s " % (value, key.encode()) + b"." * (value * 31 % PAD_BYTES)


def decode_value(key: str, data: bytes | None) -> int:
    """Return the value of a record of that key. Raises Damaged unless every byte is as it was sent."""
    number, _, _ = (data or b"").partition(b" ")
    if not number.isdigit() or encode_value(key, int(number)) != data:
        raise Damaged(f"{key}: {data!r} was read, which nobody sent there")
    return int(number)


def split_key(key: str) -> tuple[str, int]:
    """Return a key's topic and partition."""
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)
