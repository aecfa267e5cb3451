"""CreateAcls 1-3: each ACL succeeds or fails on its own (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask_in_parts, truncate_message, wait_for_image
from raftlog.broker.handlers.shared.acl_messages import acl_of, check_enabled, describe_acl
from raftlog.metadata.controller_api import CreateAcls, PartResult, PartResults
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER, Acl

API_KEY: Final = ApiKey.CREATE_ACLS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Create ACLs, and wait until this broker applies them."""
    check_enabled(broker)
    results: list[PartResult] = [PartResult()] * len(message.creations)
    wanted: list[tuple[int, Acl]] = []
    for position, creation in enumerate(message.creations):
        try:
            wanted.append((position, acl_of(creation)))
        except KafkaError as error:
            results[position] = PartResult(error.code, error.message)
    asked = ask_in_parts(broker, wanted, lambda some: CreateAcls(tuple(acl for _, acl in some)), PartResults)
    async for some, reply in asked:
        failed = PartResult(reply.code, reply.message) if isinstance(reply, KafkaError) else None
        outcomes = reply.results if isinstance(reply, PartResults) else (failed,) * len(some)
        for (position, _), result in zip(some, outcomes, strict=True):
            results[position] = result or PartResult()
        created = [
            acl for (_, acl), result in zip(some, outcomes, strict=True) if result and not result.error_code
        ]
        await wait_for_image(broker, partial(_shows, created))
    make = response_builders(API_KEY, request.api_version)
    return make.CreateAclsResponse(
        throttle_time=0,
        results=tuple(
            make.AclCreationResult(
                error_code=each.error_code, error_message=truncate_message(each.error_message)
            )
            for each in results
        ),
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each ACL."""
    make = response_builders(API_KEY, request.api_version)
    one = make.AclCreationResult(error_code=error.code, error_message=truncate_message(error.message))
    return make.CreateAclsResponse(throttle_time=0, results=(one,) * len(message.creations))


def _shows(created: list[Acl], image: MetadataImage) -> bool:
    return all(acl in image.acls for acl in created)


def _outcomes(message: Any, response: Any) -> Iterator[Outcome]:
    for asked, result in zip(message.creations, response.results, strict=True):
        yield describe_acl(asked, asked.resource_pattern_type), result.error_code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=Change(_outcomes, audits_message=True),
    controllers=True,
)
