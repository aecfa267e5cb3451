"""Makes commands that talk to a node's HTTP API: each is a function of an `HttpApi` and its own options.

They take `--http`, or `-b` and `-F` as all other commands do. Then a broker returns its API's address, and the file's
login applies to the API, too.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.base import variables
from raftlog.base.config.network import http_url, is_loopback
from raftlog.cli import contexts, exits
from raftlog.cli.client_settings import addresses_of, check_files
from raftlog.cli.cluster_command import SHARED, add_command
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import ADMIN_API, HttpApi, HttpEndpoint, read_url, split_login
from raftlog.cli.target import TIMEOUT_S, Target

_LOGIN: Final[dict[str, tuple[Any, Any]]] = {
    "file": (
        Annotated[
            Path | None,
            typer.Option(
                "-F",
                "--command-config",
                metavar="FILE",
                help="settings of a Kafka client, as other commands take: servers, login, authority",
            ),
        ],
        None,
    ),
    "token": (
        Annotated[str, typer.Option("--token", envvar=variables.TOKEN, help="where tokens are asked for")],
        "",
    ),
    "user": (
        Annotated[
            str,
            typer.Option(
                "--user",
                "-u",
                metavar="NAME[:PASSWORD]",
                envvar=variables.HTTP_USER,
                help="the user, with a password or a prompt for it",
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
                envvar=variables.HTTP_CACERT,
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
                envvar=variables.HTTP_CERT,
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


def http_verb(
    app: typer.Typer,
    name: str,
    *,
    prints_rows: bool = False,
    takes_context: bool = True,
    service: HttpEndpoint = ADMIN_API,
) -> Callable[..., Any]:
    """Make a command of `body(api, …)`; with `prints_rows`, of `body(api, …, form=…)`, as `verb` does of a target.

    A command about this machine's node takes no context, which may be another cluster's.
    """
    shared = {**_address(service), **_LOGIN}
    if takes_context:
        shared["context"] = SHARED["context"]

    def decorate(body: Callable[..., int | None]) -> Callable[..., int | None]:
        add_command(
            app, (name,), body, reach=partial(_api, service=service), shared=shared, prints_rows=prints_rows
        )
        return body

    return decorate


def _address(service: HttpEndpoint) -> dict[str, tuple[Any, Any]]:
    """Return the options that say where a service is."""
    article = "an" if service is ADMIN_API else "a"
    url = typer.Option(
        service.option,
        metavar="URL",
        envvar=service.variable,
        show_default=service.local,
        help=f"any node's {service.what}",
    )
    bootstrap = typer.Option(
        "--bootstrap",
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar=variables.BOOTSTRAP,
        help=f"instead of {service.option}: any node, which is asked where {article} {service.what} is",
    )
    return {"url": (Annotated[str, url], ""), "bootstrap": (Annotated[str, bootstrap], "")}


def _api(given: dict[str, Any], *, service: HttpEndpoint) -> HttpApi:
    url, bootstrap, file = (given.pop(name) for name in ("url", "bootstrap", "file"))
    if "context" in given:
        file = contexts.file_of(given.pop("context"), file, is_addressed=bool(url or bootstrap))
    target = Target(bootstrap, (), file, given["timeout"])
    api = HttpApi("", given.pop("token"), given.pop("timeout"), service=service)
    api.file = file
    api.user, api.cacert, api.certificate = (given.pop(name) for name in ("user", "cacert", "certificate"))
    _set_up(api, target, url, servers="" if target.is_default else target.servers)
    if api.user and ":" not in api.user:
        api.user = f"{api.user}:{_password(api.user)}"
    if not api.url and (target.bootstrap or target.file):
        api.find = partial(_find, target, api)
    api.url = api.url or ("" if api.find else service.local)
    return api


def api_of(target: Target, timeout_s: float, *, service: HttpEndpoint = ADMIN_API, url: str = "") -> HttpApi:
    """Return a service of a cluster, with the login of its target. Without a URL it is found when it is first asked."""
    api = HttpApi("", "", timeout_s, service=service)
    api.find = partial(_http_api_of, target, api)
    _set_up(api, target, url, servers=target.servers)
    return api


def _set_up(api: HttpApi, target: Target, url: str, *, servers: str) -> None:
    """Set the address, given or saved, and the login: that of the URL itself, of an option, or of the target's file.

    The file's login goes only to hosts of its cluster. `servers`: the brokers; "" if neither option nor file names any.
    """
    saved, name = contexts.read_http(target.file), api.service.saved
    is_saved = not (url or target.bootstrap) and name in saved
    login = ""
    if is_saved or url:
        api.url, login = split_login(saved[name], name) if is_saved else split_login(url, api.service.option)
    if login:
        api.user, api.token, api.only_over_tls = login, "", is_saved
    takes_login = not api.url or _is_of_cluster(api.url, saved, servers)
    _take_saved(api, saved, takes_login=takes_login)
    _take_login(api, target, takes_login=takes_login)


def _is_of_cluster(url: str, saved: Mapping[str, str], servers: str) -> bool:
    """Return whether a URL is on a host of the brokers or the HTTP API. Other hosts do not get the login."""
    host, own = _host_of(url), {each.lower() for each, _ in addresses_of(servers)}
    if contexts.HTTP_URL in saved:
        own.add(_host_of(saved[contexts.HTTP_URL]))
    return not own or host in own or (is_loopback(host) and any(map(is_loopback, own)))


def _host_of(url: str) -> str:
    return str(read_url(url, contexts.HTTP_URL).hostname)


def _take_saved(api: HttpApi, saved: Mapping[str, str], *, takes_login: bool) -> None:
    """Add what a context says about the HTTP API, where no option says it."""
    api.cacert = api.cacert or saved.get(contexts.HTTP_CACERT, "")
    token, user = (saved.get(name, "") for name in (contexts.HTTP_TOKEN, contexts.HTTP_USER))
    if (token or user) and not (api.token or api.user):
        _add_login(api, token=token, user=user, takes_login=takes_login)


def _add_login(api: HttpApi, *, token: str = "", user: str = "", takes_login: bool) -> None:
    """Add a login that was saved, if the API may get it."""
    if takes_login:
        api.token, api.user, api.only_over_tls = token, user, True
    else:
        api.is_withheld = True


def _find(target: Target, api: HttpApi) -> str:
    with closing(target):
        return _http_api_of(target, api)


def _http_api_of(target: Target, api: HttpApi) -> str:
    """Return the URL of the first broker's HTTP API that can be reached from this machine. Raises Failure.

    The advertised host with the port of a container may lead to another cluster, so the API's cluster id is compared.
    """
    cluster, service = target.describe_cluster(), api.service
    reasons = []
    for broker in sorted(cluster.brokers, key=lambda each: int(each.broker_id)):
        try:
            rows = settings_of(target, "broker", str(broker.broker_id))
        except Failure as failure:
            if failure.code == exits.DENIED:  # no other broker will say more
                asked = str(failure).removeprefix(f"broker {broker.broker_id}: ")
                raise Failure(
                    f"{asked}, to find the {service.what}; set its address with {service.option} URL",
                    exits.DENIED,
                ) from None
            reasons.append(str(failure))
            continue
        settings = {row["name"]: row["value"] or "" for row in rows}
        nearby = _is_nearby(target.servers, str(broker.host))
        found = http_url(settings, str(broker.host), nearby=nearby, names=service.settings)
        if found:
            fault = _fault_of(found, api, str(cluster.cluster_id))
            if not fault:
                return found
            reasons.append(fault)
            continue
        where = settings.get(service.settings[-1]) or "nowhere"
        reasons.append(f"that of broker {broker.broker_id} listens at {where}")
    why = "; ".join(dict.fromkeys(reasons))
    raise Failure(
        f"no {service.what} of the cluster at {target.servers} can be reached from here ({why}); "
        f"set its address with {service.option} http://HOST:PORT, or let brokers set {service.settings[0]}",
        exits.UNREACHABLE,
    )


def _fault_of(url: str, api: HttpApi, cluster_id: str) -> str:
    """Return why the HTTP API at a URL cannot be asked about a cluster, "" if it can. Raises Failure."""
    try:
        found = api.cluster_at(url)
    except Failure as failure:
        if failure.code == exits.DENIED:  # no other address of the cluster will accept more
            raise
        return str(failure).partition(";")[0]
    return "" if found == cluster_id else f"{url} is that of another cluster, {found or 'without an id'}"


def _is_nearby(servers: str, host: str) -> bool:
    """Return whether a broker is on this machine: its host is, or that of the servers by which it was found."""
    own = [each.strip().rpartition(":")[0].strip("[]") for each in servers.split(",")]
    return any(is_loopback(each) or each == socket.gethostname() for each in [host, *own])


def _take_login(api: HttpApi, target: Target, *, takes_login: bool) -> None:
    """Add what a file of a Kafka client says, where no option of the HTTP API says it."""
    login = target.settings
    check_files(login)
    api.cacert = api.cacert or login.get("ssl.ca.location", "")
    if not api.certificate:
        api.certificate, api.key = (login.get(f"ssl.{name}.location", "") for name in ("certificate", "key"))
    if not (api.user or api.token) and "sasl.password" in login:
        user = f"{login.get('sasl.username', '')}:{login['sasl.password']}"
        _add_login(api, user=user, takes_login=takes_login)


def _password(user: str) -> str:
    if not sys.stdin.isatty():
        raise Failure(
            "--user: must be NAME:PASSWORD, because there is no terminal to ask for the password", exits.USAGE
        )
    return str(typer.prompt(f"password of {user}", hide_input=True, err=True))
