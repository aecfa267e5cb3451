"""A case is data: a workload, the faults, their duration, and the expectations. One TOML file each, for any testbed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from raftlog_chaos.checkers.queues import DEFAULTS
from raftlog_chaos.history import QueueTerms
from raftlog_chaos.testbeds.testbed import NODE_ID

T = TypeVar("T")


class CaseError(ValueError):
    """An invalid case file. `faults` are all of its errors, each with its name."""

    def __init__(self, name: str, faults: Sequence[str]) -> None:
        super().__init__("\n".join(f"{name}: {fault}" for fault in faults))
        self.faults = tuple(faults)


def bounded(default: Any, least: float, most: float, **metadata: Any) -> Any:
    """Return a dataclass field for a number within bounds, both inclusive."""
    return field(default=default, metadata={"least": least, "most": most, **metadata})


@dataclass(frozen=True, slots=True)
class Workload:
    """The writers and readers, as `raftlog_chaos.workloads` understands them. Each is one process at a time."""

    clients: int = bounded(3, 0, 64)
    """They write and read."""
    writers: int = bounded(1, 0, 64)
    readers: int = bounded(1, 0, 64)
    careless: int = bounded(0, 0, 64)
    """They write with acks=1."""
    transformers: int = bounded(0, 0, 64)
    """Members of one group that turn each record into another record, in a transaction with the group's offsets."""
    workers: int = bounded(0, 0, 64)
    """Members of one share group, which accept, release and reject each record."""
    registrars: int = bounded(0, 0, 64)
    """They register and look up schemas at any node's registry."""
    subscribe: bool = False
    """Readers are members of groups, else they assign partitions to themselves."""
    members: int = bounded(1, 1, 64)
    """Members of each group, if they subscribe; the last group may have fewer."""
    transactions: bool = False
    """Writers and clients do all in transactions, some of which are aborted, left open, or lose their id."""
    rate: float = bounded(100.0, 0.1, 100_000)
    """Operations per second of all together."""
    keys: int = bounded(4, 1, 1_000)
    """Partitions that are written to at a time."""
    partitions: int = bounded(2, 1, 64)
    """The partitions of each topic."""
    writes_per_key: int = bounded(256, 1, 1_000_000)
    """After so many writes the next partition replaces it: topics are created all the time."""
    longest: int = bounded(4, 1, 100)
    """Writes of one operation, at most."""
    crash_every_s: float = bounded(30.0, 0, 3600)
    """How long a client lives on average; 0: for ever."""


@dataclass(frozen=True, slots=True)
class CaseStep:
    """One fault for `for_s` seconds, then `rest_s` seconds of rest."""

    fault: str
    for_s: float = bounded(2.0, 0, 3600)
    rest_s: float = bounded(2.0, 0, 3600)


@dataclass(frozen=True, slots=True)
class Faults:
    """Either `steps`, in turn and round again, or a `mix` that changes every `period_s` seconds."""

    quiet_s: float = bounded(2.0, 0, 3600)
    """Before the first fault."""
    seconds: float = bounded(20.0, 0, 24 * 3600)
    """How long there are faults."""
    steps: tuple[CaseStep, ...] = ()
    mix: tuple[str, ...] = ()
    period_s: float = bounded(5.0, 0.1, 3600)
    quiet_share: float = bounded(0.25, 0, 1)
    """The share of a mix's periods that have no fault."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every fault that may happen, each once."""
        return tuple(dict.fromkeys((*self.mix, *(each.fault for each in self.steps))))


