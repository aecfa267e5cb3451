"""How commands that talk to a node's HTTP API are written: a function of an `HttpApi` and its own options.

They take `--http`, or `-b` as all other commands do: then a broker of that cluster tells where its API is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from raftlog.cli.cluster_command import add_command
from raftlog.cli.http_api import LOCAL, HttpApi
from raftlog.cli.http_lookup import find_http_api
from raftlog.cli.target import TIMEOUT_S, Target

_SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "url": (
        Annotated[
            str,
            typer.Option(
                "--http",
                metavar="URL",
                envvar="RAFTLOG_HTTP",
                show_default=LOCAL,
                help="any node's HTTP API",
            ),
        ],
        "",
    ),
    "bootstrap": (
        Annotated[
            str,
            typer.Option(
                "--bootstrap",
                "-b",
                "--bootstrap-server",
                metavar="HOST:PORT",
                envvar="RAFTLOG_BOOTSTRAP",
                help="instead of --http: any node, which is asked where an HTTP API is",
            ),
        ],
        "",
    ),
    "token": (
        Annotated[str, typer.Option("--token", envvar="RAFTLOG_TOKEN", help="where tokens are asked for")],
        "",
    ),
    "timeout": (
        Annotated[
            float,
            typer.Option("--timeout", "-m", metavar="S", min=0.1, max=3600, help="how many seconds to wait"),
        ],
        TIMEOUT_S,
    ),
}


def http_verb(app: typer.Typer, name: str, *, prints_rows: bool = False) -> Callable[..., Any]:
    """Make a command of `body(api, …)`; with `prints_rows`, of `body(api, …, form=…)`, as `verb` does of a target."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        add_command(app, name, body, reach=_api, shared=_SHARED, prints_rows=prints_rows)
        return body

    return decorate


def _api(given: dict[str, Any]) -> HttpApi:
    url, bootstrap, token, timeout_s = (given.pop(name) for name in ("url", "bootstrap", "token", "timeout"))
    if bootstrap and not url:
        return HttpApi("", token, timeout_s, lambda: find_http_api(Target(bootstrap, timeout_s=timeout_s)))
    return HttpApi(url or LOCAL, token, timeout_s)
