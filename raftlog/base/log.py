"""The log: structlog events, JSON lines to a pipe, readable on a terminal.

Events are stable, snake_case, past tense, unique. info is an operator's timeline, warning healed itself, error needs a
person. Hot paths count instead. structlog is imported on first use, so that commands without logs start fast. `LOGGERS`
holds the levels of this process's loggers, which Kafka's tools change while it runs (KIP-412).

No call of a logger raises, whatever its facts are and wherever its lines go: a line that cannot be written is counted
(`log_state`). Even so, error handlers act before they log.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, cast

from raftlog.base import import_without
from raftlog.base.log_output import LogOutput, Lost, describe, output_of

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

    from raftlog.base.audit_file import AuditFile

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
KAFKA_LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""The levels of a logger by Kafka's names. No event is less severe than debug or more severe than critical."""

ROOT: Final = "raftlog"
AUDIT: Final = "audit"
"""The room of the audit log. Its level is that of the config: clients cannot silence it."""


class Loggers:
    """The level of each logger. A logger is a room or a part of a room, named as its module.

    A logger without a level of its own has that of the nearest parent; the topmost is `ROOT`.
    """

    def __init__(self) -> None:
        self._names = {ROOT}
        self._own = {ROOT: "INFO"}
        self._first = self._own[ROOT]
        self._thresholds: dict[str, int] = {}

    def add(self, room: str) -> None:
        """Register a room's logger and its parents."""
        while room:
            self._names.add(f"{ROOT}.{room}")
            room = room.rpartition(".")[0]

    def start(self, level: str) -> None:
        """Set `ROOT` to the config's level, a key of KAFKA_LEVELS, and drop all changes."""
        self._first, self._own, self._thresholds = level, {ROOT: level}, {}

    def levels(self) -> Mapping[str, str]:
        """Return the level in force of each logger, by name."""
        return {name: self._level(name) for name in sorted(self._names)}

    def change(self, name: str, level: str | None) -> None:
        """Set a logger's own level; None removes it, except for `ROOT`."""
        assert name in self._names, "the caller has checked"
        if level is not None:
            self._own[name] = level
        elif name != ROOT:
            self._own.pop(name, None)
        self._thresholds = {}

    def threshold(self, room: str) -> int:
        """Return the least severe level that is written for a room, as in LEVELS."""
        found = self._thresholds.get(room)
        if found is None:
            level = self._first if room == AUDIT else self._level(f"{ROOT}.{room}" if room else ROOT)
            found = self._thresholds[room] = KAFKA_LEVELS[level]
        return found

    def _level(self, name: str) -> str:
        while name not in self._own:
            name = name.rpartition(".")[0]
        return self._own[name]


LOGGERS: Final = Loggers()

LIMITED_LINES: Final = 5
LIMITED_EVERY_S: Final = 10.0
"""A `LimitedLog` writes a limited number of lines per event in this many seconds."""


def _structlog() -> Any:
    """Import structlog without rich, which it would load for colourful tracebacks: a third of the log's start-up
    time.
    """
    return import_without("rich", "structlog")


class LogState(NamedTuple):
    """The state of a log: whether it can be written. A reason is empty if it can."""

    reason: str
    """Why its lines cannot be written now."""
    lines_lost: int
    """Since the process began."""
    audit_file: str
    """The path of the audit log's own file, if any."""
    audit_reason: str
    """Why that file cannot be written now. Its lines go to the node's log meanwhile."""


class _Log(NamedTuple):
    """The log of this process, or of a part of it."""

    output: LogOutput
    audit_file: AuditFile | None = None
    processors: tuple[Processor, ...] = ()
    """The processors of a separate log. The process's own log uses structlog's configuration."""


_configured = _Log(LogOutput())
_separate: Final[ContextVar[_Log | None]] = ContextVar("raftlog_separate_log", default=None)

BEFORE_LINE: Final[ContextVar[Callable[[], None] | None]] = ContextVar("raftlog_before_line", default=None)
"""Called with each line of any level in this context. A simulation raises here the errors of a failing log."""


