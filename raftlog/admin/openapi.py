"""Generates the OpenAPI 3.1 document from the routes that dispatch requests, and from the types of their JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from raftlog import __version__
from raftlog.admin.errors import Error
from raftlog.admin.route import NoQuery, Route

REF: Final = "#/components/schemas/{name}"
EVERYWHERE: Final = {
    400: "a parameter or the body is malformed, or asks for what no cluster would do",
    403: "the caller may not do this, or a page from elsewhere asked",
    404: "there is no such thing",
    501: "a broker that would have to answer is of an older release",
    503: "no broker or controller that could answer is reachable; retry",
}
WITH_TOKENS: Final = {
    401: "the caller must authenticate",
    429: "too many wrong tokens or passwords came from this address, or a newer stream took the place of this one",
}
SCHEMES: Final[dict[str, dict[str, str]]] = {
    "password": {"type": "http", "scheme": "basic", "description": "A user of SCRAM or PLAIN."},
    "token": {"type": "http", "scheme": "bearer", "description": "A token of raftlog.admin.tokens.file."},
    "identity": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An identity provider's token, where a Kafka listener of the node offers OAUTHBEARER.",
    },
    "certificate": {"type": "mutualTLS"},
}
WITH_BODY: Final = {
    408: "the body came too slowly",
    413: "the body is too large",
    415: "the body is not application/json, or is packed",
    422: "the body is JSON of another shape; the message names the field",
}
OF_CHANGES: Final = {
    409: "the current state does not allow it, or a limit is reached; the message says which"
}
LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
INFO: Final = {
    "title": "raftlog admin API",
    "description": "Administers a raftlog cluster; any node answers for all of it. Below /v3 are the resources of the "
    "REST API that Kafka users know, below /v1 raftlog's own. A whole number may be written with a fraction of zero. "
    "Data of records is not read on its way, so that its numbers keep all their digits.",
}


def document(routes: Iterable[Route], info: Mapping[str, str] = INFO) -> dict[str, Any]:
    """Return the whole document. `info`: its title and description."""
    routes = tuple(routes)
    schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {**info, "version": __version__, "license": LICENSE},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": SCHEMES,
        },
    }


class Document:
    """The document. It is generated once, in a thread, as that takes a tenth of a second."""

    def __init__(self, routes: Iterable[Route], info: Mapping[str, str] = INFO) -> None:
        self._routes = routes
        self._info = info
        self._making = asyncio.Lock()
        self._text = b""

    async def text(self) -> bytes:
        """Return the document as JSON."""
        async with self._making:
            if not self._text:
                self._text = await asyncio.to_thread(self._make)
        return self._text

    def _make(self) -> bytes:
        return msgspec.json.encode(document(self._routes, self._info))


class _Schemas:
    """The JSON schemas of types, and the components to which these schemas refer."""

    def __init__(self, types: Iterable[Any]) -> None:
        self._types = list(types)
        found, self.components = msgspec.json.schema_components(self._types, ref_template=REF)
        self._of = dict(zip(map(repr, self._types), found, strict=True))

    def of(self, kind: Any) -> Any:
        return self._of[repr(kind)]


def _schemas(routes: Iterable[Route]) -> _Schemas:
    types: dict[str, Any] = {repr(Error): Error}
    for route in routes:
        for kind in (route.returns, route.body, route.unavailable, *route.also.values()):
            if kind is not None:
                types[repr(kind)] = kind
    return _Schemas(types.values())


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[1] or "index"],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": _responses(route, schemas),
    }
    if route.needs != "anyone":
        operation["security"] = [{}, *({name: []} for name in SCHEMES)]
    if route.body is not None:
        content = {"application/json": {"schema": schemas.of(route.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "format": "int32"}
            if kind is int
            else {"type": "string", "minLength": 1},
        }
        for name, kind in route.parameters.items()
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    schema = _query_schema(route.query or NoQuery)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in schema["properties"].items()
    ]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in route.headers.items()
    ]


@cache
def _query_schema(kind: Any) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([kind], ref_template=REF)
    found: dict[str, Any] = components[kind.__name__]
    for each in found["properties"].values():
        if "pattern" in each:
            each["pattern"] = each["pattern"].replace(r"\Z", "$")  # the end of the text in JSON Schema
    return found


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    def json_of(kind: Any, description: str, media_type: str = "application/json") -> dict[str, Any]:
        answer: dict[str, Any] = {"description": description}
        if kind is not None:
            answer["content"] = {media_type: {"schema": schemas.of(kind)}}
        return answer

    failures = EVERYWHERE | (WITH_BODY if route.body is not None else {})
    if route.needs != "anyone":
        failures = failures | WITH_TOKENS
    if route.method != "GET":
        failures = failures | OF_CHANGES
    failures = {**failures, **route.refusals}
    responses = {str(status): json_of(Error, text) for status, text in failures.items()}
    responses[str(route.status)] = json_of(route.returns, "done", route.media_type)
    for status, kind in route.also.items():
        responses[str(status)] = json_of(kind, "done; the body has the result")
    if route.unavailable is not None:
        responses["503"] = json_of(route.unavailable, "not now, and why")
    return dict(sorted(responses.items()))