@dataclass(frozen=True, slots=True)
class Expectations:
    """The expectations beyond the checker's verdict."""

    allowed: tuple[str, ...] = ()
    """Anomalies that this case's settings permit."""
    acked: int = bounded(1, 0, 1 << 40)
    """So many writes are acknowledged, at least."""
    acked_during_faults: int = bounded(0, 0, 1 << 40)
    """So many of them while a fault was at work."""
    registered_during_faults: int = bounded(0, 0, 1 << 40)
    """So many ids of schemas are acknowledged for the first time while a fault is at work, at least."""
    injections: int = bounded(1, 0, 1 << 40)
    unavailable_s: Mapping[str, float] = field(default_factory=dict, metadata={"least": 0, "most": 3600})
    """By fault: no partition goes without an acknowledgement for longer."""
    unseen: tuple[str, ...] = ()
    """Errors that no record of the meter gets, by Kafka's names; the meter does not retry then."""
    nodes_may_stop: bool = False
    """A node may end by itself (its disk failed) and is started again by the healing."""
    logged: tuple[str, ...] = ()
    """Error events that these faults make nodes log."""


@dataclass(frozen=True, slots=True)
class Case:
    """All of it. `settings` are the nodes'; NODE_ID in a value becomes the node's number."""

    name: str
    title: str = ""
    suites: tuple[str, ...] = ()
    nodes: int = bounded(3, 1, 9)
    secured: bool = False
    """Clients and brokers talk TLS, clients log in and need rights, and certificates are renewed all the while."""
    settings: Mapping[str, str] = field(default_factory=dict)
    workload: Workload = field(default_factory=Workload)
    faults: Faults = field(default_factory=Faults)
    expect: Expectations = field(default_factory=Expectations)

    @property
    def racks(self) -> tuple[str, ...]:
        """The racks of the nodes, where its settings have some; clients are in these in turn."""
        rack = self.settings.get("broker.rack", "")
        return tuple(rack.replace(NODE_ID, str(each)) for each in range(1, self.nodes + 1)) if rack else ()

    @property
    def is_about_coordinators(self) -> bool:
        """Whether it has transactions, or faults that seek coordinators out."""
        workload = self.workload
        sought = any(each.endswith("-coordinator") for each in self.faults.names)
        return sought or workload.transactions or workload.transformers > 0

    @property
    def queue_terms(self) -> QueueTerms | None:
        """The terms of the share group, if there are workers."""
        if not self.workload.workers:
            return None
        lock_ms = float(self.settings.get("group.share.record.lock.duration.ms", DEFAULTS.lock_s * 1000))
        limit = int(self.settings.get("group.share.delivery.count.limit", DEFAULTS.limit))
        return QueueTerms(lock_s=lock_ms / 1000, limit=limit, stale_s=DEFAULTS.stale_s)

    def lasting(self, seconds: float) -> Case:
        """Return the same case with faults for so many seconds; of a shorter one less is expected."""
        share = seconds / self.faults.seconds if self.faults.seconds else 1.0
        share, expect = min(share, 1.0), self.expect
        less = replace(
            expect,
            acked=int(expect.acked * share),
            acked_during_faults=int(expect.acked_during_faults * share),
            registered_during_faults=int(expect.registered_during_faults * share),
            injections=int(expect.injections * share),
        )
        return replace(self, faults=replace(self.faults, seconds=seconds), expect=less)


# --- reading


