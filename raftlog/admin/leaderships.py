"""Operators' changes of leaderships, and brokers that leave, sent to the active controller through a node's `submit`.

No routes and no JSON here; `by` is the represented client. A failure is the controller's KafkaError with its message.
"""

from __future__ import annotations

from raftlog.base.errors import from_code
from raftlog.base.types import NO_BROKER
from raftlog.metadata.controller_api import (
    BrokerDrain,
    DecommissionBroker,
    Done,
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
    """Drain a broker of all leaderships that others can take, until `undrain`; `timeout` in seconds.

    A repeated call reports the progress: leaderships without another candidate stay until there is a candidate. Raise
    BrokerIdNotRegistered.
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
    """End the drain of a broker. Its leaderships come back with the next rebalance, or a preferred election."""
    reply = await submit(DrainBroker(broker_id, draining=False, by=by), timeout=timeout)
    assert isinstance(reply, BrokerDrain)
    return reply


async def decommission(
    submit: Submit, broker_id: int, *, replace_with: int = NO_BROKER, ended: bool = False, by: str = ""
) -> None:
    """Move a broker's replicas to `replace_with` (NO_BROKER: to any brokers) and unregister it; or end that.

    Raise BrokerIdNotRegistered, InvalidRequest, InvalidReplicationFactor, NoReassignmentInProgress (nothing to end),
    UnsupportedVersion.
    """
    reply = await submit(DecommissionBroker(broker_id, replace_with, ended, by=by))
    assert isinstance(reply, Done)


async def transfer_leadership(
    submit: Submit, topic: str, partition: int, leader: int, *, by: str = ""
) -> None:
    """Have an in-sync replica lead a partition; it may lead already.

    UnknownTopicOrPartition; InvalidReplicaAssignment: no replica of it; EligibleLeadersNotAvailable: it is not in
    sync, not in service, or drained.
    """
    reply = await submit(TransferLeaderships((LeadershipTransfer(topic, partition, leader),), by=by))
    assert isinstance(reply, PartitionResults)
    (result,) = reply.results
    if result.error_code:
        raise from_code(result.error_code, result.error_message)
