"""Tagged fields that raftlog's nodes add to Kafka's messages, for each other only.

A reader that does not know a tag skips it (KIP-482), so clients and their tools are not concerned. A field is added to
a whole message: entities within keep the classes of their schema.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, Final

from kio.static.primitive import i32, i64

from raftlog.base.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP

INT_MAX: Final = 2**31 - 1

FIRST_TAG: Final = 0x7261
"""Far from Kafka's own."""


def _field(kafka_type: str, default: Any, number: int) -> Any:
    return dataclasses.field(default=default, metadata={"kafka_type": kafka_type, "tag": FIRST_TAG + number})


_OWN: Final = {
    "AlterShareGroupOffsetsRequest": (("by_hand", bytes, _field("bytes", b"", 0)),),
    "AlterShareGroupOffsetsResponse": (("by_hand", bytes, _field("bytes", b"", 0)),),
    "DeleteShareGroupStateRequest": (("state_epoch", i32, _field("int32", i32(INT_MAX), 0)),),
    "DescribeGroupsRequest": (("tell_history", bool, _field("bool", False, 0)),),
    "DescribeGroupsResponse": (("history", bytes, _field("bytes", b"", 0)),),
    "DescribeShareGroupOffsetsRequest": (("about_deliveries", bytes, _field("bytes", b"", 0)),),
    "DescribeShareGroupOffsetsResponse": (("deliveries", bytes, _field("bytes", b"", 0)),),
    "ReadShareGroupStateResponse": (("letters", bytes, _field("bytes", b"", 0)),),
    "WriteShareGroupStateRequest": (("letters", bytes, _field("bytes", b"", 0)),),
    "WriteTxnMarkersRequest": (
        ("open_since", i64, _field("int64", i64(NO_OFFSET), 0)),
        ("last_sequence", i32, _field("int32", i32(NO_SEQUENCE), 1)),
        ("last_timestamp", i64, _field("int64", i64(NO_TIMESTAMP), 2)),
    ),
}
"""By the message's name. `open_since`: where the transactions to end must begin; -1: anywhere, and the other fields are
ignored. `last_sequence` and `last_timestamp`: of the last batch that their producer may have written.

`letters`: the dead letters of the only state (`DeadLetters.encode`).

`state_epoch`: only states of lower epochs are deleted.

`tell_history`: whether to return the history of the only requested group. `history`: its `GroupHistoryAnswer` as JSON.

`by_hand`: a `HandAcknowledgement` as JSON, in place of topics, and its `HandOutcome`.

`about_deliveries`: a `DeliveriesQuestion` as JSON, in place of groups. `deliveries`: its `DeliveriesAnswer`.
"""


@cache
def with_raftlog_fields(entity: Any) -> Any:
    """Return a message's class with the fields that are raftlog's own, or the class itself without such fields."""
    own = _OWN.get(entity.__name__)
    if own is None or not entity.__flexible__:
        return entity
    return dataclasses.make_dataclass(
        entity.__name__, own, bases=(entity,), frozen=True, slots=True, kw_only=True
    )
