"""The dead letters of a share partition (KIP-1191), each written once to the group's dead-letter topic.

A dead letter is a record of the dead-letter topic that names a record which was rejected, or is out of deliveries. Such
a record is *archiving* until its letter is written, and archived after that.

Ordering law: a `DeadLetters` value is committed as part of the state before its batch is produced. No other value
follows before the batch is known to be in the topic. So the next leader produces the same batch with the same sequence.
If the topic's log has it already, it takes the batch for a retry (KIP-98).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import CorruptMessage

MAX_SEQUENCE: Final = 2**31 - 1

_BYTES: Final = Struct(">qiqqh16si")


class DeadLetters(NamedTuple):
    """A batch of dead letters, for the offsets from first to last; each has the same delivery count.

    `topic_id` and `partition`: where it belongs. `producer_id` writes there for this share partition only.
    """

    producer_id: int
    sequence: int
    first_offset: int
    last_offset: int
    delivery_count: int
    topic_id: UUID
    partition: int

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch after this one."""
        return (self.sequence + self.last_offset - self.first_offset + 1) & MAX_SEQUENCE

    def encode(self) -> bytes:
        return _BYTES.pack(*self._replace(topic_id=self.topic_id.bytes))  # type: ignore[arg-type]


def decode_dead_letters(encoded: bytes) -> DeadLetters | None:
    """Return what `encode` returned; None for no bytes. Raise CorruptMessage."""
    if not encoded:
        return None
    try:
        found = DeadLetters(*_BYTES.unpack(encoded))
    except StructError as error:
        raise CorruptMessage("a batch of dead letters cannot be read") from error
    return found._replace(topic_id=UUID(bytes=found.topic_id))  # type: ignore[arg-type]  # packed
