"""The files of the console, served from memory: one page, one style sheet, scripts. They hold no data of a cluster.

The page is the same for every user; its scripts call the HTTP API for data, like any other caller. Foreign content, and
text from the network run as a script, are blocked by browsers due to `HEADERS`.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import web

from raftlog.admin.errors import not_found

PAGE: Final = "index.html"
TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MAX_BYTES: Final = 200_000
"""The maximum size of scripts and styles together, uncompressed. A test checks it."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Vary": "Accept",
}
"""`no-cache`: a browser keeps a file, and revalidates it by its ETag."""


class ConsoleFile(NamedTuple):
    """One file as it is sent."""

    content: bytes
    content_type: str
    etag: str


@cache
def console_files() -> dict[str, ConsoleFile]:
    """Return all files by name; read once."""
    found = {}
    for each in files(__package__).joinpath("console").iterdir():
        kind = TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            content = each.read_bytes()
            found[each.name] = ConsoleFile(content, kind, hashlib.sha256(content).hexdigest()[:32])
    return found


def is_browser(request: web.Request) -> bool:
    """Say whether a person's browser asks: programs do not ask for HTML."""
    return "text/html" in request.headers.get("Accept", "")


async def answer_with_file(request: web.Request, name: str) -> web.Response:
    """Return a file, or 304 for a client that has it. Raise ApiError 404."""
    found = (await asyncio.to_thread(console_files)).get(name)
    if found is None:
        raise not_found(f"/console/{name[:100]}")
    if any(each.value in (found.etag, "*") for each in request.if_none_match or ()):
        answer = web.Response(status=304)
    else:
        answer = web.Response(body=found.content, content_type=found.content_type, charset="utf-8")
    answer.headers.update(HEADERS)
    answer.etag = found.etag
    return answer
