"""The quota for partitions that clients have created and deleted: `controller_mutation_rate` (KIP-599).

The active controller counts for the whole cluster. If the sender has such a quota, the broker checks it before it
requests a change. Parts of a request beyond the quota fail with THROTTLING_QUOTA_EXCEEDED, in versions whose clients
know that code. Older clients are only throttled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from raftlog.base.errors import KafkaError, ThrottlingQuotaExceeded
from raftlog.broker.api import Api
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask_in_parts
from raftlog.metadata.mutation_charges import ChargeMutations, MutationsCharged

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

Part = TypeVar("Part")


async def within_mutation_quota(
    broker: BrokerContext,
    api: Api,
    request: RequestContext,
    parts: Sequence[Part],
    size_of: Callable[[Part], int],
) -> tuple[list[Part], list[tuple[Part, KafkaError]]]:
    """Return the parts of a request that are within the quota, and the others.

    Mute its sender for the throttle time.

    `size_of` returns how many partitions a part creates or deletes.
    """
    connection = cast("Connection | None", request.connection)
    limits = None if connection is None else connection.limits
    if limits is None or not limits.mutations or not parts:
        return list(parts), []
    assert connection is not None and api.strict_quota_from is not None
    user, strict = request.principal.partition(":")[2], request.api_version >= api.strict_quota_from

    def charge(some: tuple[Part, ...]) -> ChargeMutations:
        sizes = tuple(max(0, size_of(each)) for each in some)
        return ChargeMutations(user, request.client_id or "", sizes, strict)

    may_go_on: list[Part] = []
    refused: list[tuple[Part, KafkaError]] = []
    throttle_ms = 0
    async for some, reply in ask_in_parts(broker, parts, charge, MutationsCharged):
        if isinstance(reply, KafkaError):
            refused += [(each, reply) for each in some]
            continue
        throttle_ms = max(throttle_ms, reply.throttle_ms)
        exceeded = ThrottlingQuotaExceeded(
            f"controller_mutation_rate is used up; try again in {reply.throttle_ms} ms"
        )
        for each, allowed in zip(some, reply.allowed, strict=True):
            if allowed:
                may_go_on.append(each)
            else:
                refused.append((each, exceeded))
    if throttle_ms:
        limits.mute_for_mutations(connection, throttle_ms)
    return may_go_on, refused