def configure_log(
    *,
    level: str = "info",
    format: str = "auto",
    node_id: int | None = None,
    stream: Any = None,
    audit_file: str = "",
) -> None:
    """Send events of `level` and above to `stream` (stderr), each with `node_id`; call once, before the first event.

    `format`: json, console, or auto, which is console on a terminal. Raise KeyError for an unknown level. The events of
    the audit log go to `audit_file`, if given, as JSON.
    """
    global _configured  # noqa: PLW0603 - one for the process
    structlog = _structlog()
    LOGGERS.start(next(name for name, number in KAFKA_LEVELS.items() if number == LEVELS[level]))
    stream = sys.stderr if stream is None else stream
    terminal = stream is not None and stream.isatty()
    output = output_of(stream)
    output.on_recovery = _report_lost_lines
    audit = _audit_file(audit_file, output) if audit_file else None
    _configured = _Log(output, audit)
    structlog.configure(
        processors=[
            *_shared_processors(node_id),
            *([functools.partial(_take_audit_event, audit)] if audit is not None else []),
            *(
                _console(colours=terminal)
                if format == "console" or (format == "auto" and terminal)
                else _json()
            ),
        ],
        logger_factory=lambda *_: _LineLogger(output),
        cache_logger_on_first_use=True,
    )


@contextmanager
def separate_log(stream: TextIO) -> Iterator[LogOutput]:
    """Send the events of this context, and of the tasks that it starts, to `stream` as JSON.

    structlog's own configuration, which belongs to the surrounding program, is neither used nor changed.
    """
    output = output_of(stream)
    token = _separate.set(_Log(output, None, (*_shared_processors(None), *_json())))
    context = copy_context()
    output.on_recovery = lambda lost: context.copy().run(_report_lost_lines, lost)
    try:
        yield output
    finally:
        _separate.reset(token)
        output.close()


def log_state() -> LogState:
    """Return whether the log of this context can be written."""
    output, audit_file, _ = _separate.get() or _configured
    path, reason = ("", "") if audit_file is None else (audit_file.path, audit_file.reason)
    return LogState(output.reason, output.lines_lost, path, reason)


def flush_log() -> None:
    """Wait for the lines of this process, a second at most: for a process that ends without `atexit`."""
    _configured.output.flush()


def _report_lost_lines(lost: Lost) -> None:
    get_logger("base.log").warning("log_lines_lost", **lost._asdict())


class _LineLogger:
    """The logger below structlog, for rendered lines."""

    __slots__ = ("critical", "debug", "error", "info", "msg", "warning")

    def __init__(self, output: LogOutput) -> None:
        self.msg = self.debug = self.info = self.warning = self.error = self.critical = output.write


@functools.cache
def _logger_class() -> Any:
    """Return the class of all loggers, which is made once structlog is imported."""
    base: Any = _structlog().make_filtering_bound_logger(LEVELS["debug"])

    def to_its_log(self: Any, method: str, event: str | None = None, /, **facts: Any) -> None:
        separate = _separate.get()
        try:
            before = BEFORE_LINE.get()
            if before is not None:
                before()
            logger = self
            if separate is not None:
                logger = base(_LineLogger(separate.output), separate.processors, self._context)
            base._proxy_to_logger(logger, method, event, **facts)
        except Exception as error:
            _count_lost_line(separate or _configured, event, error)

    return type("Logger", (base,), {"_proxy_to_logger": to_its_log})


def _count_lost_line(log: _Log, _event: str | None, error: Exception) -> None:
    """Count a line that could not be rendered. Planted bugs raise here instead."""
    log.output.lose(describe(error))


def get_logger(name: str = "", **bound: object) -> FilteringBoundLogger:
    """Return a logger with `room=name` and the bound fields in its events; fine before `configure_log`.

    `name` may be a module's `__name__`: the package's own is removed.
    """
    structlog, room = _structlog(), name.removeprefix("raftlog.")
    if room != AUDIT:
        LOGGERS.add(room)
    if room:
        bound = {"room": room, **bound}
    return cast("FilteringBoundLogger", structlog.wrap_logger(None, wrapper_class=_logger_class(), **bound))


