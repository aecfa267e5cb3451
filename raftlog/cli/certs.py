"""`raftlog certs`: an authority for development, and certificates for nodes and users, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raftlog.cli import exits
from raftlog.cli.exits import Failure


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="where to make them, or where they are")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME[,NAME…]", help="a node, by all its names and addresses"),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="a client with the principal User:CN=NAME"),
    ] = None,
    days: Annotated[int, typer.Option("--days", help="how long they are valid")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="make new certificates of the same CA in place of those there")
    ] = False,
) -> None:
    """Make a CA, and a certificate with its key for every --host and --user. For development: the CA's key is there."""
    from raftlog.testing.certificates import CertificateExists, Certificates, CertificatesUnusable

    hosts = [each.split(",") for each in host or []]
    if not hosts and not user:
        raise Failure("name the certificate's owner: --host NAME or --user NAME", exits.USAGE)
    certificates = Certificates(folder.absolute())
    try:
        made = certificates.make(hosts, user or [], days=days, renew=renew)
    except CertificatesUnusable as error:
        code = exits.EXISTS if isinstance(error, CertificateExists) else exits.FAILED
        raise Failure(str(error), code) from None
    print(*made, sep="\n")
    if renew:
        print("Nodes take them by themselves, within some seconds.")
        return
    if hosts:
        print("\nA node's settings:")
        for name, value in certificates.node_settings(hosts[0][0]).items():
            print(f"  {name}={value}")
    print("\nA client's settings (librdkafka):")
    print("  security.protocol=ssl")
    print(f"  ssl.ca.location={certificates.ca}")
    if user:
        print(f"  ssl.certificate.location={certificates.user(user[0])}")
        print(f"  ssl.key.location={certificates.user(user[0])}")
