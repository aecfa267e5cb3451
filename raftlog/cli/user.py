"""`raftlog user …`: users that log in with SCRAM, by credentials in the cluster's metadata (KIP-554)."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from raftlog.base.errors import from_code
from raftlog.cli import exits
from raftlog.cli.cluster_command import not_empty, noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.scram_argument import checked_password, read_password_file
from raftlog.cli.target import Target, refusal
from raftlog.protocol.apis import ApiKey
from raftlog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, salted

user = noun("List, set and delete users that log in with SCRAM.")


class Mechanism(StrEnum):
    """The mechanisms that there are credentials for."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


class Change(NamedTuple):
    """A new credential of a user."""

    mechanism: Mechanism
    iterations: int
    password: str


_NUMBERS: Final = {Mechanism.SHA_256: 1, Mechanism.SHA_512: 2}
"""Kafka's numbers for the mechanisms."""
SALT_BYTES: Final = 24

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
    found = _credentials(target)
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
        raise Failure("use either --password-file or --password-stdin", exits.USAGE)
    password = _password(name, password_file, password_stdin)
    changes = [Change(each, iterations, password) for each in mechanism or Mechanism]
    _alter(target, name, set_to=changes)
    print(f"{name} can log in with {' and '.join(mechanism or Mechanism)}")


@verb(user, "delete", former="remove")
def delete(target: Target, name: Name, *, mechanism: Mechanisms = None) -> None:
    """Delete a user's credentials: no new connection logs in with them. Rules about the user stay."""
    kept = _credentials(target).get(name, {})
    asked = list(mechanism or kept)
    if not kept:
        raise Failure(f"there is no user {name}", exits.NOT_FOUND)
    if missing := [each for each in asked if each not in kept]:
        raise Failure(f"user {name} has no credential for {', '.join(missing)}", exits.NOT_FOUND)
    _alter(target, name, removed=asked)
    print(f"{name} deleted" if set(asked) == set(kept) else f"{name} deleted for {' and '.join(asked)}")


def _alter(
    target: Target, name: str, *, set_to: Sequence[Change] = (), removed: Sequence[Mechanism] = ()
) -> None:
    target.demand("ALTER")

    def build(make: Any) -> Any:
        return make.AlterUserScramCredentialsRequest(
            deletions=tuple(
                make.ScramCredentialDeletion(name=name, mechanism=_NUMBERS[each]) for each in removed
            ),
            upsertions=tuple(_upsertion(make, name, each) for each in set_to),
        )

    for each in target.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, build, about=f"{name}: ").results:
        if each.error_code:
            raise refusal(from_code(each.error_code, each.error_message), f"{name}: ", needs="ALTER")


def _upsertion(make: Any, name: str, change: Change) -> Any:
    """Return a credential for the wire: salted here, so that the password does not leave this process."""
    salt = secrets.token_bytes(SALT_BYTES)
    return make.ScramCredentialUpsertion(
        name=name,
        mechanism=_NUMBERS[change.mechanism],
        iterations=change.iterations,
        salt=salt,
        salted_password=salted(change.mechanism.value, change.password, salt, change.iterations),
    )


def _credentials(target: Target) -> dict[str, dict[Mechanism, int]]:
    """Return the iterations of every user's credentials, by mechanism."""
    target.demand("DESCRIBE")
    mechanisms = {number: mechanism for mechanism, number in _NUMBERS.items()}
    found = target.ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda make: make.DescribeUserScramCredentialsRequest(users=None),
    )
    return {
        each.user: {mechanisms[kept.mechanism]: kept.iterations for kept in each.credential_infos}
        for each in found.results
    }


def _password(name: str, file: Path | None, from_stdin: bool) -> str:
    """Return the new password. An argument would show it in the list of processes, so there is none. Raises Failure."""
    if file is not None:
        return checked_password(read_password_file(file))
    if from_stdin:
        return checked_password(sys.stdin.readline().rstrip("\r\n"))
    if not sys.stdin.isatty():
        raise Failure("no password: use --password-file FILE or --password-stdin", exits.USAGE)
    asked: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return checked_password(asked)
