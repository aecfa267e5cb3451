"""The registry of attacks: each is a function of a few lines, registered with its name, its claim and its bounds."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from raftlog_chaos.attacks.target import Port, Target

Run = Callable[[Target], str]
"""Attack, and return the nodes' answers in a few words."""

FAMILIES: Final = (
    "frames",
    "floods",
    "readers",
    "fetches",
    "produces",
    "bombs",
    "names",
    "growth",
    "groups",
    "shares",
    "transactions",
    "peers",
    "logins",
    "tls",
    "controllers",
    "http",
    "http_bodies",
    "schemas",
    "newcomers",
    "tenants",
    "believed",
)
"""The modules of this package that hold attacks, in the order of their running."""


Shape = Literal["usual", "cold", "few files", "closed", "encrypted"]
"""The kind of cluster that an attack needs. usual: every API was asked once before. cold: no API was asked yet. few
files: each node may open few files. closed: the bystanders and the brokers talk TLS, and clients log in. encrypted: the
HTTP API and the controllers talk TLS."""


class Attack(NamedTuple):
    """One attack. `within_s`: it is cut off after so long."""

    name: str
    claim: str
    port: Port
    within_s: float
    run: Run
    ci: bool = False
    shape: Shape = "usual"


_BOOK: dict[str, Attack] = {}


def attack(
    port: Port, *, within_s: float = 15.0, ci: bool = False, shape: Shape = "usual"
) -> Callable[[Run], Run]:
    """Register a function as an attack: its name is the attack's, the first line of its docstring the claim."""

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        assert name not in _BOOK, f"there are two attacks called {name}"
        claim = (run.__doc__ or "").partition("\n")[0]
        assert claim, f"the attack {name} claims nothing"
        _BOOK[name] = Attack(name, claim, port, within_s, run, ci, shape)
        return run

    return register


def load_attacks() -> dict[str, Attack]:
    """Return all attacks by name, in the order of their running."""
    for family in FAMILIES:
        importlib.import_module(f"{__package__}.{family}")
    return dict(_BOOK)
