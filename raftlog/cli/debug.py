"""`raftlog debug bundle`: what a bug report needs, in one archive, without secrets."""

from __future__ import annotations

import io
import json
import platform
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.cluster_view import ClusterView, look
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import api_of
from raftlog.cli.quorum import quorum_of
from raftlog.cli.secrets_out import is_secret, values_without_secrets, without_secrets
from raftlog.cli.target import Target

HTTP_S: Final = 5.0
LOG_BYTES: Final = 5_000_000
"""Of each log its end is taken."""
MOST_LOGS: Final = 50
MOST_TOPICS: Final = 200
"""Topics whose configs are taken."""
ROUTES: Final = ("health", "ready", "quorum", "clock", "restart-risks", "samples", "nodes")
README: Final = """\
A bundle of `raftlog debug bundle`, for a bug report: what the cluster says of itself, and logs.

cluster.json      brokers, partitions, end offsets, groups with their lag
quorum.json       the metadata quorum
settings/         the settings in force on each broker, and topics' configs
http/             what each node's HTTP API says: health, clock, samples, metrics
logs/             the ends of the logs that were named, or found
missing.txt       what could not be asked, and why

Values of settings and fields that are named as secrets are replaced by [secret]. Names of topics, groups, users and
hosts are in it: look through it before you send it to others. There are no records in it.
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
        collected.file(f"config/{each.name}", each)
    for each in [*(log or ()), *_logs_of_dev(target)]:
        _add_logs(collected, each)
    collected.write(path)
    size = f"{len(collected.files)} files, {path.stat().st_size / 1000:,.0f} kB"
    print(f"{path}: {size}; look through it before you send it")
    for reason in collected.missing:
        print(f"raftlog: missing: {reason}", file=sys.stderr)
    return exits.OK if view is not None else exits.UNREACHABLE


class Bundle:
    """The files of an archive. Each text passes the removal of secrets on its way in."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
        self.files: dict[str, str] = {}
        self.missing: list[str] = []

    def text(self, name: str, text: str) -> None:
        """Add a text."""
        self.files[name] = without_secrets(text, self._known)

    def json(self, name: str, found: Any) -> None:
        """Add what can be written as JSON."""
        found = values_without_secrets(json.loads(json.dumps(found, default=_as_text)), self._known)
        self.files[name] = json.dumps(found, indent=1)

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

    def file(self, name: str, path: Path) -> None:
        """Add the end of a file of this machine."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                file.seek(max(0, size - LOG_BYTES))
                if size > LOG_BYTES:
                    file.readline()
                self.text(name, file.read().decode(errors="replace"))
        except OSError as error:
            self.missing.append(f"{path}: {error.strerror}")

    def write(self, path: Path) -> None:
        """Write the archive, readable for this user. Raise Failure."""
        from raftlog.base.disk import write_file

        packed = io.BytesIO()
        self.text("missing.txt", "".join(f"{each}\n" for each in self.missing) or "all was answered\n")
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sorted(self.files.items()):
                archive.writestr(name, text)
        try:
            write_file(path, packed.getvalue(), secret=True)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None


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
    changed: dict[str, Any] = {}
    for topic in sorted({each.topic for each in view.partitions})[:MOST_TOPICS]:
        found = collected.ask(f"configs of {topic}", partial(settings_of, target, "topic", topic))
        changed[topic] = [row for row in found or () if row["source"] != "default"]
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

    return logs_at([port for _, port in addresses_of(target.servers)])


def _add_logs(collected: Bundle, path: Path) -> None:
    paths = sorted(path.rglob("*.log*"))[:MOST_LOGS] if path.is_dir() else [path]
    for each in paths:
        if each.is_file() or not path.is_dir():
            # two nodes may have logs of the same name
            collected.file(f"logs/{each.parent.name}-{each.name}", each)
