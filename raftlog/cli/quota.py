"""`raftlog quota …`: what clients may use, by user, client id and address, as kafka-configs has it (KIP-546)."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import typer

from raftlog.base.errors import from_code
from raftlog.cli import exits
from raftlog.cli.client_settings import read_settings
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target, refusal
from raftlog.protocol.apis import ApiKey

quota = noun("List, set and delete quotas of users, client ids and addresses.")

DEFAULT: Final = "<default>"
"""As Kafka's tools show the entity that stands for all those without a quota of their own."""
EXACT, OF_DEFAULT = 0, 1
KINDS: Final = ("user", "client-id", "ip")

Name = str | None
User = Annotated[Name, typer.Option("--user", metavar="NAME", help="a user")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="all users without a quota of their own")]
ClientId = Annotated[Name, typer.Option("--client-id", metavar="ID", help="a client id")]
ClientDefaults = Annotated[
    bool, typer.Option("--client-defaults", help="all client ids without a quota of their own")
]
Ip = Annotated[Name, typer.Option("--ip", metavar="ADDRESS", help="an address")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="all addresses without a quota of their own")]


class Part(NamedTuple):
    """A part of a quota's entity; name None: the default."""

    entity_type: str
    name: str | None


@verb(quota, "list", prints_rows=True)
def list_quotas(
    target: Target,
    *,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    form: Form,
) -> None:
    """List quotas, with a row for each; only for the named entities, alone or with others."""
    entity = _entity((user, user_defaults), (client_id, client_defaults), (ip, ip_defaults))
    rows = [
        {
            **{kind: _shown(names, kind) for kind in KINDS},
            "quota": key,
            "value": int(value) if value.is_integer() else value,
        }
        for names, values in _found(target, entity)
        for key, value in sorted(values.items())
    ]
    rows.sort(key=lambda row: [str(row[each] or "") for each in ("ip", "user", "client-id", "quota")])
    print_rows(rows, form, (*KINDS, "quota", "value"))


@verb(quota, "set")
def set_(
    target: Target,
    quotas: Annotated[list[str], typer.Argument(metavar="QUOTA=NUMBER")],
    *,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address, all or none.

    The quotas are producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage (of one processor's
    time), controller_mutation_rate (partitions a second) and, of addresses, connection_creation_rate (a second).
    """
    entity = _entity((user, user_defaults), (client_id, client_defaults), (ip, ip_defaults))
    values = {key: _number(key, value) for key, value in read_settings(quotas).items()}
    alter_quotas(target, entity, dict(values))


@verb(quota, "delete", former="remove")
def delete(
    target: Target,
    quotas: Annotated[list[str] | None, typer.Argument(metavar="QUOTA", help="default: all")] = None,
    *,
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: ClientId = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
) -> None:
    """Delete quotas of a user, a client id, both together, or an address."""
    entity = _entity((user, user_defaults), (client_id, client_defaults), (ip, ip_defaults))
    there = next((values for _, values in _found(target, entity, strict=True)), {})
    if missing := [each for each in quotas or [] if each not in there]:
        raise Failure(f"there is no {', '.join(missing)} of {_words(entity)}", exits.NOT_FOUND)
    if not there:
        raise Failure(f"there is no quota of {_words(entity)}", exits.NOT_FOUND)
    alter_quotas(target, entity, dict.fromkeys(quotas or there))


def _entity(*given: tuple[Name, bool]) -> list[Part]:
    """Return the entity of the options, in the order of KINDS. Raise Failure for a name given in two ways."""
    parts = []
    for kind, (name, is_default) in zip(KINDS, given, strict=True):
        if name is not None and is_default:
            raise Failure(f"use either a name of {kind} or its default, not both", exits.USAGE)
        if name is not None or is_default:
            parts.append(Part(kind, name))
    return parts


def _words(entity: list[Part]) -> str:
    return " ".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in entity)


def _shown(names: dict[str, str | None], kind: str) -> str | None:
    return (names[kind] or DEFAULT) if kind in names else None


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Failure(f"{key} must be a number, not {text!r}", exits.USAGE) from None


def _found(
    target: Target, entity: list[Part], *, strict: bool = False
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Return the quotas of the named entities, by their whole names."""
    if strict and not entity:
        raise Failure(_WHO, exits.USAGE)
    match = [(kind, OF_DEFAULT if name is None else EXACT, name) for kind, name in entity]

    def build(make: Any) -> Any:
        components = tuple(
            make.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in match
        )
        return make.DescribeClientQuotasRequest(components=components, strict=strict)

    answer = target.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, build, needs="DESCRIBE_CONFIGS")
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]


def alter_quotas(target: Target, entity: list[Part], values: dict[str, float | None]) -> None:
    """Set quotas, and remove quotas with the value None. Raise Failure."""
    if not entity:
        raise Failure(_WHO, exits.USAGE)

    def build(make: Any) -> Any:
        names = tuple(make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        changes = tuple(
            make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
        )
        entry = make.EntryData(entity=names, ops=changes)
        return make.AlterClientQuotasRequest(entries=(entry,), validate_only=False)

    for each in target.ask(ApiKey.ALTER_CLIENT_QUOTAS, build, needs="ALTER_CONFIGS").entries:
        if each.error_code:
            raise refusal(from_code(each.error_code, each.error_message), needs="ALTER_CONFIGS")


_WHO: Final = "name the entity: --user, --client-id, both, or --ip, or their defaults"
