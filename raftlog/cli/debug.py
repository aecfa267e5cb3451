"""`raftlog debug bundle`: what a bug report needs, in one archive, without secrets."""

from __future__ import annotations

import codecs
import io
import json
import os
import platform
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.cluster_view import ClusterView, look
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import api_of
from raftlog.cli.quorum import quorum_of
from raftlog.cli.secrets_out import (
    LINE_CHARS,
    OUT,
    is_secret,
    lines_without_secrets,
    values_without_secrets,
    without_secrets,
)
from raftlog.cli.target import Target

HTTP_S: Final = 5.0
LOG_BYTES: Final = 5_000_000
"""Of each log its end is taken."""
ALL_LOG_BYTES: Final = 50_000_000
BEGINNING_BYTES: Final = 4096
"""Bytes by which a file is judged to be text."""
MOST_LOGS: Final = 50
MOST_TOPICS: Final = 200
"""Topics whose configs are taken."""
FOREIGN: Final = (".yml", ".yaml", ".json")
"""Suffixes of files that a node does not read as its config."""
_SEGMENT: Final = re.compile(r"[0-9]{20}\b")
"""Files of partitions have the offset of their first record as their name."""
ROUTES: Final = ("health", "ready", "quorum", "clock", "restart-risks", "samples", "nodes")
README: Final = """\
A bundle of `raftlog debug bundle`, for a bug report: what the cluster says of itself, and logs.

cluster.json      brokers, partitions, end offsets, groups with their lag
quorum.json       the metadata quorum
settings/         the settings in force on each broker, and topics' configs
http/             what each node's HTTP API says: health, clock, samples, metrics
logs/             the ends of the logs that were named, or found
missing.txt       what could not be asked and why, and what was left out

Values of settings and fields that are named as secrets are replaced by [secret]. Names of topics, groups, users and
hosts are in it: look through it before you send it to others. Folders with records are passed over.
"""

debug = noun("Collect what a bug report needs.")


@debug.callback()
def group() -> None:
    """Collect what a bug report needs."""


@verb(debug, "bundle")
def bundle(
    target: Target,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="default: raftlog-debug-TIME.zip, here")
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option("--log", metavar="PATH", help="a node's log, or a folder with *.log; may be repeated"),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="a node's config file; may be repeated"),
    ] = None,
) -> int:
    """Write logs, metadata, settings and metrics of all nodes to one archive, without secrets.

    Nodes are asked over Kafka's protocol and HTTP. Logs are files on this machine: of a `raftlog dev` with the same
    address they are found. The archive names what a node did not answer.
    """
    path = to or Path(time.strftime("raftlog-debug-%Y%m%dT%H%M%SZ.zip", time.gmtime()))
    if path.exists():
        raise Failure(f"{path} exists", exits.EXISTS)
    collected = Bundle(_known_secrets(target))
    collected.text("README.txt", README)
    collected.json(
        "client.json", {"raftlog": _version(), "python": sys.version, "system": platform.platform()}
    )
    view = collected.ask("cluster", lambda: look(target))
    collected.ask("quorum", lambda: asdict(quorum_of(target)), "quorum.json")
    if view is not None:
        ends = {f"{topic}-{number}": end for (topic, number), end in view.ends.items()}
        collected.json("cluster.json", {**asdict(replace(view, ends={})), "ends": ends})
        _add_settings(collected, target, view)
    _add_http(collected, target)
    for each in config or ():
        collected.config(each)
    for each in [*(log or ()), *_logs_of_dev(target)]:
        _add_logs(collected, each)
    collected.write(path)
    size = f"{len(collected.names)} files, {path.stat().st_size / 1000:,.0f} kB"
    print(f"{path}: {size}; look through it before you send it")
    for reason in collected.missing:
        print(f"raftlog: missing: {reason}", file=sys.stderr)
    return exits.OK if view is not None else exits.UNREACHABLE


