"""A route: one row from which come the dispatch of a request, its checks, and its place in the OpenAPI document.

A resource's file has a tuple `ROUTES`; `server.ROUTES` lists the files. A handler gets a `Call` whose parameters are
parsed and checked already, and returns a struct of the row's `answer` type, or None for an empty body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    from aiohttp import web

    from raftlog.admin.kafka_client import Asker
    from raftlog.admin.limits import Limits
    from raftlog.admin.view import NodeView

Role = Literal["anyone", "reader", "operator"]
"""The roles that may call it: anyone, without a token; readers; those who change things."""


@dataclass(slots=True)
class Call:
    """One request, understood."""

    node: NodeView
    asker: Asker
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
    audit: dict[str, Any] = field(default_factory=dict)
    """Further facts for the audit log, besides who, what and from where."""
    outcome: str = "done"
    """The audit line's outcome of a change that raised nothing; see `audit.tell_parts`."""

    def link(self, *parts: object) -> str:
        """Return the URL of a resource below /v3."""
        return "/".join([f"{self.base_url}/v3", *(quote(str(each), safe=":") for each in parts)])


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `path` is a template such as /v3/clusters/{cluster_id}/brokers/{broker_id:int}."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    summary: str
    answer: Any = None
    """The type of the answer's body; None: there is none."""
    body: Any = None
    query: Any = None
    status: int = 200
    role: Role | None = None
    """None: reader for GET, operator for everything else."""
    media_type: str = "application/json"
    also: Mapping[int, Any] = field(default_factory=dict)
    """Further statuses that are no errors, with the type of their bodies."""
    unavailable: Any = None
    """The body of a 503 where it is not an Error."""
    streams: bool = False
    """The handler reads the body by itself, as it comes; `body` is one of the documents that may follow each other."""

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
        found: dict[str, type] = {}
        for part in self.path.split("/"):
            for piece in part.split("{")[1:]:
                name, _, kind = piece.partition("}")[0].partition(":")
                found[name] = int if kind == "int" else str
        return found

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":int}", "}")

    @property
    def pattern(self) -> str:
        """The path as aiohttp's router writes it: `-` in a number's place belongs to routes of their own."""
        return self.path.replace(":int}", ":(?!-/)[^/]+}")


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route that takes none."""
