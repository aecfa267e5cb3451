"""`raftlog token …`: delegation tokens, as kafka-delegation-tokens makes, renews, ends and lists them (KIP-48)."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from raftlog.base.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    KafkaError,
)
from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey

token = noun("Make, renew, delete and list delegation tokens.")

FROM_STDIN: Final = "-"
COLUMNS: Final = ("token_id", "owner", "requester", "renewers", "expires", "max")

Proof = Annotated[
    str,
    typer.Argument(metavar="HMAC", help="as `token create` printed it; - reads it from standard input"),
]
Owners = Annotated[list[str] | None, typer.Option("--owner", metavar="USER", help="may be repeated")]
Seconds = Annotated[
    int | None, typer.Option("--for", metavar="S", min=0, help="default: from the broker's configs")
]


@verb(token, "create", prints_rows=True)
def create(
    target: Target,
    *,
    owner: Annotated[str, typer.Option("--owner", metavar="USER", help="default: the caller")] = "",
    renewers: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="may be repeated")
    ] = None,
    lifetime: Annotated[
        int | None,
        typer.Option("--max-lifetime", metavar="S", min=1, help="default: from the broker's configs"),
    ] = None,
    form: Form,
) -> None:
    """Make a token, and print what logs in with it: the user name is its id, the password its HMAC."""

    def build(make: Any) -> Any:
        return make.CreateDelegationTokenRequest(
            owner_principal_type="User" if owner else None,
            owner_principal_name=_name(owner) or None,
            renewers=tuple(
                make.CreatableRenewers(principal_type="User", principal_name=_name(each))
                for each in renewers or ()
            ),
            max_lifetime=-1 if lifetime is None else lifetime * 1000,
        )

    made = _ask(target, ApiKey.CREATE_DELEGATION_TOKEN, build)
    print_object(
        {
            "token_id": made.token_id,
            "hmac": b64encode(bytes(made.hmac)).decode(),
            "owner": f"{made.principal_type}:{made.principal_name}",
            "expires": _date(made.expiry_timestamp),
            "max": _date(made.max_timestamp),
        },
        form,
    )


@verb(token, "renew")
def renew(target: Target, proof: Proof, *, seconds: Seconds = None) -> None:
    """Extend a token, up to its maximum lifetime."""
    period_ms = -1 if seconds is None else seconds * 1000
    hmac = _bytes(proof)
    renewed = _ask(
        target,
        ApiKey.RENEW_DELEGATION_TOKEN,
        lambda make: make.RenewDelegationTokenRequest(hmac=hmac, renew_period=period_ms),
    )
    print(f"renewed: it expires at {_date(renewed.expiry_timestamp)}")


@verb(token, "delete", former="expire")
def delete(
    target: Target,
    proof: Proof,
    *,
    seconds: Annotated[int | None, typer.Option("--in", metavar="S", min=0, help="default: at once")] = None,
) -> None:
    """Delete a token. Connections that logged in with it end as well."""
    period_ms = -1 if seconds is None else seconds * 1000
    hmac = _bytes(proof)
    ended = _ask(
        target,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        lambda make: make.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period=period_ms),
    )
    print("deleted" if seconds is None else f"it expires at {_date(ended.expiry_timestamp)}")


@verb(token, "list", prints_rows=True)
def list_tokens(
    target: Target,
    *,
    owners: Owners = None,
    show_hmacs: Annotated[bool, typer.Option("--show-hmacs", help="with what logs in")] = False,
    form: Form,
) -> None:
    """List the tokens that you may see, all or only of some users."""

    def build(make: Any) -> Any:
        return make.DescribeDelegationTokenRequest(
            owners=tuple(
                make.DescribeDelegationTokenOwner(principal_type="User", principal_name=_name(each))
                for each in owners
            )
            if owners
            else None
        )

    found = _ask(target, ApiKey.DESCRIBE_DELEGATION_TOKEN, build)
    rows = sorted(
        (_row(each, show_hmac=show_hmacs) for each in found.tokens), key=lambda row: row["token_id"]
    )
    print_rows(rows, form, (*COLUMNS, "hmac") if show_hmacs else COLUMNS)


def _row(found: Any, *, show_hmac: bool) -> dict[str, Any]:
    row = {
        "token_id": found.token_id,
        "owner": f"{found.principal_type}:{found.principal_name}",
        "requester": f"{found.token_requester_principal_type}:{found.token_requester_principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in found.renewers],
        "expires": _date(found.expiry_timestamp),
        "max": _date(found.max_timestamp),
    }
    return {**row, "hmac": b64encode(bytes(found.hmac)).decode()} if show_hmac else row


def _ask(target: Target, api_key: int, build: Callable[[Any], Any]) -> Any:
    """Return the response to a request. Raise Failure."""
    with target.failures():
        try:
            return target.cluster.ask(api_key, build)
        except KafkaError as error:
            if type(error) not in _REFUSALS:
                raise
            raise Failure(*_REFUSALS[type(error)]) from None


_REFUSALS: Final[dict[type[KafkaError], tuple[str, int]]] = {
    DelegationTokenAuthDisabled: (
        "the cluster has no delegation tokens: delegation.token.secret.key is not set",
        exits.FAILED,
    ),
    DelegationTokenRequestNotAllowed: (
        "log in, and not with a token, to make, renew, end or list tokens",
        exits.DENIED,
    ),
    DelegationTokenAuthorizationFailed: (
        "a token of another user needs CREATE_TOKENS on that user",
        exits.DENIED,
    ),
    DelegationTokenOwnerMismatch: ("only the token's owner and its renewers may do that", exits.DENIED),
    DelegationTokenExpired: ("the token is past its time", exits.FAILED),
    DelegationTokenNotFound: ("there is no token with this HMAC", exits.NOT_FOUND),
}


def _name(user: str) -> str:
    """Return the name in a principal: "User:alice" is alice. Kafka's tool writes principals so."""
    return user.removeprefix("User:")


def _bytes(proof: str) -> bytes:
    text = sys.stdin.readline().strip() if proof == FROM_STDIN else proof
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise Failure("HMAC: must be base64", exits.USAGE) from None


def _date(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return "never"
