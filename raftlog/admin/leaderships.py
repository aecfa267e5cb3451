"""Operators' changes of leaderships, asked of the active controller through a node's `submit`.

No routes and no JSON here; `by` is on whose behalf. A failure is the KafkaError that the controller answered, with its
words.
"""

from __future__ import annotations

from raftlog.base.errors import from_code
from raftlog.metadata.controller_api import (
    BrokerDrain,
    DrainBroker,
    LeadershipTransfer,
    PartitionResults,
    Submit,
    TransferLeaderships,
)


async def drain(
    submit: Submit,
    broker_id: int,
    *,
    timeout: float | None = None,  # noqa: ASYNC109
    by: str = "",
) -> BrokerDrain:
    """Have a broker lead nothing that another can lead, until `undrain`; `timeout` in seconds.

    Asked again it tells how far it is: leaderships that nobody else can take stay, and go as soon as somebody can.
    Raises BrokerIdNotRegistered.
    """
    reply = await submit(DrainBroker(broker_id, by=by), timeout=timeout)
    assert isinstance(reply, BrokerDrain)
    return reply


async def undrain(
    submit: Submit,
    broker_id: int,
    *,
    timeout: float | None = None,  # noqa: ASYNC109
    by: str = "",
) -> BrokerDrain:
    """Let a broker lead again. Its leaderships come back with the next rebalance, or a preferred election."""
    reply = await submit(DrainBroker(broker_id, draining=False, by=by), timeout=timeout)
    assert isinstance(reply, BrokerDrain)
    return reply


async def transfer_leadership(
    submit: Submit, topic: str, partition: int, leader: int, *, by: str = ""
) -> None:
    """Have an in-sync replica lead a partition; that it leads already is fine.

    UnknownTopicOrPartition; InvalidReplicaAssignment: no replica of it; EligibleLeadersNotAvailable: it is not in
    sync, not in service, or drained.
    """
    reply = await submit(TransferLeaderships((LeadershipTransfer(topic, partition, leader),), by=by))
    assert isinstance(reply, PartitionResults)
    (result,) = reply.results
    if result.error_code:
        raise from_code(result.error_code, result.error_message)
