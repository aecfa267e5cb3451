"""`raftlog acl …`: access control lists, with the options of kafka-acls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from raftlog.cli import exits
from raftlog.cli.acl.requests import Outcome, create_rules, delete_rules, describe_rules
from raftlog.cli.acl.rules import RESOURCE_OPTIONS, Asked, filters, rules
from raftlog.cli.cluster_command import SHARED, add_command, noun, target_of
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target
from raftlog.security.acls import Acl, Operation, PatternType

acl = noun("List, add and delete ACLs.")

COLUMNS: Final = ("permission", "principal", "operation", "host", "resource", "pattern", "name")


class Pattern(StrEnum):
    """The pattern type of a resource's name in a rule."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class PatternSearch(StrEnum):
    """The pattern type of a resource's name in a search for rules."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    ANY = "any"
    MATCH = "match"


class Reached(NamedTuple):
    """A cluster, and what is asked about its rules."""

    target: Target
    asked: Asked

    @property
    def file(self) -> Path | None:
        """The file of settings that the target was given."""
        return self.target.file

    def close(self) -> None:
        self.target.close()


def _many(name: str, help: str, metavar: str = "NAME") -> tuple[Any, Any]:
    return Annotated[list[str] | None, typer.Option(name, metavar=metavar, help=help)], None


def _flag(name: str, help: str) -> tuple[Any, Any]:
    return Annotated[bool, typer.Option(name, help=help)], False


_RESOURCES: Final[dict[str, tuple[Any, Any]]] = {
    "topics": _many("--topic", "a topic, or *"),
    "groups": _many("--group", "a group, or *"),
    "transactional_ids": _many("--transactional-id", "a transactional id, or *", "ID"),
    "cluster": _flag("--cluster", "the cluster itself"),
    "delegation_tokens": _many("--delegation-token", "a delegation token, or *", "ID"),
    "users": _many("--user-principal", "the owner of delegation tokens, or *", "User:NAME"),
}
_PATTERN: Final[dict[str, tuple[Any, Any]]] = {
    "pattern_type": (
        Annotated[
            Pattern,
            typer.Option("--resource-pattern-type", help="prefixed: all resources with this prefix"),
        ],
        Pattern.LITERAL,
    ),
}
_PATTERN_SEARCH: Final[dict[str, tuple[Any, Any]]] = {
    "pattern_type": (
        Annotated[
            PatternSearch,
            typer.Option(
                "--resource-pattern-type",
                help="rules written so; any: however written; match: all that concern the name",
            ),
        ],
        PatternSearch.LITERAL,
    ),
}
_RULES: Final[dict[str, tuple[Any, Any]]] = {
    "allow_principals": _many("--allow-principal", "allowed principal, User:* for all", "User:NAME"),
    "deny_principals": _many("--deny-principal", "denied principal", "User:NAME"),
    "allow_hosts": _many("--allow-host", "from where they may; default: *", "ADDRESS"),
    "deny_hosts": _many("--deny-host", "from where they may not; default: *", "ADDRESS"),
    "operations": _many("--operation", "as Read, Write, DescribeConfigs; default: All", "OPERATION"),
    "producer": _flag("--producer", "all that a producer needs of topics and transactional ids"),
    "consumer": _flag("--consumer", "all that a consumer needs of topics and groups"),
    "idempotent": _flag("--idempotent", "with --producer: idempotent, for clients before Kafka 2.8"),
}
"""kafka-acls' options. Their names are the attributes of `Asked`."""


def _verb(name: str, *options: dict[str, tuple[Any, Any]], former: str = "") -> Callable[..., Any]:
    """Make a command of `body(reached, …, form=…)` with options about resources, and perhaps about rules."""
    own = {key: value for each in options for key, value in each.items()}

    def reach(given: dict[str, Any]) -> Reached:
        said = {key: given.pop(key) for key in own}
        return Reached(target_of(given), _asked(said))

    def decorate(body: Callable[..., int | None]) -> Callable[..., int | None]:
        names = (name, former) if former else (name,)
        add_command(acl, names, body, reach=reach, shared={**own, **SHARED}, prints_rows=True)
        return body

    return decorate


