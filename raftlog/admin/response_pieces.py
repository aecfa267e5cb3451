"""Sends a response in pieces to a client that may not read it."""

from __future__ import annotations

import asyncio

from aiohttp import web


async def send(answer: web.StreamResponse, piece: bytes, request: web.Request, *, within_s: float) -> None:
    """Send a piece of a prepared response. Raise ConnectionError, after closing the connection, if the client does not
    read it.
    """
    try:
        async with asyncio.timeout(within_s):
            await answer.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # a response that just ended would look complete
        raise ConnectionAbortedError(f"the client read nothing for {within_s:g} s") from None
