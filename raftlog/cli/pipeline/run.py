"""A job from the command line: options of file and flags, signals, progress on stderr, the summary at last."""

from __future__ import annotations

import json
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from raftlog.cli import exits
from raftlog.cli.pipeline.screen import Screen
from raftlog.cli.spark_log import SparkLog
from raftlog.pipeline.jobs.common import SourceOptions
from raftlog.pipeline.jobs.control import Control, JobError, MissingError
from raftlog.pipeline.jobs.settings import SettingFaults, build
from raftlog.pipeline.login import for_java, with_texts

LOGIN_FILES: Final = {"command_config": ("client", "bootstrap"), "to_command_config": ("to_client", "to")}
"""Flags that name a file of a client's settings, and the options that these are added to."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command line."""

    config: Path | None
    flags: Mapping[str, Any]
    json: bool
    files: Mapping[str, Path | None] = field(default_factory=dict)


class Summary(Protocol):
    """The result of every job."""

    @property
    def sound(self) -> bool: ...

    def as_json(self) -> dict[str, Any]: ...

    def as_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job's function and its options."""

    run: Callable[..., Summary]
    options: type[SourceOptions]


def find(name: str) -> Job:
    """Return a job by name."""
    from raftlog.pipeline.jobs import aggregate, archive, audit, lake, mirror

    return {
        "archive": Job(archive.archive, archive.ArchiveOptions),
        "aggregate": Job(aggregate.aggregate, aggregate.AggregateOptions),
        "table": Job(lake.table, lake.TableOptions),
        "mirror": Job(mirror.mirror, mirror.MirrorOptions),
        "audit": Job(audit.audit, audit.AuditOptions),
    }[name]


def run(name: str, asked: Asked) -> int:
    """Run a job; returns the exit code."""
    job = find(name)
    try:
        config = _file(asked.config, name)
        options = build(job.options, config, asked.flags, _logins(asked, config))
    except SettingFaults as faults:
        for fault in faults.faults:
            print(f"raftlog pipeline {name}: {fault}", file=sys.stderr)
        return exits.USAGE
    try:
        return _run(name, job, options, as_json=asked.json)
    except JobError as error:
        print(f"raftlog pipeline {name}: {error}", file=sys.stderr)
        return exits.NOT_RUN if isinstance(error, MissingError) else exits.FAILED
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _file(path: Path | None, name: str) -> dict[str, Any]:
    """Return a TOML file's options: from the top, and from the table named like the job."""
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingFaults([f"config: {path}: {error}"]) from None
    own = found.pop(name, {})
    if not isinstance(own, dict):
        raise SettingFaults([f"config: {path}: [{name}] is not a table"])
    return {**{key: value for key, value in found.items() if not isinstance(value, dict)}, **own}


def _logins(asked: Asked, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that files of settings add to: single settings and servers win over them."""
    found: dict[str, Any] = {}
    given = {**config, **{name: value for name, value in asked.flags.items() if value is not None}}
    for flag, (client, servers) in LOGIN_FILES.items():
        if (path := asked.files.get(flag)) is None:
            continue
        settings = _settings_of(path, flag)
        if (named := settings.pop("bootstrap.servers", None)) and servers not in given:
            found[servers] = named
        if client == "client" and given.get("connector") == "kafka":
            settings = for_java(settings)
        single = given.get(client, ())
        own = single if isinstance(single, list | tuple) else [single]
        found[client] = [*(f"{name}={value}" for name, value in settings.items()), *own]
    return found


def _settings_of(path: Path, flag: str) -> dict[str, str]:
    from raftlog.base.config.files import parse_properties

    try:
        return with_texts(dict(parse_properties(path.read_text())))
    except (OSError, ValueError) as error:
        raise SettingFaults([f"{flag}: {path}: {error}"]) from None


def _run(name: str, job: Job, options: SourceOptions, *, as_json: bool) -> int:
    from raftlog.pipeline.jobs.session import make_session

    log = SparkLog()
    with Screen(name) as screen:
        screen.say(f"starting Spark, whose log is {log.path}")
        with log.inherited():
            spark = make_session(options, name)
        try:
            control = Control(on_batch=screen.on_batch)
            with _stopped_by_signals(control, screen) as caught:
                summary = job.run(spark, options, control)
        finally:
            spark.stop()
    print(json.dumps(summary.as_json()) if as_json else summary.as_text())
    log.drop()
    if not summary.sound:
        return exits.VERIFICATION_FAILED
    return exits.INTERRUPTED if signal.SIGINT in caught else 0


@contextmanager
def _stopped_by_signals(control: Control, screen: Screen) -> Iterator[set[int]]:
    """Let SIGTERM and SIGINT end the job after its batch, and a second signal at once; yield the received signals."""
    caught: set[int] = set()

    def order(number: int, _frame: Any) -> None:
        if control.stopping.is_set():
            raise KeyboardInterrupt
        caught.add(number)
        control.stopping.set()
        screen.say("stopping after this batch; once more stops at once")

    # after Spark started: it puts a handler of its own on SIGINT
    before = {number: signal.signal(number, order) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
