"""An operator's word on the records of a share partition that this broker leads: release them, or archive them.

It goes the way of a member's acknowledgement, so it is answered once it is committed. No member needs to have the
record. Records that are archived by hand get dead letters, like those that a member rejects.
"""

from __future__ import annotations

from raftlog.base.errors import InvalidRequest, ResourceNotFound
from raftlog.base.share_deliveries import HandAcknowledgement, HandOutcome
from raftlog.broker.context import BrokerContext
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.delivery import AcknowledgeType


async def acknowledge_by_hand(broker: BrokerContext, group_id: str, said: HandAcknowledgement) -> HandOutcome:
    """Return what became of the records once it is committed.

    Raises ResourceNotFound if the group has no state in the partition, NotLeaderOrFollower, and as `acknowledge`.
    """
    partitions = broker.share_partitions
    key = SharePartitionKey(group_id, said.topic_id, said.partition)
    try:
        led = await partitions.get(key, checked=True)
    except InvalidRequest as error:
        raise ResourceNotFound(f"group {group_id} has not begun to read the partition") from error
    type_ = AcknowledgeType.REJECT if said.rejects else AcknowledgeType.RELEASE
    try:
        found = await led.acknowledge_by_hand(type_, said.offsets)
    finally:
        led.is_retired |= not partitions.sessions.has_group(group_id)  # nothing else would have it dropped
    return HandOutcome(**found._asdict())
