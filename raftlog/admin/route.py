"""A route: one row from which come the dispatch of a request, its checks, and its place in the OpenAPI document.

A row names the rights that a user needs, and the role that a token needs. A resource's file has a tuple `ROUTES`;
`server.ROUTES` lists the files. A handler gets a `Call` with validated parameters. It returns a struct of the row's
`answer` type, or None for an empty body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec

from raftlog.admin.caller import Caller, Role
from raftlog.admin.errors import FORBIDDEN, UNAUTHENTICATED, ApiError
from raftlog.base.turns import Turns, each_part
from raftlog.security.acls import (
    CLUSTER_NAME,
    Demanded,
    DemandedPerPart,
    Filtered,
    Needs,
    NoRights,
    Operation,
    ResourceType,
    Right,
)

if TYPE_CHECKING:
    from aiohttp import web

    from raftlog.admin.kafka_client import Asks
    from raftlog.admin.limits import Limits
    from raftlog.admin.view import NodeView

CLUSTER: Final = ResourceType.CLUSTER
GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

PARAMETER: Final = re.compile(r"\{(\w+)(:int)?\}")
"""A parameter in a template of a path."""

FORWARDED: Final = "X-Forward"
"""Confluent's header: `false` forbids to forward a request, which has been forwarded once."""

NO_RIGHTS: Final = NoRights()
"""Every user may call it, without authorization."""
FILTERED: Final = Filtered(())
"""Every user may call it, and sees only authorized resources."""
ASKED_BY_HANDLER: Final = DemandedPerPart(())
"""The body or the query names the resource, so the handler checks."""


def of_topic(operation: Operation) -> Demanded:
    """Return the right to do something with the topic of the path."""
    return Demanded((Right(operation, TOPIC, "topic_name"),))


def of_group(operation: Operation) -> Demanded:
    """Return the right to do something with the consumer group of the path."""
    return Demanded((Right(operation, GROUP, "consumer_group_id"),))


@dataclass(slots=True)
class Call:
    """A validated request, as a handler gets it."""

    node: NodeView
    asker: Asks
    base_url: str
    """scheme://host:port as the client wrote it, for the links in answers."""
    path: Mapping[str, Any]
    """The path's parameters, by name; integers where the template says {name:int}."""
    query: Any
    """The row's `query` struct."""
    body: Any
    """The row's `body` struct."""
    raw: web.Request
    request_id: str
    limits: Limits
    caller: Caller
    audit: dict[str, Any] = field(default_factory=dict)
    """Further facts for the audit log, besides caller, operation and address."""
    outcome: str = "done"
    """The audit log's outcome of a change without an exception; see `audit.record_parts`."""

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the caller may do something with a resource."""
        authorizer, caller = self.node.authorizer, self.caller
        if authorizer is None or not caller.principal:
            return True
        return authorizer.allows(caller.principal, caller.host, operation, resource_type, name)

    def demand(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise ApiError 403 if the caller is not authorized.

        Check before looking the resource up: then the response does not reveal whether it exists.
        """
        if not self.may(operation, resource_type, name):
            what = "the cluster" if resource_type is CLUSTER else f"{resource_type.name} {name[:249]}"
            raise Denied(f"{self.caller.name} may not {operation.name} {what}")

    def check_login(self) -> None:
        """Raise ApiError 401 if the token with which the caller logged in has expired meanwhile."""
        if asyncio.get_running_loop().time() >= self.caller.expires_at:
            raise ApiError(401, "your token has expired: send another", code=UNAUTHENTICATED)

    @property
    def is_forwarded(self) -> bool:
        """Whether another node sent it on, so that this node must not."""
        return self.raw.headers.get(FORWARDED, "").lower() == "false"

    @property
    def turns(self) -> Turns:
        return _TurnsOfClient(self)

    async def among(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> set[str]:
        """Return the resources that the caller is authorized for; the loop runs other tasks meanwhile."""
        wanted = list(names)  # others may change what they are from
        if self.node.authorizer is None or not self.caller.principal:
            return set(wanted)
        answers = await each_part(self.node, wanted, partial(self.may, operation, resource_type))
        return {name for name, is_allowed in zip(wanted, answers, strict=True) if is_allowed}

    def link(self, *parts: object) -> str:
        """Return the URL of a resource below /v3."""
        return "/".join([f"{self.base_url}/v3", *(quote(str(each), safe=":") for each in parts)])


class _TurnsOfClient(NamedTuple):
    """The turns of the loop (`NodeView.turns`) as long as the client is there."""

    call: Call

    async def next(self) -> None:
        """Wait for a turn. Raises ConnectionResetError if the client has left."""
        await self.call.node.turns.next()
        if self.call.raw.transport is None or self.call.raw.transport.is_closing():
            raise ConnectionResetError("the client disconnected")


class Denied(ApiError):
    """A user lacks a right."""

    def __init__(self, message: str) -> None:
        super().__init__(403, message, code=FORBIDDEN)


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `path` is a template such as /v3/clusters/{cluster_id}/brokers/{broker_id:int}."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    summary: str
    _: KW_ONLY
    rights: Needs
    """The rights that a user needs; a right's `field` is a parameter of the path."""
    body: Any = None
    query: Any = None
    status: int = 200
    role: Role | None = None
    """None: reader for GET, operator for everything else."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that the handler reads, with what they are for."""
    also: Mapping[int, Any] = field(default_factory=dict)
    """Further statuses that are no errors, with the type of their bodies."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Further statuses of errors, with when they come."""
    unavailable: Any = None
    """The body of a 503 where it is not an Error."""
    answer: Any = None
    """The type of the answer's body, where the handler writes it by itself. Else the handler's own type says it."""
    streams: bool = False
    """The handler reads the body by itself, as it comes; `body` is the type of each document in it."""

    @property
    def returns(self) -> Any:
        """The type of the answer's body; None: there is none."""
        if self.answer is not None:
            return self.answer
        kind = get_type_hints(self.handler)["return"]
        if get_origin(kind) is tuple:  # with the status
            kind = get_args(kind)[1]
        bodies = get_args(kind) if get_origin(kind) is UnionType else (kind,)
        return next((each for each in bodies if each is not NoneType), None)

    @property
    def needs(self) -> Role:
        return self.role or ("reader" if self.method == "GET" else "operator")

    @property
    def name(self) -> str:
        """The operation's id in the OpenAPI document."""
        return self.handler.__name__

    @property
    def parameters(self) -> dict[str, type]:
        """The path's parameters and their types."""
        return {name: int if kind else str for name, kind in PARAMETER.findall(self.path)}

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":int}", "}")

    @property
    def pattern(self) -> str:
        """The path as aiohttp's router writes it: `-` in a number's place belongs to routes of their own.

        Names have all characters, and braces too, which the router's own pattern leaves out.
        """
        return PARAMETER.sub(lambda found: f"{{{found[1]}:{'(?!-/)' if found[2] else ''}[^/]+}}", self.path)


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route that takes none."""
