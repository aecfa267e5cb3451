"""Leader elections: of preferred replicas, or unclean, where only stale replicas are left (KIP-460)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.audit import record_parts
from raftlog.admin.broker_questions import REQUEST_TIMEOUT_MS
from raftlog.admin.errors import INVALID, ApiError, check
from raftlog.admin.route import Call, Route
from raftlog.base.errors import ElectionNotNeeded
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import ALTER_CLUSTER

KINDS: Final = {"PREFERRED": 0, "UNCLEAN": 1}
MAX_PARTITIONS: Final = 1000


class ElectedPartition(msgspec.Struct, forbid_unknown_fields=True):
    """A partition."""

    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partition_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Election(msgspec.Struct, forbid_unknown_fields=True):
    """The partitions to elect leaders for; null for all. UNCLEAN may lose records, which `accept_data_loss`
    must say.
    """

    election_type: Literal["PREFERRED", "UNCLEAN"] = "PREFERRED"
    partitions: (
        Annotated[list[ElectedPartition], msgspec.Meta(min_length=1, max_length=MAX_PARTITIONS)] | None
    ) = None
    accept_data_loss: bool = False


class Elected(msgspec.Struct):
    """The outcome for one partition: `error_code` is Kafka's, 0 for elected, 84 where it was not needed."""

    topic_name: str
    partition_id: int
    error_code: int
    message: str


class ElectionResults(msgspec.Struct):
    """The outcome for each partition; for a request about all, only the partitions that needed it."""

    data: list[Elected]


async def elect_leaders(call: Call) -> ElectionResults:
    """Elect leaders; 207 for any outcome."""
    wanted: Election = call.body
    call.audit["election_type"] = wanted.election_type
    if wanted.partitions is not None:
        call.audit["partitions"] = [f"{each.topic_name}-{each.partition_id}" for each in wanted.partitions]
    if wanted.election_type == "UNCLEAN" and not (wanted.accept_data_loss and wanted.partitions):
        raise ApiError(
            400, "an UNCLEAN election needs partitions by name and accept_data_loss: true", code=INVALID
        )
    make = builders_for(ApiKey.ELECT_LEADERS)
    topics = defaultdict(list)
    for each in wanted.partitions or ():
        topics[each.topic_name].append(each.partition_id)
    request = make.ElectLeadersRequest(
        election_type=KINDS[wanted.election_type],
        topic_partitions=None
        if wanted.partitions is None
        else tuple(
            make.TopicPartitions(topic=topic, partitions=tuple(found)) for topic, found in topics.items()
        ),
        timeout=REQUEST_TIMEOUT_MS,
    )
    response = await call.asker.ask(ApiKey.ELECT_LEADERS, request)
    check(response.error_code)
    results = [
        Elected(topic.topic, each.partition_id, each.error_code, each.error_message or "")
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]
    _audit(call, results)
    return ElectionResults(results)


def _audit(call: Call, results: Sequence[Elected]) -> None:
    names: dict[bool, list[str]] = {True: [], False: []}
    for each in results:
        well = each.error_code in (0, ElectionNotNeeded.code)
        names[well].append(f"{each.topic_name}-{each.partition_id}")
    record_parts(call, names[True], names[False])


ROUTES: Final = (
    Route(
        "POST",
        "/v1/elections",
        elect_leaders,
        "Have leaders elected",
        body=Election,
        status=207,
        rights=ALTER_CLUSTER,
    ),
)
