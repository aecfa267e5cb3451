"""Changes of the metadata in words: what changed for a partition or a broker in one batch, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from raftlog.base.types import NO_BROKER
from raftlog.metadata.causes import describe_cause
from raftlog.metadata.history import AppliedBatch, Change
from raftlog.metadata.image import BrokerState, PartitionState

PartitionChange = Change[PartitionState]
BrokerChange = Change[BrokerState]


def of_partition(change: PartitionChange) -> tuple[list[str], str, set[int]]:
    """Return (what happened, as stable words; a sentence without its end; the brokers that it is about)."""
    old, new = change.old, change.new
    assert new is not None
    if old is None:
        who = "no broker leads" if new.leader == NO_BROKER else f"broker {new.leader} leads"
        return ["created"], f"it was created on {_list(new.replicas)}; {who}", set()
    changes = [*_of_leader(old, new), *_of_isr(old, new), *_of_eligible(old, new), *_of_replicas(old, new)]
    concerned = set(old.isr) ^ set(new.isr) or set(old.eligible) ^ set(new.eligible)
    if new.leader_epoch > old.leader_epoch:
        concerned.add(new.leader if old.leader == NO_BROKER else old.leader)
    return (
        [what for what, _ in changes],
        "; ".join(text for _, text in changes) or "nothing changed",
        concerned,
    )


def _of_leader(old: PartitionState, new: PartitionState) -> Iterable[tuple[str, str]]:
    if new.leader_epoch == old.leader_epoch:
        return
    if new.leader == NO_BROKER:
        yield "leader_lost", f"broker {old.leader} leads no more, and no replica could take over"
    elif new.unclean_epoch > old.unclean_epoch:
        yield (
            "unclean_election",
            f"broker {new.leader} was elected uncleanly, though it may lack records that were acknowledged",
        )
    elif old.leader == NO_BROKER:
        yield "leader_elected", f"broker {new.leader} was elected"
    elif old.leader == new.leader:
        yield "leader_reelected", f"broker {new.leader} leads on in a new epoch"
    else:
        yield "leader_changed", f"broker {new.leader} took over from broker {old.leader}"


def _of_isr(old: PartitionState, new: PartitionState) -> Iterable[tuple[str, str]]:
    left = [each for each in old.isr if each not in new.isr]
    joined = [each for each in new.isr if each not in old.isr]
    if left:
        yield "isr_shrunk", f"{_list(left)} left the ISR, which is now {_list(new.isr)}"
    if joined:
        yield "isr_expanded", f"{_list(joined)} joined the ISR, which is now {_list(new.isr)}"
    if new.isr_lost and not old.isr_lost:
        yield "isr_lost", f"broker {_list(new.isr)}, the last in sync, lacks records that it had"
    elif old.isr_lost and not new.isr_lost:
        yield "isr_restored", "the ISR is trusted again"


def _of_eligible(old: PartitionState, new: PartitionState) -> Iterable[tuple[str, str]]:
    if new.eligible != old.eligible:
        some = f"{_list(new.eligible)} may lead all the same, if no broker in the ISR is in service"
        yield "eligible_leaders_changed", some if new.eligible else "only brokers in the ISR may lead"


def _of_replicas(old: PartitionState, new: PartitionState) -> Iterable[tuple[str, str]]:
    if new.is_reassigned and not old.is_reassigned:
        yield "reassignment_began", f"it is to be on {_list(new.target_replicas)}"
    elif old.is_reassigned and not new.is_reassigned:
        yield "reassignment_ended", f"it is on {_list(new.replicas)}"
    elif new.replicas != old.replicas:
        yield "replicas_changed", f"its replicas are {_list(new.replicas)}"


def of_broker(broker_id: int, change: BrokerChange) -> tuple[list[str], str]:
    """Return (what happened, as stable words; a sentence without its end)."""
    old, new = change.old, change.new
    if new is None:
        return ["unregistered"], f"broker {broker_id} was unregistered"
    changes: list[tuple[str, str]] = []
    if old is None:
        changes.append(("registered", f"broker {broker_id} registered for the first time"))
    elif old.broker_epoch != new.broker_epoch:
        changes.append(("registered", f"broker {broker_id} registered again"))
        if not set(old.directory_ids) <= set(new.directory_ids):
            changes.append(("disk_lost", "without a log directory that it had"))
    changes += _of_service(broker_id, old, new)
    kinds = {each.kind for each in change.batch.causes if each.broker_id == broker_id}
    if "decommissioned" in kinds:
        changes.append(
            ("decommission_began", f"broker {broker_id} leaves: its replicas move to other brokers")
        )
    if "recommissioned" in kinds:
        changes.append(("decommission_ended", f"broker {broker_id} stays"))
    return [what for what, _ in changes], "; ".join(text for _, text in changes) or "nothing changed"


def _of_service(broker_id: int, old: BrokerState | None, new: BrokerState) -> Iterable[tuple[str, str]]:
    if old is not None and not old.fenced and new.fenced:
        yield (
            "fenced",
            f"broker {broker_id} was fenced: it leads no partitions, and clients are not sent to it",
        )
    if old is not None and old.fenced and not new.fenced:
        yield "unfenced", f"broker {broker_id} was unfenced"
    if new.in_controlled_shutdown and not (old and old.in_controlled_shutdown):
        yield "shutdown_began", f"broker {broker_id} hands its leaderships over in order to stop"
    if new.draining and not (old and old.draining):
        yield "drain_began", f"broker {broker_id} is drained of leaderships"
    if old is not None and old.draining and not new.draining:
        yield "drain_ended", f"broker {broker_id} may lead again"
    if old is not None and old.disk_lost and not new.disk_lost:
        yield "disk_refilled", f"broker {broker_id} has all records of its partitions again"


def because(
    moment: AppliedBatch, concerned: Collection[int], what: Collection[str], *, away: Collection[int] = ()
) -> str:
    """Return the causes in words: of the concerned brokers if any, else all; "" if unknown.

    `away`: brokers that left the ISR in this batch, and were fenced in an earlier batch.
    """
    causes = moment.causes
    proposed = next((each for each in causes if each.kind == "proposed"), None)
    if proposed is not None and "isr_shrunk" in what:
        return f"it lagged behind its leader, broker {proposed.broker_id}, beyond replica.lag.time.max.ms"
    if proposed is not None and "isr_expanded" in what:
        return f"it caught up with its leader, broker {proposed.broker_id}"
    telling = [each for each in causes if each.broker_id in concerned] or causes
    were = "broker {} was" if len(away) == 1 else "brokers {} were"
    gone = [were.format(_list(sorted(away))) + " out of service"] if away else []
    return "; ".join([*gone, *map(describe_cause, telling)])


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
