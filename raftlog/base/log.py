"""The log: structlog events, JSON lines to a pipe, readable on a terminal.

Events are stable, snake_case, past tense, unique. info is an operator's timeline, warning healed itself, error needs a
person; hot paths count instead. structlog is imported on first use, so that a command that logs nothing starts fast.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_log(
    *, level: str = "info", format: str = "auto", node_id: int | None = None, stream: Any = None
) -> None:
    """Send events of `level` and above to `stream` (stderr), each with `node_id`; call once, before the first event.

    `format`: json, console, or auto, which is console on a terminal. Raises KeyError for an unknown level.
    """
    import structlog

    output: TextIO = sys.stderr if stream is None else stream
    console = format == "console" or (format == "auto" and output.isatty())
    structlog.configure(
        processors=[*_shared_processors(node_id), *(_console(output) if console else _json())],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str = "", **bound: object) -> FilteringBoundLogger:
    """Return a logger whose events carry `room=name` and what is bound; fine to call before `configure_log`."""
    import structlog

    return cast("FilteringBoundLogger", structlog.get_logger(**({"room": name} if name else {}), **bound))


def _shared_processors(node_id: int | None) -> list[Processor]:
    import structlog

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
    import structlog

    return [structlog.dev.ConsoleRenderer(colors=output.isatty())]


def _json() -> list[Processor]:
    import structlog

    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]


def _to_json(event: dict[str, Any], **_: Any) -> str:
    import msgspec

    return msgspec.json.encode(event, enc_hook=str).decode()