class Bundle:
    """The files of an archive, packed as they are added. Each text passes the removal of secrets on its way in."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
        self._packed = io.BytesIO()
        self._archive = zipfile.ZipFile(self._packed, "w", zipfile.ZIP_DEFLATED)
        self._log_bytes = ALL_LOG_BYTES
        self.names: set[str] = set()
        self.missing: list[str] = []

    def lines(self, name: str, lines: Iterable[str]) -> None:
        """Add a text line by line. A name that is taken gets a number."""
        path, number = Path(name), 1
        while name in self.names:
            number += 1
            name = str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
        self.names.add(name)
        with self._archive.open(name, "w") as file:
            for line in lines_without_secrets(lines, self._known):
                file.write(f"{line}\n".encode(errors="replace"))

    def text(self, name: str, text: str) -> None:
        """Add a text."""
        self.lines(name, text.splitlines())

    def json(self, name: str, found: Any) -> None:
        """Add what can be written as JSON."""
        found = values_without_secrets(json.loads(json.dumps(found, default=_as_text)), self._known)
        self.names.add(name)
        self._archive.writestr(name, json.dumps(found, indent=1))

    def ask(self, what: str, ask: Callable[[], Any], name: str = "") -> Any:
        """Return what is asked for, and add it as `name`; None, with the reason in `missing`, if that fails."""
        try:
            found = ask()
        except Failure as failure:
            self.missing.append(without_secrets(f"{what}: {failure}", self._known))
            return None
        if name:
            self.json(name, found)
        return found

    def config(self, path: Path) -> None:
        """Add the settings of a config file, as a node reads them: by name, without comments."""
        from raftlog.base.config import environment_name, parse_file
        from raftlog.base.config import is_secret as is_secret_setting

        try:
            text = path.read_text("utf-8-sig", errors="replace")
            if path.suffix.lower() in FOREIGN:
                self.text(f"config/{path.name}", text)
                return
            values = parse_file(text, name=path.name)
        except (OSError, ValueError) as error:
            self.missing.append(without_secrets(f"{path}: {error}", self._known))
            return
        found = {
            name: OUT if value and is_secret_setting(environment_name(name)) else value
            for name, value in values.items()
        }
        found = values_without_secrets(found, self._known)
        self.lines(f"config/{path.name}", (f"{name}={value}" for name, value in found.items()))

    def log(self, path: Path) -> None:
        """Add the end of a log of this machine."""
        try:
            with path.open("rb") as file:
                if not _begins_as_text(file.read(BEGINNING_BYTES)):
                    self.missing.append(f"{path}: no text")
                    return
                size = file.seek(0, io.SEEK_END)
                most = min(LOG_BYTES, self._log_bytes)
                if most == 0:
                    self.missing.append(f"{path}: the bundle has {ALL_LOG_BYTES} bytes of logs already")
                    return
                file.seek(max(0, size - most))
                if size > most:
                    _skip_line(file)
                    self.missing.append(f"{path}: its first {file.tell()} bytes")
                self._log_bytes -= min(size, most)
                self.lines(f"logs/{path.parent.name}-{path.name}", _lines_of(file, size))
        except OSError as error:
            self.missing.append(f"{path}: {error.strerror}")

    def write(self, path: Path) -> None:
        """Write the archive, readable for this user. Raise Failure."""
        from raftlog.base.disk import write_file

        self.lines("missing.txt", self.missing or ["every question was answered"])
        self._archive.close()
        try:
            write_file(path, self._packed.getvalue(), secret=True)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None


def _lines_of(file: BinaryIO, end: int) -> Iterator[str]:
    """Yield the lines up to `end`, without their ends; a line beyond what is searched is cut."""
    while file.tell() < end and (line := file.readline(2 * LINE_CHARS)):
        if not line.endswith(b"\n"):
            _skip_line(file)
        yield line.decode(errors="replace").rstrip("\r\n")


def _skip_line(file: BinaryIO) -> None:
    while (passed := file.readline(2 * LINE_CHARS)) and not passed.endswith(b"\n"):
        pass


def _begins_as_text(beginning: bytes) -> bool:
    """Return whether these bytes are UTF-8 without control characters; the last character may be cut."""
    try:
        found = codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return not any(each < " " and each not in "\t\n\r\f\b\x1b" for each in found)


def _as_text(found: object) -> object:
    return list(found) if isinstance(found, set | frozenset) else str(found)


def _version() -> str:
    from raftlog import __version__

    return __version__


def _known_secrets(target: Target) -> set[str]:
    """Return the secrets that this command knows: they are looked for in every text."""
    from raftlog.cli import contexts

    named: Mapping[str, str] = {**contexts.read_http(target.file), **target.settings}
    found = {value for name, value in named.items() if is_secret(name)}
    return found | {named.get(contexts.HTTP_USER, "").partition(":")[2]} - {""}


def _add_settings(collected: Bundle, target: Target, view: ClusterView) -> None:
    for each in view.brokers:
        if each["state"] == "unfenced":
            name = f"settings/broker-{each['broker']}.json"
            broker = str(each["broker"])
            collected.ask(name, partial(settings_of, target, "broker", broker), name)
    changed: list[dict[str, Any]] = []
    topics = sorted({each.topic for each in view.partitions})
    if len(topics) > MOST_TOPICS:
        collected.missing.append(f"configs of {len(topics) - MOST_TOPICS} of {len(topics)} topics")
    for topic in topics[:MOST_TOPICS]:
        found = collected.ask(f"configs of {topic}", partial(settings_of, target, "topic", topic))
        rows = [row for row in found or () if row["source"] != "default"]
        changed.append({"topic": topic, "configs": rows})
    collected.json("settings/topics.json", changed)


def _add_http(collected: Bundle, target: Target) -> None:
    first = api_of(target, HTTP_S)
    nodes = collected.ask("HTTP API", lambda: first.ask("GET", "/v1/nodes"))
    for node in () if nodes is None else nodes["data"]:
        if not node["http_url"]:
            collected.missing.append(f"HTTP API of node {node['broker_id']}: not reached")
            continue
        api = HttpApi(node["http_url"], first.token, HTTP_S)
        api.user, api.cacert, api.certificate, api.key = (
            first.user,
            first.cacert,
            first.certificate,
            first.key,
        )
        api.only_over_tls = first.only_over_tls
        folder = f"http/node-{node['broker_id']}"
        metrics = collected.ask(f"{folder}/metrics.txt", partial(api.text, "/metrics"))
        if metrics is None:
            continue  # the rest would wait as long
        collected.text(f"{folder}/metrics.txt", metrics)
        for route in ROUTES:
            name = f"{folder}/{route}.json"
            collected.ask(name, partial(api.ask, "GET", f"/v1/{route}"), name)


def _logs_of_dev(target: Target) -> list[Path]:
    """Return the logs of a `raftlog dev` of this user with an address of the target."""
    from raftlog.cli.client_settings import addresses_of
    from raftlog.cli.dev_nodes import logs_at

    return logs_at(addresses_of(target.servers))


def _add_logs(collected: Bundle, path: Path) -> None:
    """Add a log, or those in a folder. Folders of partitions and of metadata hold records, so they are passed over."""
    if not path.is_dir():
        if _SEGMENT.match(path.name):
            collected.missing.append(f"{path}: a file of a partition, which may hold records")
        else:
            collected.log(path)
        return
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        if any(name == "meta.properties" or "checkpoint" in name for name in names):
            collected.missing.append(f"{folder}: a node's data, which may hold records")
            folders.clear()
            continue
        folders.sort()
        logs = (name for name in sorted(names) if ".log" in name and not _SEGMENT.match(name))
        found += [Path(folder, name) for name in logs if Path(folder, name).is_file()]
    for each in found[:MOST_LOGS]:
        collected.log(each)
    if len(found) > MOST_LOGS:
        collected.missing.append(
            f"{path}: {len(found) - MOST_LOGS} of {len(found)} logs; the first are taken"
        )
