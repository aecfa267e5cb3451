"""Client quotas: entities, their defaults, keys, values, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

PRODUCE: Final = "producer_byte_rate"
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
Entity = Sequence[tuple[str, str | None]]
"""Types and names; a name of None is the default."""


def parts(entity: Entity) -> list[Mapping[str, Any]]:
    """Return an entity as requests have it."""
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def change(key: str, value: float | None) -> Mapping[str, Any]:
    """Return the change of a quota; None removes it."""
    return {"key": key, "value": 0.0 if value is None else value, "remove": value is None}


def alter(s: Session, *entries: tuple[Entity, Sequence[Mapping[str, Any]]], **fields: Any) -> None:
    """Alter quotas, observed."""
    wanted = [{"entity": parts(entity), "ops": ops} for entity, ops in entries]
    s.ask("AlterClientQuotas", 1, entries=wanted, **fields)


def clear(s: Session, entity: Entity, *keys: str) -> None:
    """Remove quotas, which is not observed."""
    ops = [change(key, None) for key in keys]
    s.query("AlterClientQuotas", 1, entries=[{"entity": parts(entity), "ops": ops}])


def described(s: Session, entity: Entity) -> Any:
    """Look at the quotas of exactly one entity."""
    components = [
        {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
        for kind, name in entity
    ]
    entries = s.query("DescribeClientQuotas", 1, components=components, strict=True)["entries"] or []
    return {each["key"]: each["value"] for entry in entries for each in entry["values"]}


ENTITIES: Final[Mapping[str, Callable[[Session], Entity]]] = {
    "a user": lambda s: [("user", s.name("u"))],
    "a client": lambda s: [("client-id", s.name("c"))],
    "a user and a client": lambda s: [("user", s.name("u")), ("client-id", s.name("c"))],
    "a client and a user": lambda s: [("client-id", s.name("c")), ("user", s.name("u"))],
    "a user and all clients": lambda s: [("user", s.name("u")), ("client-id", None)],
    "all users": lambda s: [("user", None)],
    "all clients": lambda s: [("client-id", None)],
    "all users and clients": lambda s: [("user", None), ("client-id", None)],
    "an address": lambda s: [("ip", "10.1.2.3")],
    "all addresses": lambda s: [("ip", None)],
    "an address of version 6": lambda s: [("ip", "2001:db8::1")],
    "a name for an address": lambda s: [("ip", "no.such.host.invalid")],
    "an empty address": lambda s: [("ip", "")],
    "an address and a user": lambda s: [("ip", "10.1.2.3"), ("user", s.name("u"))],
    "no type": lambda s: [],
    "an unknown type": lambda s: [("planet", "mars")],
    "an empty type": lambda s: [("", "x")],
    "an empty user": lambda s: [("user", "")],
    "an empty client": lambda s: [("client-id", "")],
    "a user with odd characters": lambda s: [("user", s.name("CN=ä, O=b/c"))],
}


@history(ENTITIES)
def entity(s: Session, entity: Callable[[Session], Entity]) -> None:
    """Users, clients, pairs of them and addresses have quotas."""
    whose = entity(s)
    key = "connection_creation_rate" if whose and whose[0][0] == "ip" else PRODUCE
    alter(s, (whose, [change(key, 1_000_000.0)]), validate_only=True)
    alter(s, (whose, [change(key, 1_000_000.0)]))
    if whose and all(kind in ("user", "client-id", "ip") for kind, _ in whose):
        s.query("Metadata", 9, topics=[])
        components = [
            {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
            for kind, name in whose
        ]
        if s.steps[-1].answer["entries"][0]["error_code"] == "NONE":
            s.wait("it holds", lambda: described(s, whose))
            s.ask("DescribeClientQuotas", 1, components=components, strict=True)
            clear(s, whose, key)
            s.wait("it is gone", lambda: not described(s, whose))


OPS: Final[Mapping[str, Sequence[tuple[str, float | None]]]] = {
    "none": [],
    "all keys": [
        ("producer_byte_rate", 1.0),
        ("consumer_byte_rate", 2.0),
        ("request_percentage", 3.5),
        ("controller_mutation_rate", 4.5),
    ],
    "an unknown key": [("no_such_rate", 1.0)],
    "an empty key": [("", 1.0)],
    "an address's key": [("connection_creation_rate", 1.0)],
    "0 bytes": [("producer_byte_rate", 0.0)],
    "-1 bytes": [("producer_byte_rate", -1.0)],
    "half a byte": [("producer_byte_rate", 0.5)],
    "one and a half": [("producer_byte_rate", 1.5)],
    "the most": [("producer_byte_rate", 2.0**63)],
    "more than the most": [("producer_byte_rate", 2.0**64)],
    "0 percent": [("request_percentage", 0.0)],
    "a tenth of a percent": [("request_percentage", 0.1)],
    "1000 percent": [("request_percentage", 1000.0)],
    "0 mutations": [("controller_mutation_rate", 0.0)],
    "remove what is not there": [("producer_byte_rate", None)],
    "remove an unknown key": [("no_such_rate", None)],
    "a key twice": [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)],
    "set and removed": [("producer_byte_rate", 1.0), ("producer_byte_rate", None)],
    "good and bad": [("producer_byte_rate", 1.0), ("no_such_rate", 1.0)],
}


@history(OPS)
def value(s: Session, ops: Sequence[tuple[str, float | None]]) -> None:
    """Rates are above 0; bytes are whole numbers."""
    whose = [("user", s.name("u"))]
    alter(s, (whose, [change(*each) for each in ops]))
    if s.steps[-1].answer["entries"][0]["error_code"] == "NONE" and any(v is not None for _, v in ops):
        s.wait("it holds", lambda: described(s, whose))
    s.observe("described", described(s, whose))
    clear(s, whose, *set(described(s, whose)))


NO_NUMBERS: Final[Mapping[str, tuple[str, float]]] = {
    "infinitely many": (PRODUCE, float("inf")),
    "not a number": (PRODUCE, float("nan")),
    "infinitely many mutations": ("controller_mutation_rate", float("inf")),
    "no number of mutations": ("controller_mutation_rate", float("nan")),
}


@history(NO_NUMBERS)
def no_number(s: Session, op: tuple[str, float]) -> None:
    """A rate is a finite number."""
    entries = [{"entity": parts([("user", s.name("u"))]), "ops": [change(*op)]}]
    answer = s.query("AlterClientQuotas", 1, entries=entries, validate_only=True)
    s.observe("the error", answer["entries"][0]["error_code"])


@history()
def a_type_twice(s: Session) -> None:
    """An entity has one name of a type."""
    whose = [("user", s.name("u")), ("user", s.name("v"))]
    alter(s, (whose, [change(PRODUCE, 1_000_000.0)]), validate_only=True)


ADDRESS_OPS: Final[Mapping[str, tuple[str, float]]] = {
    "a whole rate": ("connection_creation_rate", 5.0),
    "a broken rate": ("connection_creation_rate", 5.5),
    "0": ("connection_creation_rate", 0.0),
    "-1": ("connection_creation_rate", -1.0),
    "a user's key": ("producer_byte_rate", 5.0),
}


@history(ADDRESS_OPS)
def value_of_address(s: Session, op: tuple[str, float]) -> None:
    """An address has a rate of new connections, a whole number."""
    alter(s, ([("ip", "10.1.2.3")], [change(*op)]), validate_only=True)


@history({f"v{version}": version for version in (0, 1)})
def alter_in(s: Session, version: int) -> None:
    """Both versions alter and describe."""
    name = s.name("u")
    entries = [{"entity": parts([("user", name)]), "ops": [change(PRODUCE, 5000.0)]}]
    s.ask("AlterClientQuotas", version, entries=entries)
    s.wait("it holds", lambda: described(s, [("user", name)]))
    components = [{"entity_type": "user", "match_type": EXACT, "match": name}]
    s.ask("DescribeClientQuotas", version, components=components)
    clear(s, [("user", name)], PRODUCE)


@history()
def entries_twice(s: Session) -> None:
    """An entity that occurs twice in a request is refused, or altered by the last entry."""
    whose = [("user", s.name("u"))]
    alter(s, (whose, [change(PRODUCE, 1000.0)]), (whose, [change(PRODUCE, 2000.0)]), validate_only=True)


@history()
def good_and_bad_entries(s: Session) -> None:
    """Each entity is altered or refused by itself."""
    one, other = [("user", s.name("u"))], [("user", s.name("v"))]
    alter(s, (one, [change(PRODUCE, 1000.0)]), (other, [change("no_such_rate", 1.0)]))
    s.wait("it holds", lambda: described(s, one))
    clear(s, one, PRODUCE)


@history()
def no_entry(s: Session) -> None:
    """No entry is no error."""
    alter(s)


Component = tuple[str, int, str | None]
FILTERS: Final[Mapping[str, tuple[Callable[[Session], Sequence[Component]], bool]]] = {
    "all of the user": (lambda s: [("user", EXACT, s.name("u"))], False),
    "only the user": (lambda s: [("user", EXACT, s.name("u"))], True),
    "the user and a client": (
        lambda s: [("user", EXACT, s.name("u")), ("client-id", EXACT, s.name("c"))],
        True,
    ),
    "the user and any client": (lambda s: [("user", EXACT, s.name("u")), ("client-id", ANY, None)], False),
    "the user and any client only": (
        lambda s: [("user", EXACT, s.name("u")), ("client-id", ANY, None)],
        True,
    ),
    "the user and all clients": (
        lambda s: [("user", EXACT, s.name("u")), ("client-id", DEFAULT, None)],
        True,
    ),
    "the client": (lambda s: [("client-id", EXACT, s.name("c"))], False),
    "only the client": (lambda s: [("client-id", EXACT, s.name("c"))], True),
    "an unknown user": (lambda s: [("user", EXACT, s.name("x"))], False),
    "a user twice": (lambda s: [("user", EXACT, s.name("u")), ("user", EXACT, s.name("u"))], False),
    "an unknown type": (lambda s: [("planet", EXACT, "mars")], False),
    "an empty type": (lambda s: [("", EXACT, "x")], False),
    "an exact name of null": (lambda s: [("user", EXACT, None)], False),
    "a default with a name": (lambda s: [("user", DEFAULT, s.name("u"))], False),
    "any with a name": (lambda s: [("user", ANY, s.name("u"))], False),
    "an unknown match": (lambda s: [("user", 3, s.name("u"))], False),
    "a match of -1": (lambda s: [("user", -1, s.name("u"))], False),
    "an address and a user": (lambda s: [("ip", EXACT, "10.1.2.3"), ("user", EXACT, s.name("u"))], False),
}


@history(FILTERS)
def found(s: Session, row: tuple[Callable[[Session], Sequence[Component]], bool]) -> None:
    """A strict filter finds entities of just these types, another filter also entities with further types."""
    components, strict = row
    user, client = s.name("u"), s.name("c")
    entities: Sequence[Entity] = (
        [("user", user)],
        [("client-id", client)],
        [("user", user), ("client-id", client)],
        [("user", user), ("client-id", None)],
    )
    entries = [
        {"entity": parts(each), "ops": [change(PRODUCE, 1000.0 + number)]}
        for number, each in enumerate(entities)
    ]
    s.query("AlterClientQuotas", 1, entries=entries)
    s.wait("they hold", lambda: all(described(s, each) for each in entities))
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components(s)]
    answer = s.query("DescribeClientQuotas", 1, components=asked, strict=strict)
    s.observe("the error", answer["error_code"])
    mine = [
        f"{[[part['entity_type'], part['entity_name']] for part in each['entity']]}={each['values']}"
        for each in answer["entries"] or []
        if any(part["entity_name"] in (user, client) for part in each["entity"])
    ]
    s.observe("found", sorted(mine))
    for each in entities:
        clear(s, each, PRODUCE)
