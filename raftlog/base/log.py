"""The log: structlog events, JSON lines to a pipe, readable on a terminal.

Events are stable, snake_case, past tense, unique. info is an operator's timeline, warning healed itself, error needs a
person; hot paths count instead. structlog is imported on first use, so that a command that logs nothing starts fast.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


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
