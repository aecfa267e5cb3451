"""Why a batch of metadata records was decided: recorded by the controller, which alone knows, with the batch.

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
    "taken_for_dead": "broker {broker} was taken for dead: {detail}",
    "shutdown": "broker {broker} is being stopped",
    "disk_failed": "a log directory of broker {broker} failed",
    "disk_full": "a log directory of broker {broker} is full",
    "disk_has_room": "the log directories of broker {broker} have room again",
    "asked_to_leave": "broker {broker} asked to be out of service",
    "damage_reported": "broker {broker} found its log damaged",
    "caught_up": "broker {broker} runs and has caught up with the metadata",
    "registered": "broker {broker} started: a new process of it registered",
    "unregistered": "somebody had broker {broker} unregistered",
    "proposed": "its leader, broker {broker}, asked for it",
    "new_controller": "node {broker} became the active controller and looked at everything anew",
    "heard_again": "broker {broker} answered the controller again, which had put this off while it did not",
    "settled": "an earlier change had left it open",
    "rebalanced": "leaderships went back to preferred replicas, as they do from time to time",
    "preferred_asked": "somebody asked for the election of preferred leaders",
    "unclean_asked": "somebody asked for an unclean election",
    "reassigned": "somebody asked for other replicas",
    "transferred": "somebody asked to move the leadership",
    "drained": "somebody asked to drain broker {broker} of leaderships",
    "undrained": "somebody ended the drain of broker {broker}",
    "topics_created": "somebody asked for the topic",
    "topics_deleted": "somebody deleted topics",
    "partitions_added": "somebody asked for more partitions",
    "configs_asked": "somebody changed configs",
    "quotas_altered": "somebody changed quotas of clients",
    "features_updated": "somebody changed the levels of features",
    "tokens_asked": "somebody made, renewed or ended a delegation token",
    "tokens_expired": "delegation tokens were past their time",
    "acls_created": "somebody created access rules",
    "acls_deleted": "somebody deleted access rules",
    "credentials_altered": "somebody changed users' passwords",
}
"""A sentence for each kind. `{broker}` and `{detail}` are the cause's; so is the principal, if it has a place."""


def describe_cause(cause: Cause) -> str:
    """Return a cause as a sentence without its end; for an unknown kind, with what the cause holds."""
    sentence = CAUSE_SENTENCES.get(cause.kind)
    if sentence is None:
        return " ".join(filter(None, (cause.kind.replace("_", " "), cause.detail)))
    sentence = sentence.replace("somebody", "{by}")
    return sentence.format(broker=cause.broker_id, detail=cause.detail, by=cause.by or "somebody")
