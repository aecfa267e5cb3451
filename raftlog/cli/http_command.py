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
    "user": (
        Annotated[
            str,
            typer.Option(
                "--user",
                "-u",
                metavar="NAME[:PASSWORD]",
                envvar="RAFTLOG_HTTP_USER",
                help="who asks, where users log in; without a password it is asked for",
            ),
        ],
        "",
    ),
    "cacert": (
        Annotated[
            str,
            typer.Option(
                "--cacert",
                metavar="FILE",
                envvar="RAFTLOG_HTTP_CACERT",
                help="PEM file of the authority that an https:// API's certificate is from",
            ),
        ],
        "",
    ),
    "certificate": (
        Annotated[
            str,
            typer.Option(
                "--cert",
                metavar="FILE",
                envvar="RAFTLOG_HTTP_CERT",
                help="PEM file of your own certificate and key",
            ),
        ],
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
    user = given.pop("user")
    if user and ":" not in user:
        user = f"{user}:{typer.prompt(f'password of {user}', hide_input=True, err=True)}"
    api = HttpApi(url or LOCAL, token, timeout_s)
    api.user, api.cacert, api.certificate = user, given.pop("cacert"), given.pop("certificate")
    if bootstrap and not url:
        api.url, api.find = "", lambda: find_http_api(Target(bootstrap, timeout_s=timeout_s))
    return api
