"""DeleteAcls 1-3: delete the ACLs that match the filters, each filter on its own (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError
from raftlog.broker.api import Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import (
    PARTS_PER_REQUEST,
    ask_in_parts,
    truncate_message,
    wait_for_image,
)
from raftlog.broker.handlers.shared.acl_messages import check_enabled, describe_acl, filter_of
from raftlog.metadata.controller_api import AclDeletions, DeleteAcls
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER, Acl, AclFilter

API_KEY: Final = ApiKey.DELETE_ACLS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Remove ACLs, and wait until this broker applies the change.

    A filter scans all ACLs, so filters are applied one by one.
    """
    check_enabled(broker)
    make = response_builders(API_KEY, request.api_version)
    results: dict[int, Any] = {}
    wanted: list[tuple[int, AclFilter]] = []
    for position, each in enumerate(message.filters):
        try:
            wanted.append((position, filter_of(each)))
        except KafkaError as error:
            results[position] = _refused(make, error)
    asked = ask_in_parts(
        broker,
        wanted,
        lambda some: DeleteAcls(tuple(each for _, each in some)),
        AclDeletions,
        size_of=lambda _: PARTS_PER_REQUEST,
    )
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            results |= {position: _refused(make, reply) for position, _ in some}
            continue
        for (position, _), deletion in zip(some, reply.results, strict=True):
            results[position] = make.DeleteAclsFilterResult(
                error_code=NONE,
                error_message=None,
                matching_acls=tuple(_matching(make, acl) for acl in deletion.matches),
            )
            await wait_for_image(broker, partial(_lacks, deletion.matches))
    return make.DeleteAclsResponse(
        throttle_time=0, filter_results=tuple(results[position] for position in sorted(results))
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each filter."""
    make = response_builders(API_KEY, request.api_version)
    return make.DeleteAclsResponse(
        throttle_time=0, filter_results=(_refused(make, error),) * len(message.filters)
    )


def _refused(make: Any, error: KafkaError) -> Any:
    return make.DeleteAclsFilterResult(
        error_code=error.code, error_message=truncate_message(error.message), matching_acls=()
    )


def _matching(make: Any, acl: Acl) -> Any:
    return make.DeleteAclsMatchingAcl(
        error_code=NONE,
        error_message=None,
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )


def _lacks(removed: tuple[Acl, ...], image: MetadataImage) -> bool:
    return not any(acl in image.acls for acl in removed)


def _outcomes(_message: Any, response: Any) -> Iterator[Outcome]:
    for number, result in enumerate(response.filter_results):
        if result.error_code:
            yield f"filter {number}", result.error_code
        for each in result.matching_acls:
            yield describe_acl(each, each.pattern_type), each.error_code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=ALTER_CLUSTER,
    max_parts=100,  # each of which scans all ACLs, in a request of its own
    audit=Change(_outcomes),
    controllers=True,
)
