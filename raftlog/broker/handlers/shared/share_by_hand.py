"""An operator's word on the records of a share partition that this broker leads: release them, or archive them.

It goes the way of a member's acknowledgement, so it is answered once it is committed. No member needs to have the
record. Records that are archived by hand get dead letters, like those that a member rejects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from raftlog.base.errors import InvalidRequest, KafkaError, ResourceNotFound
from raftlog.base.share_deliveries import HandAcknowledgement, HandOutcome
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.broker.context import BrokerContext
from raftlog.broker.long_work.turns import together
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.delivery import AcknowledgeType, ByHand

OFFSETS_AT_ONCE: Final = 500
"""Offsets between two turns of the loop: each may have another state, which takes some 4 µs."""


async def acknowledge_by_hand(broker: BrokerContext, group_id: str, said: HandAcknowledgement) -> HandOutcome:
    """Return what became of the records once it is committed. Many records are released or archived in turns.

    Raises ResourceNotFound if the group has no state in the partition, NotLeaderOrFollower, and as `acknowledge`.
    """
    partitions = broker.share_partitions
    key = SharePartitionKey(group_id, said.topic_id, said.partition)
    try:
        led = await partitions.get(key, checked=True)
    except InvalidRequest as error:
        raise ResourceNotFound(f"group {group_id} has not begun to read the partition") from error
    type_ = AcknowledgeType.REJECT if said.rejects else AcknowledgeType.RELEASE
    in_flight = led.machine.start_offset, led.machine.end_offset
    try:
        ended = await together(
            broker.env,
            _slices(said.offsets or (in_flight[0], in_flight[1] - 1), in_flight),
            lambda offsets: led.acknowledge_by_hand(type_, *offsets),
            size_of=lambda _: PARTS_AT_ONCE,
        )
    finally:
        led.is_retired |= not partitions.sessions.has_group(group_id)  # nothing else would have it dropped
    found = Counter(ByHand()._asdict())
    for _, outcome in ended:
        if isinstance(outcome, KafkaError):
            raise outcome
        found.update(outcome._asdict())
    return HandOutcome(**found)


def _slices(offsets: tuple[int, int], in_flight: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield parts of `offsets`, first and last, of which each has few that are in flight: start and end."""
    first_offset, last_offset = offsets
    begins = first_offset
    ends = range(max(first_offset, in_flight[0]), min(last_offset + 1, in_flight[1]), OFFSETS_AT_ONCE)
    for end_offset in ends[1:]:
        yield begins, end_offset - 1
        begins = end_offset
    if begins <= last_offset:
        yield begins, last_offset
