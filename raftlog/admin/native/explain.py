"""Explains why a client is authorized or not: the authorizer's answer in words, with the deciding ACL.

Kafka has no such request. A user that may see all ACLs (DESCRIBE of the cluster) may ask about any principal. All
others may ask about themselves, since they could find out by trying.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import INVALID, ApiError
from raftlog.admin.route import ASKED_BY_HANDLER, Call, Route
from raftlog.base.principals import parse_principal
from raftlog.security.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from raftlog.security.authorizer import Verdict

MAX_CHARS: Final = 249
"""The maximum length of a name. All names fit into one request line, whatever their encoding."""


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """A question about a principal, an operation and a resource.

    Without a `principal` it is about the caller. `resource` is topic:NAME, group:NAME, transactional-id:NAME,
    delegation-token:ID, user:PRINCIPAL or cluster. Without a `host`, it is an address that no rule names.
    """

    operation: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    resource: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS + len("transactional-id:"))]
    principal: Annotated[str, msgspec.Meta(max_length=MAX_CHARS)] = ""
    host: Annotated[str, msgspec.Meta(max_length=45)] = ""


class Explanation(msgspec.Struct):
    """The answer. `reason` is stable; `rule` is the deciding ACL, if any."""

    allowed: bool
    reason: str
    rule: str | None
    message: str


async def explain(call: Call) -> Explanation:
    """Answer by the ACLs that this node knows. Raise ApiError."""
    asked: Question = call.query
    try:
        principal = parse_principal(asked.principal or call.caller.principal)
    except ValueError as error:
        raise ApiError(400, f"principal: {error}", code=INVALID) from None
    if principal != call.caller.principal:
        call.demand(Operation.DESCRIBE, ResourceType.CLUSTER)
    resource_type, name = _resource(asked.resource)
    operation = _operation(asked.operation, resource_type)
    if call.node.authorizer is None:
        return Explanation(
            True, "no authorizer", None, "Everyone may do everything: authorizer.class.name is unset."
        )
    verdict = call.node.authorizer.verdict(principal, asked.host, operation, resource_type, name)
    what = "the cluster" if resource_type is ResourceType.CLUSTER else f"{resource_type.name} {name}"
    return Explanation(
        verdict.allowed,
        verdict.reason,
        None if verdict.rule is None else str(verdict.rule),
        f"{principal} may {'' if verdict.allowed else 'not '}{operation.name} {what}: {_because(verdict)}.",
    )


def _because(verdict: Verdict) -> str:
    if verdict.rule is not None:
        return f"{verdict.reason}, {verdict.rule}"
    if verdict.reason == "super user":
        return "it is among super.users"
    if verdict.reason == "no rule about the resource":
        says = "allows" if verdict.allowed else "does not allow"
        return f"there is no rule about the resource, and allow.everyone.if.no.acl.found {says} it then"
    return "there are rules about the resource, and none of them allows it"


def _resource(text: str) -> tuple[ResourceType, str]:
    kind, _, name = text.partition(":")
    known = {each.name.lower().replace("_", "-"): each for each in OPERATIONS}
    found = known.get(kind.lower().replace("_", "-"))
    if found is None:
        raise ApiError(400, f"resource: must be TYPE:NAME with one of {', '.join(known)}", code=INVALID)
    if found is ResourceType.CLUSTER:
        name = name or CLUSTER_NAME
    if not name:
        raise ApiError(400, f"resource: the {kind} needs a name, as in {kind}:orders", code=INVALID)
    return found, name


def _operation(text: str, resource_type: ResourceType) -> Operation:
    known = {each.name: each for each in OPERATIONS[resource_type]}
    found = known.get(text.upper().replace("-", "_"))
    if found is None:
        raise ApiError(
            400, f"operation: for a {resource_type.name} it must be one of {', '.join(known)}", code=INVALID
        )
    return found


ROUTES: Final = (
    Route(
        "GET",
        "/v1/explain",
        explain,
        "Explain whether a principal may do something, and by which rule",
        query=Question,
        rights=ASKED_BY_HANDLER,
    ),
)
