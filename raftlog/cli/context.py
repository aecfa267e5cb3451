"""`raftlog context`: save how clusters are reached, and choose one for all commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.base import variables
from raftlog.cli import contexts, exits
from raftlog.cli.client_settings import CERTIFICATE_FILES, check_file, dialer_of
from raftlog.cli.cluster_command import noun
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import split_login, without_login
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target

VARIABLES: Final = (variables.BOOTSTRAP, variables.HTTP, variables.REGISTRY, variables.CONTEXT)
"""Variables that take precedence over the current context."""

context = noun("Save how clusters are reached, and choose one for all commands.")


def _complete(incomplete: str) -> list[str]:
    return [name for name in contexts.names() if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_complete)]


@context.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap",
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="the cluster's nodes, with commas",
        ),
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="NAME=VALUE", help="a client's setting, by librdkafka's name"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-F", "--command-config", metavar="FILE", help="such settings, which are copied"),
    ] = None,
    url: Annotated[str, typer.Option("--http", metavar="URL", help="the HTTP API of a node")] = "",
    registry: Annotated[
        str,
        typer.Option("--registry", metavar="URL", help="the schema registry of a node, or another registry"),
    ] = "",
    token: Annotated[str, typer.Option("--token", help="for the HTTP API")] = "",
    user: Annotated[
        str,
        typer.Option("--user", "-u", metavar="NAME:PASSWORD", help="for the HTTP API, if not Kafka's login"),
    ] = "",
    cacert: Annotated[
        str,
        typer.Option("--cacert", metavar="FILE", help="PEM file of the HTTP API's authority, if not Kafka's"),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="also if the context exists")] = False,
) -> None:
    """Save a context: addresses and login of a cluster, its HTTP API and registry. The first is used at once."""
    target = Target(bootstrap, tuple(setting or ()), file)
    settings = {**target.settings, **contexts.read_http(file)}
    if target.is_default or not target.servers.strip(", "):
        raise Failure("name the cluster's nodes: -b HOST:PORT,HOST:PORT", exits.USAGE)
    settings["bootstrap.servers"] = target.servers
    dialer_of(settings)
    for option, each in (("--http", url), ("--registry", registry)):
        if each:
            split_login(each, option)
    check_file("--cacert", cacert)
    given = zip(contexts.HTTP_SETTINGS, (url, registry, token, user, cacert), strict=True)
    settings |= {key: value for key, value in given if value}
    for key in (*CERTIFICATE_FILES, contexts.HTTP_CACERT):
        if settings.get(key, "").endswith((".pem", ".crt", ".key")) or os.sep in settings.get(key, ""):
            settings[key] = os.path.abspath(settings[key])  # commands run in other folders
    if contexts.path_of(name).exists() and not replace:
        raise Failure(f"context {name} exists; --replace replaces it", exits.EXISTS)
    contexts.save(name, settings)
    print(f"context {name} saved")
    if not contexts.current():
        _use(name)


@context.command("use")
def use(
    name: Annotated[str, typer.Argument(metavar="[NAME]", autocompletion=_complete)] = "",
    *,
    none: Annotated[bool, typer.Option("--none", help="use no context any more")] = False,
) -> None:
    """Let commands without an address use a context."""
    if none == bool(name):
        raise Failure("name a context, or --none", exits.USAGE)
    _use(name)


def _use(name: str) -> None:
    contexts.use(name)
    print(f"context {name} is used by commands without an address" if name else "no context is used")
    for variable in filter(os.environ.get, VARIABLES):
        print(f"raftlog: {variable} is set here, and takes precedence", file=sys.stderr)


@context.command("list")
def list_contexts(
    *,
    output: Annotated[Form, typer.Option("--output", "-o", help="how to print")] = Form.TABLE,
    json: Annotated[bool, typer.Option("--json", "-J", help="-o json")] = False,
) -> None:
    """List the contexts: addresses and users, without secrets."""
    rows = []
    for name in contexts.names():
        found = contexts.read(contexts.path_of(name))
        rows.append(
            {
                "context": name,
                "current": name == contexts.current(),
                "bootstrap_servers": found.get("bootstrap.servers", ""),
                "user": found.get("sasl.username")
                or found.get(contexts.HTTP_USER, "").partition(":")[0]
                or None,
                "http": without_login(found.get(contexts.HTTP_URL, "")) or None,
                "registry": without_login(found.get(contexts.REGISTRY_URL, "")) or None,
            }
        )
    columns = ("context", "current", "bootstrap_servers", "user", "http", "registry")
    print_rows(rows, Form.JSON if json else output, columns)


@context.command("delete")
def delete(name: Name) -> None:
    """Delete a context, with the login that it holds."""
    contexts.delete(name)
    print(f"context {name} deleted")


context.command("remove", hidden=True)(delete)