def parse_case(name: str, text: str, known_faults: Iterable[str]) -> Case:
    """Read a case. Raises CaseError with everything that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CaseError(name, [f"no TOML: {error}"]) from None
    reader = _Reader()
    if "name" in table:
        reader.faults.append("name: is the file's")
    case = reader.fill(Case, {**table, "name": name}, "")
    reader.faults += _contradictions(case, tuple(known_faults))
    if reader.faults:
        raise CaseError(name, reader.faults)
    return case


def _contradictions(case: Case, known_faults: Sequence[str]) -> list[str]:
    found = [
        f"faults: {_unknown(each, known_faults)}"
        for each in case.faults.names
        if each and each not in known_faults
    ]
    if case.faults.mix and case.faults.steps:
        found.append("faults: either steps or a mix")
    found += [
        f"expect.unavailable_s.{each}: is none of this case's faults"
        for each in case.expect.unavailable_s
        if each not in case.faults.names
    ]
    if not case.faults.names and case.expect.injections > 0:
        found.append("expect.injections: there are no faults, so say 0")
    if not case.suites:
        found.append("suites: name at least one")
    return found


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"nobody knows {name!r}" + (f" (perhaps {near[0]!r})" if near else "")


class _Reader:
    """Turns tables into dataclasses and gathers errors; defaults replace invalid values."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fill(self, kind: type[T], table: Mapping[str, Any], where: str) -> T:
        hints = get_type_hints(kind)
        known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
        self.faults += [f"{where}{key}: {_unknown(key, known)}" for key in table if key not in known]
        values: dict[str, Any] = {}
        for key, each in known.items():
            if key in table:
                values[key] = self._value(table[key], hints[key], f"{where}{key}", each)
            elif each.default is MISSING and each.default_factory is MISSING:
                self.faults.append(f"{where}{key}: is missing")
                values[key] = ""
        return kind(**{key: value for key, value in values.items() if value is not _WRONG})

    def _value(self, value: Any, hint: Any, where: str, each: Field[Any]) -> Any:
        if hint in _SCALARS:
            return self._scalar(value, _SCALARS[hint], where, each)
        if hint == tuple[str, ...]:
            return self._words(value, where)
        if hint == tuple[CaseStep, ...]:
            return self._steps(value, where)
        if not isinstance(value, Mapping):
            return self._wrong(where, "a table", value)
        if hint in (Workload, Faults, Expectations):
            return self.fill(hint, value, f"{where}.")
        return self._mapping(value, hint, where, each)

    def _scalar(self, value: Any, kind: _Kind, where: str, each: Field[Any]) -> Any:
        if not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types):
            return self._wrong(where, kind.said, value)
        least, most = each.metadata.get("least"), each.metadata.get("most")
        if least is not None and most is not None and not least <= value <= most:
            return self._wrong(where, f"{least:g} to {most:g}", value)
        return float(str(value)) if kind is _SCALARS[float] else value

    def _words(self, value: Any, where: str) -> Any:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return self._wrong(where, "a list of strings", value)
        return tuple(value)

    def _steps(self, value: Any, where: str) -> Any:
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            return self._wrong(where, "tables", value)
        return tuple(self.fill(CaseStep, each, f"{where}[{at}].") for at, each in enumerate(value))

    def _mapping(self, value: Mapping[str, Any], hint: Any, where: str, each: Field[Any]) -> Any:
        if hint == Mapping[str, float]:
            kept = {
                key: self._scalar(one, _SCALARS[float], f"{where}.{key}", each) for key, one in value.items()
            }
            return {key: one for key, one in kept.items() if one is not _WRONG}
        return {key: str(one).lower() if isinstance(one, bool) else str(one) for key, one in value.items()}

    def _wrong(self, where: str, wanted: str, value: Any) -> Any:
        self.faults.append(f"{where}: {wanted}, not {value!r}")
        return _WRONG


class _Kind(NamedTuple):
    types: tuple[type, ...]
    said: str


_SCALARS: Final[dict[Any, _Kind]] = {
    int: _Kind((int,), "a whole number"),
    float: _Kind((int, float), "a number"),
    bool: _Kind((bool,), "true or false"),
    str: _Kind((str,), "a string"),
}
_WRONG: Final = object()


# --- suites


def read_cases(folder: Path, known_faults: Iterable[str]) -> dict[str, Case]:
    """Read every case of a folder, by name. Raises CaseError with what is wrong in any of them."""
    known, found, faults = tuple(known_faults), {}, []
    for path in sorted(folder.glob("*.toml")):
        try:
            found[path.stem] = parse_case(path.stem, path.read_text(encoding="utf-8"), known)
        except CaseError as error:
            faults += [f"{path.stem}: {fault}" for fault in error.faults]
    if faults:
        raise CaseError(str(folder), faults)
    return found


def suite_of(cases: Mapping[str, Case], suite: str) -> list[Case]:
    """Return a suite's cases in the order of their names; empty: there is no such suite."""
    return [case for case in cases.values() if suite in case.suites]