def _asked(said: dict[str, Any]) -> Asked:
    said["pattern_type"] = PatternType[said["pattern_type"].name]
    said["operations"] = [_operation(each) for each in said.get("operations") or ()]
    given: dict[str, Any] = {
        key: tuple(value or ()) if value is None or isinstance(value, list) else value
        for key, value in said.items()
    }
    return Asked(**given)


def _operation(word: str) -> Operation:
    """Read an operation as kafka-acls writes it, DescribeConfigs, or as rules show it. Raises Failure."""
    wanted = word.replace("_", "").replace("-", "").upper()
    known = [each for each in Operation if each > Operation.ANY]
    for each in known:
        if each.name.replace("_", "") == wanted:
            return each
    names = ", ".join(each.name for each in known)
    raise Failure(f"--operation: there is no {word!r}; there are {names}", exits.USAGE)


@_verb("list", _RESOURCES, _PATTERN_SEARCH)
def list_rules(
    reached: Reached,
    *,
    principals: Annotated[
        list[str] | None, typer.Option("--principal", metavar="User:NAME", help="only rules about these")
    ] = None,
    form: Form,
) -> None:
    """List rules: all, or for the named resources and users."""
    wanted = filters(reached.asked, principals or ())
    _print(describe_rules(reached.target, wanted), form)


@_verb("add", _RESOURCES, _PATTERN, _RULES)
def add(reached: Reached, *, form: Form) -> int:
    """Add rules. An existing rule is no error."""
    wanted = rules(reached.asked)
    return _settle(create_rules(reached.target, wanted), form)


@_verb("delete", _RESOURCES, _PATTERN_SEARCH, _RULES, former="remove")
def delete(
    reached: Reached,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="do not ask before all rules of a resource go")
    ] = False,
    form: Form,
) -> int:
    """Delete rules: the rules that the same options would add, or all of a resource. Prints the deleted rules."""
    wanted = filters(reached.asked)
    if not reached.asked.resources:
        raise Failure(f"name a resource: {RESOURCE_OPTIONS}", exits.USAGE)
    if not reached.asked.names_users and not force:
        _confirm()
    return _settle(delete_rules(reached.target, wanted), form)


def _confirm() -> None:
    """Ask before a large deletion. Raise Failure without a terminal or a yes."""
    if not sys.stdin.isatty():
        raise Failure(
            "this deletes all ACLs of the resource: confirm with --force, or name a principal", exits.USAGE
        )
    if not typer.confirm("Delete all rules of the resource?", err=True):
        raise Failure("no ACL matched, so none was deleted")


def _settle(outcomes: Sequence[Outcome], form: Form) -> int:
    """Print the rules of what was done, and each failure; returns the first failure's exit code."""
    failures = [each for each in outcomes if isinstance(each, Failure)]
    done = [rule for each in outcomes if not isinstance(each, Failure) for rule in each]
    if done or not failures:
        _print(done, form)
    for message in dict.fromkeys(map(str, failures)):
        print(f"raftlog: {message}", file=sys.stderr)
    return failures[0].code if failures else 0


def _print(found: Sequence[Acl], form: Form) -> None:
    rows = sorted(
        (
            each.resource_type.name,
            each.resource_name,
            each.pattern_type.name,
            each.principal,
            each.host,
            each.operation.name,
            each.permission.name,
        )
        for each in set(found)
    )
    print_rows(
        [
            {
                "permission": permission,
                "principal": principal,
                "operation": operation,
                "host": host,
                "resource": resource,
                "pattern": pattern,
                "name": name,
            }
            for resource, name, pattern, principal, host, operation, permission in rows
        ],
        form,
        COLUMNS,
    )
