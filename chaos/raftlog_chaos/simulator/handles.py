"""Scheduled callbacks of the simulated loop: asyncio's handles, lighter, and each with its process."""

# The attributes are the slots of asyncio's own handles, which typeshed leaves out.
# mypy: disable-error-code="attr-defined,unused-ignore"

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog_chaos.simulator.hosts import Process
    from raftlog_chaos.simulator.loop import SimLoop


class SimHandle(asyncio.Handle):
    """A callback that is ready to run in a process."""

    __slots__ = ("process",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: SimLoop,
        context: contextvars.Context,
        process: Process,
    ) -> None:
        # asyncio's own __init__ asks for debug mode and tracebacks: a third of a callback's cost
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._source_traceback = None
        self._repr = None
        self.process = process


class SimTimer(asyncio.TimerHandle):
    """A callback at a moment of virtual time."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        *,
        loop: SimLoop,
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._when = when
        self._scheduled = True
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._source_traceback = None
        self._repr = None
        self.process = process


def label_of(callback: Any) -> str:
    """Name a callback in a way that does not depend on addresses."""
    owner = getattr(callback, "__self__", None)
    label: str | None = getattr(owner, "label", None)
    if label is not None and isinstance(owner, asyncio.Task):
        return label
    name: str | None = getattr(callback, "__qualname__", None)
    if name is not None:
        return name
    inner = getattr(callback, "func", None)
    return type(callback).__qualname__ if inner is None else label_of(inner)
