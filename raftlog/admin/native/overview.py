"""The routes that a console needs besides resources: its caller with authorized operations, and time series."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from raftlog import __version__
from raftlog.admin.route import (
    CLUSTER,
    GROUP,
    NO_RIGHTS,
    TOPIC,
    Call,
    Route,
)
from raftlog.admin.samples import EVERY_S, KEPT, Sample
from raftlog.security.acls import CLUSTER_NAME, DESCRIBE_CLUSTER, OPERATIONS, Operation, ResourceType

LARGEST: Final = 2**53 - 1
ASKED_FOR: Final = {
    CLUSTER: (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.ALTER_CONFIGS),
    TOPIC: OPERATIONS[TOPIC],
    GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
}
"""Operations on each kind of resource that the routes ask for."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class Whose(msgspec.Struct, forbid_unknown_fields=True):
    """Also return the caller's rights for this topic and this group, which need not exist."""

    topic: Name | None = None
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class Caller(msgspec.Struct):
    """The caller. `changes` false: its role allows no changes, whatever operations are listed.

    The lists have the authorized operations, in Kafka's words; null if not requested.
    """

    name: str
    role: str
    changes: bool
    node_id: int
    version: str
    cluster_id: str | None
    faults_enabled: bool
    dev_enabled: bool
    authorizer_enabled: bool
    cluster: list[str]
    topic: list[str] | None
    group: list[str] | None


class After(msgspec.Struct, forbid_unknown_fields=True):
    """From when on; 0 is everything."""

    after_ms: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] = 0


class Samples(msgspec.Struct):
    """The last quarter of an hour of node `node_id`, oldest first. `now_ms`: its wall clock."""

    node_id: int
    now_ms: int
    every_ms: int
    most: int
    samples: list[Sample]


async def get_caller(call: Call) -> Caller:
    """Return the page's user, so that it shows only what the user may do."""
    query: Whose = call.query
    node = call.node
    return Caller(
        name=call.caller.name,
        role=call.caller.role,
        changes=call.caller.role == "operator",
        node_id=node.config.node_id,
        version=__version__,
        cluster_id=node.image().cluster_id or None,
        faults_enabled=node.faults_enabled,
        dev_enabled=node.dev is not None,
        authorizer_enabled=node.authorizer is not None,
        cluster=_allowed(call, CLUSTER, CLUSTER_NAME),
        topic=None if query.topic is None else _allowed(call, TOPIC, query.topic),
        group=None if query.group is None else _allowed(call, GROUP, query.group),
    )


def _allowed(call: Call, kind: ResourceType, name: str) -> list[str]:
    return [each.name for each in ASKED_FOR[kind] if call.may(each, kind, name)]


async def get_samples(call: Call) -> Samples:
    """Return the kept samples, and include the lag of groups from now on."""
    samples = call.node.samples
    return Samples(
        node_id=call.node.config.node_id,
        now_ms=int(call.node.wall_clock_ms()),
        every_ms=int(EVERY_S * 1000),
        most=KEPT,
        samples=[] if samples is None else samples.asked(call.query.after_ms),
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/whoami",
        get_caller,
        "Get the caller and its rights",
        query=Whose,
        rights=NO_RIGHTS,
    ),
    Route(
        "GET",
        "/v1/samples",
        get_samples,
        "The last quarter of an hour of this node in numbers",
        query=After,
        rights=DESCRIBE_CLUSTER,
    ),
)