class LimitedLog:
    """A log for events that a client or peer can cause at will.

    LIMITED_LINES of each event are written in LIMITED_EVERY_S. The others are counted, and the next line has their
    number in `left_out`. Call `flush` now and then, so that the end of a flood is logged as well. `per` is an event's
    subject: each subject has its own limit.
    """

    __slots__ = ("_clock", "_counts", "_log")

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        """`clock` in seconds: a simulation has only its loop's."""
        self._log = log
        self._clock = clock
        self._counts: dict[str, _Lines] = {}

    def info(self, event: str, *, per: object = "", **facts: object) -> None:
        """Write an event, or count it."""
        left_out = self._left_out(f"{event} {per}" if per else event)
        if left_out is not None:
            self._log.info(event, **facts, **left_out)

    def warning(self, event: str, *, per: object = "", **facts: object) -> None:
        """Write an event that needs attention, or count it."""
        left_out = self._left_out(f"{event} {per}" if per else event)
        if left_out is not None:
            self._log.warning(event, **facts, **left_out)

    def exception(self, event: str, *, what: str, **facts: object) -> None:
        """Write an event with the traceback of the exception being handled, or count it; by the `what` that failed."""
        left_out = self._left_out(f"{event} {what}")
        if left_out is not None:
            self._log.exception(event, what=what, **facts, **left_out)

    def flush(self) -> None:
        """Log the counts of events without a later line."""
        now = self._clock()
        for key, lines in tuple(self._counts.items()):
            if now - lines.since >= LIMITED_EVERY_S:
                del self._counts[key]
                if lines.left_out:
                    self._log.warning("log_lines_suppressed", suppressed_event=key, left_out=lines.left_out)

    def _left_out(self, key: str) -> dict[str, int] | None:
        """Return the number of omitted lines before this line; None to omit this line too."""
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
    """The lines of one event, since the first."""

    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 1
        self.left_out = 0


def _shared_processors(node_id: int | None) -> list[Processor]:
    structlog = _structlog()
    processors: list[Processor] = [
        functools.partial(_drop_below_threshold, structlog.DropEvent),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if node_id is not None:
        processors.append(functools.partial(_with_node_id, node_id))
    return processors


def _drop_below_threshold(drop: type[BaseException], _logger: Any, method: str, event: Any) -> Any:
    if LEVELS.get(method, LEVELS["error"]) < LOGGERS.threshold(event.get("room", "")):
        raise drop
    return event


def _with_node_id(node_id: int, _logger: Any, _method: str, event: Any) -> Any:
    event.setdefault("node_id", node_id)
    return event


def _audit_file(path: str, output: LogOutput) -> AuditFile:
    from raftlog.base.audit_file import AuditFile

    log = get_logger("base.audit_file")

    def say(reason: str) -> None:
        log.error(
            "audit_file_failed",
            path=path,
            reason=reason,
            consequence="lines of the audit log are in this log until the file can be written",
        )

    return AuditFile(path, fall_back=output.write, say=say)


def _take_audit_event(file: AuditFile, _logger: Any, _method: str, event: Any) -> Any:
    """Divert the events of the audit log to their own file, as long as it works."""
    if event.get("room") == AUDIT and file.write(_to_json(event)):
        raise _structlog().DropEvent
    return event


def _console(*, colours: bool) -> list[Processor]:
    render = _structlog().dev.ConsoleRenderer(colors=colours)

    def render_all(logger: Any, method: str, event: Any) -> Any:
        try:
            return render(logger, method, dict(event))
        except Exception:
            return render(logger, method, _printable(event))

    return [render_all]


def _json() -> list[Processor]:
    structlog = _structlog()
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]


def _to_json(event: dict[str, Any], **_: Any) -> str:
    import msgspec

    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except Exception:
        return msgspec.json.encode(_printable(event)).decode()


def _printable(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event with printable facts: numbers, and text without surrogates."""
    return {
        name: value if isinstance(value, bool | int | float) else _text(value)
        for name, value in event.items()
    }


def _text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
        return text.encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__} that cannot be written>"
