"""The causes of a batch of metadata records: the controller, which alone knows them, records them with the batch.

A cause has no effect on the state: replay ignores it, and older batches have none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.base.types import NO_BROKER


class Cause(msgspec.Struct, frozen=True, array_like=True):
    """One cause. `kind` is a key of CAUSE_SENTENCES; `broker_id` is its subject.

    `detail`: more than fits in a sentence. `by`: the principal that requested it, "" if unknown.
    """

    kind: str
    broker_id: int = NO_BROKER
    detail: str = ""
    by: str = ""


CAUSE_SENTENCES: Final[dict[str, str]] = {
    "taken_for_dead": "broker {broker} was considered dead: {detail}",
    "shutdown": "broker {broker} is being stopped",
    "disk_failed": "a log directory of broker {broker} failed",
    "disk_full": "a log directory of broker {broker} is full",
    "disk_has_room": "the log directories of broker {broker} have room again",
    "asked_to_leave": "broker {broker} asked to be fenced",
    "damage_reported": "broker {broker} found its log damaged",
    "caught_up": "broker {broker} runs and has caught up with the metadata",
    "registered": "broker {broker} started: a new process of it registered",
    "unregistered": "{by} unregistered broker {broker}",
    "proposed": "its leader, broker {broker}, asked for it",
    "new_controller": "node {broker} became the active controller and checked all partitions",
    "heard_again": "broker {broker} answered the controller again, which had delayed this meanwhile",
    "settled": "an earlier change had left it open",
    "rebalanced": "leaderships went back to preferred replicas, as they do from time to time",
    "preferred_asked": "{by} asked for the election of preferred leaders",
    "unclean_asked": "{by} asked for an unclean election",
    "reassigned": "{by} asked for a reassignment",
    "transferred": "{by} asked to move the leadership",
    "drained": "{by} drained broker {broker} of leaderships",
    "decommissioned": "{by} decommissioned broker {broker}",
    "decommissioning": "broker {broker} is being decommissioned",
    "recommissioned": "{by} ended the decommission of broker {broker}",
    "undrained": "{by} ended the drain of broker {broker}",
    "topics_created": "{by} created the topic",
    "topics_deleted": "{by} deleted topics",
    "partitions_added": "{by} added partitions",
    "configs_asked": "{by} changed configs",
    "min_insync_lowered": "min.insync.replicas is no more than the replicas in sync",
    "quotas_altered": "{by} changed client quotas",
    "features_updated": "{by} changed feature levels",
    "tokens_asked": "{by} created, renewed or expired a delegation token",
    "tokens_expired": "delegation tokens were past their time",
    "acls_created": "{by} created ACLs",
    "acls_deleted": "{by} deleted ACLs",
    "credentials_altered": "{by} changed SCRAM credentials",
}
"""A sentence for each kind, with places for the broker, the detail and the principal of a cause."""

UNKNOWN: Final = "an unknown user"
"""Stands for the principal of a cause from an older version."""


def describe_cause(cause: Cause) -> str:
    """Return a cause as a sentence without its end; for an unknown kind, with what the cause holds."""
    sentence = CAUSE_SENTENCES.get(cause.kind)
    if sentence is None:
        return " ".join(filter(None, (cause.kind.replace("_", " "), cause.detail)))
    return sentence.format(broker=cause.broker_id, detail=cause.detail, by=cause.by or UNKNOWN)
