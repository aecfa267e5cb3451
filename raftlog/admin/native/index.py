"""A welcome page at the address without a path: the console for a browser, links for a program."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from raftlog import __version__
from raftlog.admin.console_files import PAGE, answer_with_file, is_browser
from raftlog.admin.route import NO_RIGHTS, Call, Route


class Index(msgspec.Struct):
    """Links to the OpenAPI document, and to the most used resources."""

    name: str
    version: str
    node_id: int
    openapi: str
    metrics: str
    health: str
    clusters: str


async def get_index(call: Call) -> Index | web.StreamResponse:
    """Return the same index to every caller, without data of the cluster. A browser gets the console."""
    if is_browser(call.raw):
        return await answer_with_file(call.raw, PAGE)
    return Index(
        name="raftlog",
        version=__version__,
        node_id=call.node.config.node_id,
        openapi=f"{call.base_url}/openapi.json",
        metrics=f"{call.base_url}/metrics",
        health=f"{call.base_url}/v1/health",
        clusters=f"{call.base_url}/v3/clusters",
    )


ROUTES: Final = (Route("GET", "/", get_index, "What is here", answer=Index, role="anyone", rights=NO_RIGHTS),)
