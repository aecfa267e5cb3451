"""Histories: short programs over a broker, each registered with its subject, its claim and its needs.

The subject is the name of the module that holds it. A history knows its session only: an address, and, where it says
so, nodes that can be restarted.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog_chaos.conformance import subjects

if TYPE_CHECKING:
    from raftlog_chaos.conformance.session import Session

Run = Callable[..., None]


class Needs(NamedTuple):
    """The broker that a history needs. Histories with equal needs share a broker, unless they restart nodes.

    `cluster_wide`: it changes, or lists, what all clients of a cluster share, such as broker configs, default quotas,
    features or internal topics. `raftlog conformance` does that to a cluster only if it is asked to.
    """

    nodes: int = 1
    restarts: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    cluster_wide: bool = False

    @property
    def is_any_broker(self) -> bool:
        """Whether any broker will do, so that the history can run against a foreign broker."""
        return self._replace(cluster_wide=False) == Needs()


class History(NamedTuple):
    """One history. `claim` says what Kafka does; a slow one waits for seconds."""

    subject: str
    name: str
    claim: str
    needs: Needs
    run: Callable[[Session], None]
    slow: bool = False

    @property
    def label(self) -> str:
        """The subject and the name, by which lists and command lines know it."""
        return f"{self.subject}/{self.name}"


_BOOK: Final[dict[str, History]] = {}


def history(
    rows: Mapping[str, Any] | None = None,
    *,
    nodes: int = 1,
    restarts: bool = False,
    settings: Mapping[str, str] | None = None,
    cluster_wide: bool = False,
    slow: bool = False,
) -> Callable[[Run], Run]:
    """Register a function as a history, or, with `rows`, as one history for each row, which is its second argument.

    Its name is the history's, and the first line of its docstring the claim.
    """
    needs = Needs(nodes, restarts, tuple(sorted((settings or {}).items())), cluster_wide)

    def register(run: Run) -> Run:
        subject = run.__module__.rpartition(".")[2].replace("_", "-")
        name = run.__name__.replace("_", "-")
        claim = (run.__doc__ or "").partition("\n")[0]
        assert claim, f"the history {subject}/{name} claims nothing"
        if rows is None:
            _add(History(subject, name, claim, needs, run, slow))
        for row, value in (rows or {}).items():
            _add(History(subject, f"{name}/{row}", claim, needs, _with_row(run, value), slow))
        return run

    return register


def _with_row(run: Run, row: Any) -> Run:
    return lambda session: run(session, row)


def _add(added: History) -> None:
    assert added.label not in _BOOK, f"there are two histories called {added.label}"
    _BOOK[added.label] = added


@cache
def load() -> Mapping[str, History]:
    """Return all histories by their labels, in the order of the subjects' names."""
    for module in pkgutil.iter_modules(subjects.__path__):
        importlib.import_module(f"{subjects.__name__}.{module.name}")
    return dict(_BOOK)


def choose(patterns: str = "") -> list[History]:
    """Return the histories with a subject or label that matches a pattern of the comma-separated list; all for an empty
    list.

    Raises ValueError for a pattern that matches no history.
    """
    known = list(load().values())
    if not patterns:
        return known
    chosen: dict[str, History] = {}
    for pattern in patterns.split(","):
        found = [each for each in known if pattern == each.subject or fnmatchcase(each.label, pattern)]
        if not found:
            raise ValueError(f"no history is called {pattern!r}")
        chosen |= {each.label: each for each in found}
    return list(chosen.values())
