"""Sending an answer in pieces to somebody who may not read it."""

from __future__ import annotations

import asyncio

from aiohttp import web


async def send(answer: web.StreamResponse, piece: bytes, request: web.Request, *, within_s: float) -> None:
    """Send a piece of a prepared answer. Raises ConnectionError, with the connection cut, for who does not read it."""
    try:
        async with asyncio.timeout(within_s):
            await answer.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # an answer that just ended would pass for a whole one
        raise ConnectionAbortedError(f"the client took nothing for {within_s:g} s") from None
