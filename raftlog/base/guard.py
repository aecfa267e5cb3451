"""The guard between what a client or peer can cause and the end of the process.

A callback of the event loop that raises ends the node (`process.py`), since it counts as a broken invariant. Callbacks
and tasks that act for a connection therefore run under its guard: an exception costs that connection only.
`tests/house/test_guard.py` finds callbacks without a guard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any


class Guard:
    """A connection under which callbacks run. Subclasses implement its end."""

    __slots__ = ()

    def crash(self, what: str) -> None:
        """Log the exception being handled, once, and close this connection at once. `what` was being done."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close this connection at once."""
        raise NotImplementedError

    def guarded(self, call: Callable[..., object], *args: Any) -> Callable[..., None]:
        """Return a callback for the event loop that calls `call(*args, ...)`; an exception closes this connection."""
        return partial(self.run_guarded, call, *args)

    def run_guarded(self, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` now; an exception closes this connection."""
        try:
            call(*args)
        except Exception:
            self.crash(getattr(call, "__qualname__", repr(call)))

    async def guarded_task(self, work: Awaitable[object]) -> None:
        """Await work, as the coroutine of a task; an exception, or being cancelled, closes this connection."""
        try:
            await work
        except Exception:
            self.crash(getattr(work, "__qualname__", repr(work)))
        except BaseException:
            self.abort()
            raise
