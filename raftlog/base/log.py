"""The log: structlog events, JSON lines to a pipe, readable on a terminal.

Events are stable, snake_case, past tense, unique. info is an operator's timeline, warning healed itself, error needs a
person; hot paths count instead. structlog is imported on first use, so that a command that logs nothing starts fast.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

LIMITED_LINES: Final = 5
LIMITED_EVERY_S: Final = 10.0
"""A `LimitedLog` writes so many lines of an event in so many seconds."""


def _structlog() -> Any:
    """Import structlog without rich, which it would load for colourful tracebacks: a third of a node's log's start."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return importlib.import_module("structlog")
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of None fails, which structlog allows for
    try:
        return importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def configure_log(
    *, level: str = "info", format: str = "auto", node_id: int | None = None, stream: Any = None
) -> None:
    """Send events of `level` and above to `stream` (stderr), each with `node_id`; call once, before the first event.

    `format`: json, console, or auto, which is console on a terminal. Raises KeyError for an unknown level.
    """
    structlog = _structlog()
    output: TextIO = sys.stderr if stream is None else stream
    console = format == "console" or (format == "auto" and output.isatty())
    structlog.configure(
        processors=[*_shared_processors(node_id), *(_console(output) if console else _json())],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str = "", **bound: object) -> FilteringBoundLogger:
    """Return a logger whose events carry `room=name` and what is bound; fine to call before `configure_log`.

    A module's `__name__` is a fine name: the package's own is left out.
    """
    structlog, room = _structlog(), name.removeprefix("raftlog.")
    return cast("FilteringBoundLogger", structlog.get_logger(**({"room": room} if room else {}), **bound))


class LimitedLog:
    """A log for events that a client or peer can cause at will.

    LIMITED_LINES of each event are written in LIMITED_EVERY_S. The others are counted, and the next line that is
    written says in `left_out` how many there were. `flush` now and then, so that a flood's end is told as well.
    """

    __slots__ = ("_clock", "_counts", "_log")

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        """`clock` in seconds: a simulation has no other than its loop's."""
        self._log = log
        self._clock = clock
        self._counts: dict[str, _Lines] = {}

    def warning(self, event: str, **facts: object) -> None:
        """Write an event, or count it."""
        left_out = self._left_out(event)
        if left_out is not None:
            self._log.warning(event, **facts, **left_out)

    def exception(self, event: str, *, what: str, **facts: object) -> None:
        """Write an event with the traceback of the exception being handled, or count it; by `what` failed."""
        left_out = self._left_out(f"{event} {what}")
        if left_out is not None:
            self._log.exception(event, what=what, **facts, **left_out)

    def flush(self) -> None:
        """Tell what was left out of events that nothing more is heard of."""
        now = self._clock()
        for key, lines in tuple(self._counts.items()):
            if now - lines.since >= LIMITED_EVERY_S:
                del self._counts[key]
                if lines.left_out:
                    self._log.warning("log_lines_left_out", of=key, left_out=lines.left_out)

    def _left_out(self, key: str) -> dict[str, int] | None:
        """Return what a line is to say of those left out before it; None: this one is left out."""
        now = self._clock()
        lines = self._counts.get(key)
        if lines is None or now - lines.since >= LIMITED_EVERY_S:
            left_out = 0 if lines is None else lines.left_out
            self._counts[key] = _Lines(now)
            return {"left_out": left_out} if left_out else {}
        if lines.written < LIMITED_LINES:
            lines.written += 1
            return {}
        lines.left_out += 1
        return None


class _Lines:
    """Of one event, since its first line."""

    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 1
        self.left_out = 0


def _shared_processors(node_id: int | None) -> list[Processor]:
    structlog = _structlog()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if node_id is not None:
        processors.append(functools.partial(_with_node_id, node_id))
    return processors


def _with_node_id(node_id: int, _logger: Any, _method: str, event: Any) -> Any:
    event.setdefault("node_id", node_id)
    return event


def _console(output: TextIO) -> list[Processor]:
    structlog = _structlog()
    return [structlog.dev.ConsoleRenderer(colors=output.isatty())]


def _json() -> list[Processor]:
    structlog = _structlog()
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]


def _to_json(event: dict[str, Any], **_: Any) -> str:
    import msgspec

    return msgspec.json.encode(event, enc_hook=str).decode()
