"""`raftlog user …`: users that log in with SCRAM, by credentials in the cluster's metadata (KIP-554)."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import not_empty, noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.scram_argument import checked_password, read_password_file
from raftlog.cli.target import Admin, Target
from raftlog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS

user = noun("List, set and remove users that log in with SCRAM.")


class Mechanism(StrEnum):
    """The mechanisms that there are credentials for."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Name = Annotated[str, typer.Argument(metavar="USER", callback=not_empty)]
Mechanisms = Annotated[
    list[Mechanism] | None, typer.Option("--mechanism", help="may be repeated", show_default="both")
]


@verb(user, "list", prints_rows=True)
def list_users(
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="USER", callback=not_empty)] = None,
    *,
    form: Form,
) -> None:
    """List users, with a row for each mechanism of a user."""
    found = _credentials(target.admin)
    if missing := [each for each in names or [] if each not in found]:
        raise Failure(f"there is no user {', '.join(missing)}", exits.NOT_FOUND)
    rows = [
        {"user": name, "mechanism": mechanism.value, "iterations": iterations}
        for name, kept in sorted(found.items())
        for mechanism, iterations in sorted(kept.items())
        if not names or name in names
    ]
    print_rows(rows, form, ("user", "mechanism", "iterations"))


@verb(user, "set")
def set_(
    target: Target,
    name: Name,
    *,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS)
    ] = MIN_ITERATIONS,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", metavar="FILE", help="a file that holds the password")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="read the password from standard input")
    ] = False,
) -> None:
    """Let a user log in with a new password, which is asked for unless a file or standard input holds it."""
    if password_file and password_stdin:
        raise Failure("--password-file and --password-stdin: say one of both", exits.USAGE)
    password = _password(name, password_file, password_stdin)
    library = confluent_kafka().admin
    changes = [
        library.UserScramCredentialUpsertion(
            name, library.ScramCredentialInfo(_wire(each), iterations), password.encode()
        )
        for each in mechanism or Mechanism
    ]
    _alter(target.admin, name, changes)
    print(f"{name} can log in with {' and '.join(mechanism or Mechanism)}")


@verb(user, "remove")
def remove(target: Target, name: Name, *, mechanism: Mechanisms = None) -> None:
    """Remove a user's credentials: no new connection logs in with them. Rules about the user stay."""
    kept = _credentials(target.admin).get(name, {})
    asked = list(mechanism or kept)
    if not kept:
        raise Failure(f"there is no user {name}", exits.NOT_FOUND)
    if missing := [each for each in asked if each not in kept]:
        raise Failure(f"user {name} has no credential for {', '.join(missing)}", exits.NOT_FOUND)
    library = confluent_kafka().admin
    _alter(target.admin, name, [library.UserScramCredentialDeletion(name, _wire(each)) for each in asked])
    print(f"{name} removed" if set(asked) == set(kept) else f"{name} removed for {' and '.join(asked)}")


def _alter(admin: Admin, name: str, changes: list[Any]) -> None:
    admin.demand("ALTER")
    futures = admin.ask(admin.client.alter_user_scram_credentials, changes)
    admin.wait(futures[name], f"{name}: ")


def _credentials(admin: Admin) -> dict[str, dict[Mechanism, int]]:
    """Return the iterations of every user's credentials, by mechanism."""
    admin.demand("DESCRIBE")
    found = admin.ask(admin.client.describe_user_scram_credentials)
    return {
        name: {
            Mechanism(each.mechanism.name.replace("_", "-")): each.iterations
            for each in kept.scram_credential_infos
        }
        for name, kept in found.items()
    }


def _wire(mechanism: Mechanism) -> Any:
    return confluent_kafka().admin.ScramMechanism[mechanism.value.replace("-", "_")]


def _password(name: str, file: Path | None, from_stdin: bool) -> str:
    """Return the new password. An argument would show it in the list of processes, so there is none. Raises Failure."""
    if file is not None:
        return checked_password(read_password_file(file))
    if from_stdin:
        return checked_password(sys.stdin.readline().rstrip("\r\n"))
    if not sys.stdin.isatty():
        raise Failure("the password: say --password-file FILE or --password-stdin", exits.USAGE)
    asked: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return checked_password(asked)
